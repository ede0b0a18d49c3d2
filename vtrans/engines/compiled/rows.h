// Computes the rows of one thread together: the encoder, the layers of a step and the projection. Nothing is padded.
//
// Legend: D model width, V vocabulary, S source length, K rows of a sentence, N rows that are computed together.

#pragma once

#include <functional>
#include <memory>

#include "model.h"

namespace vtrans {

// Logits per group; the best tokens are found by the groups' maxima.
constexpr int GROUP = 64;
// Rows projected to the vocabulary at a time, so that their logits stay in the cache.
constexpr int PROJECTED_ROWS = 32;

// A sentence of a batch. Reordering moves no slots: `history` lists the slots that each row attends to.
struct Sentence {
    std::vector<Slots> self_slots, cross_slots;  // of each decoder layer
    std::vector<std::vector<int>> history;
    std::vector<Floats> cells;  // per row, the SSRU states of all layers
    int position = 0;           // of the next subword
    int live;                   // the number of rows that a step computes, from the first
    std::unique_ptr<const Listed> more;  // the subwords it allows beyond the common ones; null: none

    Sentence(const Model& model, int K)
        : self_slots(model.decoder.size()), cross_slots(model.decoder.size()), history(K), live(K) {
        if (model.sizes.ssru) cells.assign(K, Floats(model.decoder.size() * model.sizes.width));
    }

    // Makes room for K more slots. Frees slots that no row attends to.
    void make_room(int K, int D) {
        if (self_slots[0].count + K <= self_slots[0].capacity) return;
        std::vector<int> places(self_slots[0].count, -1), kept;
        for (const auto& row : history)
            for (int slot : row) places[slot] = 0;
        for (int slot = 0; slot < self_slots[0].count; slot++)
            if (places[slot] == 0) places[slot] = int(kept.size()), kept.push_back(slot);
        for (auto& row : history)
            for (int& slot : row) slot = places[slot];
        for (Slots& slots : self_slots) slots.keep(kept, K, D);
    }
};

// A row to project: the decoder's output, and the subwords that its sentence allows beyond the common ones.
struct Output {
    const float* x;
    const Listed* more;
};

// Records the attention of rows to their sources: the mean over the first `heads` heads of the layers from `first` to
// `end`.
struct Recorder {
    int first, end, heads;
    std::vector<Span> rows;  // per row: where its weights are added, and the length of its source

    // Adds the attention weights of a row in a layer, whose heads are `width` apart. In a decoder-only model, the
    // source's weights come first, followed by the target's.
    void add(int r, int layer, const float* weights, int width) {
        if (layer < first || layer >= end) return;
        float share = 1.0f / (heads * (end - first));
        for (int h = 0; h < heads; h++)
            for (int s = 0; s < rows[r].width; s++) rows[r].values[s] += share * weights[h * width + s];
    }
};

// The working memory of a thread, including the decoder's output of the last step.
struct Rows {
    const Model& model;
    const Listed& common;        // the subwords that all sentences allow
    const int D, K;
    Recorder* recorder = nullptr;
    Matrix x;                    // the decoder's output after a step
    Matrix logits, maxima;       // of projected rows; the largest logit of each GROUP
    std::vector<Sentence*> owners;  // the sentence of each row

    Rows(const Model& model, const Listed& common, int K)
        : model(model), common(common), D(model.sizes.width), K(K), x(D), logits(0), maxima(0), in(D), out(D), mixed(D),
          wide(std::max(3 * D, model.sizes.feed_forward)) {}

    // Reads the sources of new sentences, whose tokens are concatenated.
    void read(Sentence* const* sentences, const int64_t* tokens, const int64_t* lengths, int count,
              const float* positions) {
        owners.clear();
        for (int j = 0; j < count; j++) {
            int first = int(owners.size()), S = int(lengths[j]);
            owners.insert(owners.end(), S, sentences[j]);
            reserve(first + S);
            for (int i = 0; i < S; i++)
                embed(model.src_embedding, tokens[first + i], positions + size_t(i) * D, first + i);
        }
        if (model.sizes.decoder_only)
            read_first(lengths, count);
        else
            encode(lengths, count);
    }

