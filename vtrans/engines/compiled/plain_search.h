// The plain beam search for plain_search.py, as defined in beam.py: without groups or phrases. Its only rules forbid
// some tokens or determine the first tokens of all hypotheses.
//
// Legend: B places of sentences in the batch, K rows of a sentence, m best tokens of a row.

#pragma once

#include <unordered_map>

#include "batch.h"

namespace vtrans {

enum Stop { COUNT, CURRENT, EXHAUSTIVE, SHRINK };

// `Request` of plain_search.py, whose arrays outlive the search.
struct Request {
    double alpha;
    const int64_t *suppressed, *begin;  // `begin`: the first tokens of all hypotheses, with log-probability 0
    int32_t suppressed_count, begin_count, beam, nbest, stop, by_length, min_length, bos, eos;
};

// A token of a hypothesis, after its parent; -1: the first one.
struct Node {
    int64_t token;
    float logprob;
    int parent;
};

// `Ending` of plain_search.py: a hypothesis that is no longer extended.
struct Ending {
    double score, logprob;
    int32_t length, node, finished;  // the number of its tokens without EOS, and the last of them
    float eos_logprob;
};

// A live row: its summed log-probability and its last token.
struct LiveRow {
    double sum;
    int64_t token;
    int node;
};

// A candidate extension of a row by one token.
struct Extension {
    double sum;
    float logprob;
    int parent;
    int64_t token;
};

// The search of one sentence. Its first rows are live, best first.
class SentenceSearch {
  public:
    std::vector<LiveRow> live;
    int age = 0;  // tokens so far

    SentenceSearch(const Request& request, int limit)
        : live{{0.0, request.bos, -1}},  // all rows are BOS, so only one of them is extended
          request(request), limit(limit), K(request.beam) {}

    // The number of best tokens per row that a step needs. Greedy search needs only one: it ends at EOS.
    int read() const {
        int needed = K == 1 && request.stop != EXHAUSTIVE ? 1 : K + 1;
        return needed + request.suppressed_count + (age < request.min_length);
    }

    // Takes a step, given the best `m` tokens of each live row [live rows, m]. Writes the old row that each of the K
    // rows continues. Returns whether the search is finished.
    bool advance(const int64_t* ids, const float* logprobs, int m, int64_t* parents) {
        size_t count = rank(ids, logprobs, m);
        std::vector<LiveRow> next;
        for (size_t n = 0; n < count; n++) {
            const Extension& each = ranked[n];
            if (each.token != request.eos && int(next.size()) < K) {
                parents[next.size()] = each.parent;
                next.push_back({each.sum, each.token, int(nodes.size())});
                nodes.push_back({each.token, each.logprob, live[each.parent].node});
            } else if (each.token == request.eos && int(n) < K) {
                finish(each);
            }
        }
        if (next.empty()) {
            end({live[0]}, false);
            return true;
        }
        std::fill(parents + next.size(), parents + K, parents[0]);  // any parent does for rows that are not live
        live = std::move(next);
        age++;
        if (age < limit && !decided()) return false;
        end(live, age == limit);
        return true;
    }

    // Writes the results of a finished search, best first, and their tokens and log-probabilities, including EOS, to
    // `paths` [results, 2, limit]. Returns the number of results.
    int report(Ending* results, double* paths) const {
        std::copy(endings.begin(), endings.end(), results);
        for (const Ending& ending : endings) {
            for (int node = ending.node, t = ending.length - 1; t >= 0; node = nodes[node].parent, t--)
                paths[t] = double(nodes[node].token), paths[limit + t] = nodes[node].logprob;
            if (ending.finished) paths[limit + ending.length] = ending.eos_logprob;
            paths += 2 * limit;
        }
        return int(endings.size());
    }

  private:
    const Request& request;
    const int limit, K;
    int ended = 0;                // hypotheses finished so far
    std::vector<Ending> endings;  // the best of them, best first
    std::vector<Node> nodes;
    std::vector<Extension> ranked;

    bool possible(int64_t token) const {
        const int64_t* end = request.suppressed + request.suppressed_count;
        if (token == request.eos && age < request.min_length) return false;
        return std::find(request.suppressed, end, token) == end;
    }

