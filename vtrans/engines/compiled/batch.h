// A batch of sentences in a search; each call computes all rows.
//
// Threads divide the sentences; no thread waits for another within a call.
//
// Legend: D model width, V vocabulary, B sentences, K rows of a sentence, N rows of a call, T threads.

#pragma once

#include <exception>
#include <thread>

#include "rows.h"

namespace vtrans {

// Minimum number of rows per thread: starting a thread takes about as long as computing this many rows of a small
// model. Does not change the result.
constexpr int SHARE = 16;

// Calls work(0) to work(T - 1), each on its own thread, and waits for all. Rethrows their exceptions.
template <class Work>
void in_threads(int T, Work work) {
    std::vector<std::exception_ptr> failed(T);
    auto attempt = [&](int t) {
        try {
            work(t);
        } catch (...) {
            failed[t] = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    for (int t = 1; t < T; t++) {
        try {
            others.emplace_back(attempt, t);
        } catch (const std::exception&) {  // the system has no more threads
            attempt(t);
        }
    }
    attempt(0);
    for (auto& other : others) other.join();
    for (const auto& failure : failed)
        if (failure) std::rethrow_exception(failure);
}

// The number of threads for some rows that can be divided into `parts`, at most `most`.
int threads_for(int64_t rows, int64_t parts, size_t most) {
    return int(std::clamp<int64_t>(std::min(rows / SHARE, parts), 1, most));
}

// The sentences of a search.
struct Batch {
    const Model& model;
    const int D, K;
    std::vector<std::unique_ptr<Sentence>> places;  // null: empty

    Batch(const Model& model, int K, int most_threads) : model(model), D(model.sizes.width), K(K) {
        for (int t = 0; t < std::max(1, most_threads); t++) threads.emplace_back(model, *model.common, K);
    }

    // Puts `count` sources into the `free` places, and the remaining ones after the last place. Their tokens are
    // concatenated, and so are the subwords that each allows beyond the common ones.
    void admit(const int64_t* tokens, const int64_t* lengths, int count, const int64_t* free, int free_count,
               const float* positions, const int64_t* listed, const int64_t* listed_lengths) {
        std::vector<Sentence*> sentences;
        std::vector<int64_t> firsts{0};  // where each source begins in `tokens`
        for (int j = 0; j < count; j++) {
            auto sentence = std::make_unique<Sentence>(model, K);
            sentence->more = model.listed_here({listed, listed + listed_lengths[j]});
            listed += listed_lengths[j];
            sentences.push_back(sentence.get());
            firsts.push_back(firsts.back() + lengths[j]);
            if (j >= free_count) places.emplace_back();
            (j < free_count ? places[free[j]] : places.back()) = std::move(sentence);
        }
        int T = threads_for(firsts.back(), count, threads.size());
        in_threads(T, [&](int t) {
            int begin = share(count, t, T), end = share(count, t + 1, T);
            threads[t].read(&sentences[begin], tokens + firsts[begin], lengths + begin, end - begin, positions);
        });
    }

    // Row k of each sentence continues its old row parents[b, k]; `parents` is [B, K].
    void reorder(const int64_t* parents) {
        for (size_t b = 0; b < places.size(); b++, parents += K) {
            bool moves = false;
            for (int k = 0; k < K; k++) moves |= parents[k] != k;
            if (!places[b] || !moves) continue;
            auto history = places[b]->history;
            auto cells = places[b]->cells;
            for (int k = 0; k < K; k++) {
                places[b]->history[k] = history[parents[k]];
                if (!cells.empty()) places[b]->cells[k] = cells[parents[k]];
            }
        }
    }

    // Feeds each live row its token.
    void step(const int64_t* tokens, const float* positions) {
        std::vector<Sentence*> sentences;
        std::vector<const int64_t*> fed;
        std::vector<size_t> live;
        for (size_t b = 0; b < places.size(); b++)
            if (places[b]) sentences.push_back(places[b].get()), fed.push_back(tokens + b * K), live.push_back(b);
        int count = int(live.size());
        int T = threads_for(int64_t(count) * K, count, threads.size());
        at.resize(places.size());
        in_threads(T, [&](int t) {
            int begin = share(count, t, T), end = share(count, t + 1, T);
            threads[t].step(&sentences[begin], &fed[begin], end - begin, positions);
            for (int j = begin, row = 0; j < end; row += sentences[j++]->live) at[live[j]] = {t, row};
        });
    }

    // Copies the decoder's outputs of `rows`, which are numbered over all places, including empty ones.
    std::vector<Output> outputs(const int64_t* rows, int N) {
        std::vector<Output> made;
        for (int r = 0; r < N; r++) {
            Place place = at[rows[r] / K];
            const float* x = threads[place.thread].x.row(place.row + int(rows[r] % K));
            made.push_back({x, places[rows[r] / K]->more.get()});
        }
        return made;
    }

    // Writes log-probabilities to `out` [N, V].
    void logprobs(const int64_t* rows, int N, float* out) {
        auto all = outputs(rows, N);
        Floats totals = threads[0].project(all.data(), N);
        int V = model.sizes.vocabulary;
        std::fill_n(out, size_t(N) * V, -INFINITE);
        for (int r = 0; r < N; r++, out += V)
            for (int i = 0, columns = threads[0].width_of(all[r]); i < columns; i++)
                out[threads[0].token_of(all[r], i)] = threads[0].logits.row(r)[i] - totals[r];
    }

    // Writes the `count` best tokens of each row and their log-probabilities, best first, to `ids` and `out` [N,
    // count]. Returns false if a log-probability is NaN.
    bool best(const int64_t* rows, int N, int count, int64_t* ids, float* out) {
        auto all = outputs(rows, N);
        int T = threads_for(N, N, threads.size());
        std::vector<char> numbers(T, true);
        in_threads(T, [&](int t) {
            int end = share(N, t + 1, T);
            for (int first = share(N, t, T); first < end; first += PROJECTED_ROWS) {
                int block = std::min(PROJECTED_ROWS, end - first);
                Floats totals = threads[t].project(&all[first], block);
                for (int r = 0; r < block; r++) {
                    size_t place = size_t(first + r) * count;
                    threads[t].best(r, all[first + r], totals[r], count, ids + place, out + place);
                    if (totals[r] != totals[r] || out[place] != out[place]) numbers[t] = false;
                }
            }
        });
        return std::all_of(numbers.begin(), numbers.end(), [](char each) { return each; });
    }

  private:
    struct Place {
        int thread, row;
    };

    std::vector<Rows> threads;
    std::vector<Place> at;  // per place, the rows of its sentence in the last step
};

}  // namespace vtrans