    // Feeds the live rows of some sentences their tokens [count, K]. The outputs are in the order of the sentences.
    void step(Sentence* const* sentences, const int64_t* const* tokens, int count, const float* positions) {
        std::vector<Chosen> chosen;
        owners.clear();
        for (int j = 0; j < count; j++) {
            Sentence& sentence = *sentences[j];
            int first = int(owners.size());
            owners.insert(owners.end(), sentence.live, &sentence);
            reserve(first + sentence.live);
            const float* position = positions + size_t(sentence.position++) * D;
            for (int k = 0; k < sentence.live; k++) embed(model.tgt_embedding, tokens[j][k], position, first + k);
            if (model.sizes.ssru) continue;
            sentence.make_room(K, D);
            for (int k = 0; k < sentence.live; k++) {
                sentence.history[k].push_back(sentence.self_slots[0].count + k);
                const int* slots = K > 1 ? sentence.history[k].data() : nullptr;  // one row attends to all of them
                chosen.push_back({slots, int(sentence.history[k].size())});
            }
        }
        decode(chosen);
    }

    // Feeds each sentence all its tokens at once; K must be 1. The outputs are in the order of the sentences.
    void feed(Sentence* const* sentences, const int64_t* tokens, const int64_t* lengths, int count,
              const float* positions) {
        std::vector<Chosen> chosen;
        owners.clear();
        for (int j = 0; j < count; j++) {
            Sentence& sentence = *sentences[j];
            int first = int(owners.size()), T = int(lengths[j]), begin = sentence.position;
            owners.insert(owners.end(), T, &sentence);
            reserve(first + T);
            for (int t = 0; t < T; t++) {
                embed(model.tgt_embedding, tokens[first + t], positions + size_t(begin + t) * D, first + t);
                chosen.push_back({nullptr, begin + t + 1});
            }
        }
        decode(chosen);
    }

    // Computes the logits of some outputs, and the largest of each GROUP: first the common subwords, then the others
    // that the row's sentence allows. Returns the log-sum-exp of each row.
    Floats project(const Output* outputs, int N) {
        int width = 0;
        for (int r = 0; r < N; r++) width = std::max(width, width_of(outputs[r]));
        in.reserve(N), logits.reshape(N, width), maxima.reshape(N, groups_of(width));
        for (int r = 0; r < N; r++) std::copy_n(outputs[r].x, D, in.row(r));
        product(common.projection, in, N, logits, scratch);
        for (int first = 0, end = 0; first < N; first = end) {
            const Listed* more = outputs[first].more;
            while (end < N && outputs[end].more == more) end++;
            Span beside = logits.from(first, common.width());
            if (more) product(more->projection, in.from(first), end - first, beside, scratch);
        }
        Floats totals(N);
        for (int r = 0; r < N; r++) {
            const float* row = logits.row(r);
            int columns = width_of(outputs[r]), groups = groups_of(columns);
            for (int g = 0; g < groups; g++)
                maxima.row(r)[g] = largest(row + g * GROUP, std::min(GROUP, columns - g * GROUP));
            float most = largest(maxima.row(r), groups), sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < columns; i++) sum += exponential(row[i] - most);
            totals[r] = most + std::log(sum);
        }
        return totals;
    }