    // Ranks the extensions, and returns from how many of them the step may choose.
    size_t rank(const int64_t* ids, const float* logprobs, int m) {
        ranked.clear();
        if (age < request.begin_count) {  // the only row so far
            ranked.push_back({live[0].sum, 0, 0, request.begin[age]});
            return 1;
        }
        for (int k = 0; k < int(live.size()); k++)
            for (int i = k * m; i < (k + 1) * m; i++)
                if (logprobs[i] > -INFINITE && possible(ids[i]))
                    ranked.push_back({live[k].sum + logprobs[i], logprobs[i], k, ids[i]});
        // Stable: of equal sums, the earlier row comes first, and within a row the better token.
        std::stable_sort(ranked.begin(), ranked.end(), [](auto& a, auto& b) { return a.sum > b.sum; });
        return std::min<size_t>(request.stop == SHRINK ? K - ended : 2 * K, ranked.size());
    }

    double penalty(int length) const {
        return std::pow(request.by_length ? double(length) : (5 + length) / 6.0, request.alpha);
    }

    void finish(const Extension& last) {
        ended++;
        double score = last.sum / penalty(age + 1);
        size_t kept = request.stop == CURRENT ? K : request.nbest, place = 0;
        while (place < endings.size() && endings[place].score >= score) place++;
        endings.insert(endings.begin() + place, {score, last.sum, age, live[last.parent].node, true, last.logprob});
        if (endings.size() > kept) endings.pop_back();
    }

    // Whether no later step can change the result.
    bool decided() const {
        double top = live[0].sum;
        if (ended >= K && request.stop == COUNT) return true;
        if (ended >= K && request.stop == CURRENT && top / penalty(age) <= endings.back().score) return true;
        if (int(endings.size()) < request.nbest) return false;
        double bound = top / std::max(penalty(age + 1), penalty(limit));
        return bound <= endings[request.nbest - 1].score;
    }

    // Ends the search with these rows, which are also results if they are `at_limit` and the search is Marian's.
    void end(const std::vector<LiveRow>& rows, bool at_limit) {
        if (int(endings.size()) > request.nbest) endings.resize(request.nbest);
        size_t more = at_limit && request.stop == SHRINK ? rows.size() : endings.empty();
        for (size_t k = 0; k < more; k++)
            endings.push_back({age ? rows[k].sum / penalty(age) : 0.0, rows[k].sum, age, rows[k].node, false, 0});
        std::stable_sort(endings.begin(), endings.end(), [](auto& a, auto& b) { return a.score > b.score; });
        if (int(endings.size()) > request.nbest) endings.resize(request.nbest);
    }
};

// The searches of all sentences in a batch.
class PlainSearch {
  public:
    PlainSearch(Batch& batch, const Request& request) : batch(batch), request(request) {}

    // Starts the searches of sentences that have been admitted to the batch.
    void enter(const int64_t* limits) {
        for (const auto& sentence : batch.places)
            if (sentence && !searches.count(sentence.get()))
                searches.try_emplace(sentence.get(), request, int(*limits++));
    }

    // Removes a finished sentence and writes its results; see SentenceSearch::report.
    int leave(int b, Ending* results, double* paths) {
        int count = searches.at(batch.places[b].get()).report(results, paths);
        searches.erase(batch.places[b].get());
        batch.places[b] = nullptr;
        return count;
    }

    // Advances all sentences by one token, and writes to `finished` [B] which of them are finished. Returns false if a
    // log-probability is NaN.
    bool step(const float* positions, char* finished) {
        int K = request.beam, m = 1;
        std::vector<int64_t> tokens(batch.places.size() * K, request.bos), parents(tokens.size()), rows;
        for (size_t b = 0; b < batch.places.size(); b++) {
            if (!batch.places[b]) continue;
            const SentenceSearch& search = searches.at(batch.places[b].get());
            m = std::max(m, search.read());
            batch.places[b]->live = int(search.live.size());
            for (size_t k = 0; k < search.live.size(); k++) {
                tokens[b * K + k] = search.live[k].token;
                rows.push_back(int64_t(b * K + k));
            }
        }
        batch.step(tokens.data(), positions);
        std::vector<int64_t> ids(rows.size() * m);
        std::vector<float> logprobs(ids.size());
        if (!batch.best(rows.data(), int(rows.size()), m, ids.data(), logprobs.data())) return false;
        for (size_t b = 0, first = 0; b < batch.places.size(); b++) {
            if (!batch.places[b]) continue;
            SentenceSearch& search = searches.at(batch.places[b].get());
            size_t live = search.live.size();
            finished[b] = search.advance(&ids[first * m], &logprobs[first * m], m, &parents[b * K]);
            first += live;
        }
        batch.reorder(parents.data());
        return true;
    }

  private:
    Batch& batch;
    const Request request;
    std::unordered_map<const Sentence*, SentenceSearch> searches;
};

}  // namespace vtrans