    // Writes the best tokens of row r and their log-probabilities, best first; equal ones are ordered by their ids. If
    // there are too few, padding follows. `total` is the row's log-sum-exp.
    void best(int r, const Output& output, float total, int count, int64_t* tokens, float* logprobs) {
        std::fill_n(tokens, count, model.sizes.pad_id);
        std::fill_n(logprobs, count, -INFINITE);
        const float* row = logits.row(r);
        int columns = width_of(output), groups = groups_of(columns);
        float bar = bar_of(maxima.row(r), groups, count) - total;
        for (int g = 0; g < groups; g++) {
            if (maxima.row(r)[g] - total < bar) continue;
            for (int i = g * GROUP; i < std::min(columns, (g + 1) * GROUP); i++) {
                float logprob = row[i] - total;
                if (logprob < bar) continue;
                int64_t token = token_of(output, i);
                auto precedes = [&](int n) {
                    return logprob > logprobs[n] || (logprob == logprobs[n] && token < tokens[n]);
                };
                if (!precedes(count - 1)) continue;
                int at = count - 1;
                for (; at > 0 && precedes(at - 1); at--) tokens[at] = tokens[at - 1], logprobs[at] = logprobs[at - 1];
                tokens[at] = token, logprobs[at] = logprob;
            }
        }
    }

    // The number of columns of a row's logits, and the token of a column.
    int width_of(const Output& output) const {
        return common.width() + (output.more ? output.more->width() : 0);
    }
    int64_t token_of(const Output& output, int column) const {
        int width = common.width();
        return column < width ? common.ids[column] : output.more->ids[column - width];
    }

  private:
    // The slots that a row attends to; null: the first ones.
    struct Chosen {
        const int* slots;
        int count;
    };

    Matrix in, out, mixed, wide;
    Scratch scratch;
    Attention attention;
    std::vector<const float*> turns;  // per row, its position encoding, which the caller owns

    Floats sorted;

    static int groups_of(int columns) { return (columns + GROUP - 1) / GROUP; }

    // A lower bound of the best `count` logits: the count-th largest maximum of a group.
    float bar_of(const float* maxima, int groups, int count) {
        if (groups < count) return -INFINITE;
        sorted.assign(count, -INFINITE);
        for (int g = 0; g < groups; g++) {
            int at = count;
            for (; at > 0 && maxima[g] > sorted[at - 1]; at--)
                if (at < count) sorted[at] = sorted[at - 1];
            if (at < count) sorted[at] = maxima[g];
        }
        return sorted[count - 1];
    }

    void reserve(int N) {
        for (Matrix* matrix : {&x, &in, &out, &mixed, &wide}) matrix->reserve(N);
    }

    void embed(const float* embedding, int64_t token, const float* position, int r) {
        const float* row = embedding + token * D;
        turns.resize(std::max(turns.size(), size_t(r) + 1));
        turns[r] = position;
        bool adds = !model.sizes.rotary;
        for (int i = 0; i < D; i++) x.row(r)[i] = row[i] * model.sizes.embedding_scale + (adds ? position[i] : 0);
    }

    void encode(const int64_t* lengths, int count) {
        int N = int(owners.size());
        for (const Layer& layer : model.encoder) {
            residual(layer.self_norm, true, N, [&](Matrix& from) {
                queries_keys_values(layer, from, N);
                for (int j = 0, first = 0; j < count; first += int(lengths[j++])) {
                    int end = first + int(lengths[j]);
                    for (int r = first; r < end; r++) attend(r, wide.from(first, D), {nullptr, end - first});
                }
                product(*layer.out, mixed, N, out, scratch);
            });
            feed_forward(layer, N);
        }
        normalize(model.encoder_norm, N, x, x);
        for (size_t l = 0; l < model.decoder.size(); l++) {
            product(*model.decoder[l].kv, x, N, wide, scratch);
            for (int j = 0, first = 0; j < count; first += int(lengths[j++]))
                if (lengths[j]) owners[first]->cross_slots[l].append(wide.row(first), wide.width, int(lengths[j]), D);
        }
    }

    // Replaces encoding in a decoder-only model: the source fills the first slots.
    void read_first(const int64_t* lengths, int count) {
        std::vector<Chosen> chosen;
        for (int j = 0; j < count; j++) {
            int S = int(lengths[j]);
            owners[chosen.size()]->position = S;
            for (auto& row : owners[chosen.size()]->history) {
                row.resize(S);
                std::iota(row.begin(), row.end(), 0);
            }
            for (int i = 0; i < S; i++) chosen.push_back({nullptr, model.sizes.prefix ? S : i + 1});
        }
        decode(chosen);
    }

    void decode(const std::vector<Chosen>& chosen) {
        int N = int(owners.size());
        for (size_t l = 0; l < model.decoder.size(); l++) {
            const Layer& layer = model.decoder[l];
            residual(layer.self_norm, true, N, [&](Matrix& from) {
                if (layer.zf) {
                    product(*layer.zf, from, N, wide, scratch);
                    for (int r = 0, k = 0; r < N; r++) {
                        k = r > 0 && owners[r] == owners[r - 1] ? (k + 1) % K : 0;
                        recur(wide.row(r), wide.row(r) + D, D, &owners[r]->cells[k][l * D], out.row(r));
                    }
                    return;
                }
                queries_keys_values(layer, from, N);
                for (int first = 0, end = 0; first < N; first = end) {
                    while (end < N && owners[end] == owners[first]) end++;
                    owners[first]->self_slots[l].append(wide.row(first) + D, wide.width, end - first, D);
                }
                for (int r = 0; r < N; r++) {
                    attend(r, owners[r]->self_slots[l].span(D), chosen[r]);
                    if (recorder && !layer.query)
                        recorder->add(r, int(l), attention.weights.data(), padded(chosen[r].count, LANES));
                }
                product(*layer.out, mixed, N, out, scratch);
            });
            if (layer.query)
                residual(layer.cross_norm, model.sizes.cross_skip, N, [&](Matrix& from) {
                    product(*layer.query, from, N, wide, scratch);
                    for (int r = 0; r < N; r++) {
                        Slots& source = owners[r]->cross_slots[l];
                        attend(r, source.span(D), {nullptr, source.count});
                        if (recorder) recorder->add(r, int(l), attention.weights.data(), padded(source.count, LANES));
                    }
                    product(*layer.cross_out, mixed, N, out, scratch);
                });
            feed_forward(layer, N);
        }
        normalize(model.decoder_norm, N, x, x);
    }

    // Fills N rows of `wide`.
    void queries_keys_values(const Layer& layer, Matrix& from, int N) {
        product(*layer.qkv, from, N, wide, scratch);
        if (!model.sizes.rotary) return;
        for (int r = 0; r < N; r++) turn(wide.row(r), turns[r], D);
    }

    // Fills a row of `mixed`; the row's queries are the first D values of `wide`.
    void attend(int r, Span slots, Chosen chosen) {
        attention.compute(wide.row(r), slots, chosen.slots, chosen.count, D, model.sizes.heads, mixed.row(r));
    }

    void feed_forward(const Layer& layer, int N) {
        residual(layer.feed_forward_norm, true, N, [&](Matrix& from) {
            product(*layer.inner, from, N, wide, scratch);
            for (int r = 0; r < N; r++) activate(wide.row(r), model.sizes.feed_forward, model.sizes.activation);
            product(*layer.outer, wide, N, out, scratch);
        });
    }

    // Replaces `x` by the result of a sublayer with its norm and residual. The sublayer writes to `out`.
    template <class Sublayer>
    void residual(const Norm& norm, bool skip, int N, Sublayer sublayer) {
        bool pre = model.sizes.pre;
        if (pre) normalize(norm, N, x, in);
        sublayer(pre ? in : x);
        for (int r = 0; r < N; r++)
            for (int i = 0; i < D; i++) x.row(r)[i] = skip ? x.row(r)[i] + out.row(r)[i] : out.row(r)[i];
        if (!pre) normalize(norm, N, x, x);
    }

    void normalize(const Norm& norm, int N, Matrix& from, Matrix& to) {
        if (!norm.weight) return;
        for (int r = 0; r < N; r++) norm.apply(from.row(r), D, model.sizes.epsilon, to.row(r));
    }
};

}  // namespace vtrans
