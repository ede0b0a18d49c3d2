// The encoder and the steps of a search, for decoder.py: what incremental.py computes with torch.
//
// A step is one call for all rows of a batch, and has no padding.
//
// Legend: D model width, V vocabulary, S source length, B sentences, K rows of a sentence, N rows that are computed
// together.

#include <exception>

#include "model.h"

namespace vtrans {

// Logits that are compared at a time in the search for the best.
constexpr int GROUP = 64;

// A sentence of a batch. Reordering moves no slots: `history` lists the slots that each row attends to.
struct Sentence {
    std::vector<Slots> self_slots, cross_slots;  // of each decoder layer
    std::vector<std::vector<int>> history;
    std::vector<Floats> cells;  // of each row: the states of the SSRUs of all layers
    int position = 0;           // of the next subword

    // Makes room for K more slots. Slots that no row attends to are given up.
    void make_room(int K, int D) {
        if (self_slots[0].count + K <= self_slots[0].capacity) return;
        std::vector<int> places(self_slots[0].count, -1), kept;
        for (const auto& row : history)
            for (int slot : row) places[slot] = 0;
        for (int slot = 0; slot < self_slots[0].count; slot++)
            if (places[slot] == 0) places[slot] = int(kept.size()), kept.push_back(slot);
        for (auto& row : history)
            for (int& slot : row) slot = places[slot];
        for (Slots& slots : self_slots) slots.keep(kept, D);
    }
};

// The sentences of a search, and the rows that are computed together.
struct Batch {
    const Model& model;
    const int D, K;
    std::vector<std::unique_ptr<Sentence>> places;  // null: empty
    std::vector<int> first_rows;                    // of each place in the last step
    Matrix x, logits;                               // the decoder's output after a step, and its projection

    Batch(const Model& model, int K)
        : model(model), D(model.sizes.width), K(K), x(D), logits(model.sizes.vocabulary), in(D), out(D), mixed(D),
          wide(std::max(3 * D, model.sizes.feed_forward)) {}

    // Puts `count` sources into the `free` places, and the remaining ones after the last place. Their tokens are
    // concatenated.
    void admit(const int64_t* tokens, const int64_t* lengths, int count, const int64_t* free, int free_count,
               const float* positions) {
        Owners owners;
        for (int j = 0; j < count; j++) {
            auto sentence = std::make_unique<Sentence>();
            sentence->self_slots.resize(model.decoder.size());
            sentence->cross_slots.resize(model.decoder.size());
            sentence->history.resize(K);
            if (model.sizes.ssru) sentence->cells.assign(K, Floats(model.decoder.size() * D));
            int first = int(owners.size()), S = int(lengths[j]);
            owners.insert(owners.end(), S, sentence.get());
            reserve(first + S);
            for (int i = 0; i < S; i++)
                embed(model.src_embedding, tokens[first + i], positions + size_t(i) * D, first + i);
            for (int i = int(numbers.size()); i < S; i++) numbers.push_back(i);
            if (j >= free_count) places.emplace_back();
            (j < free_count ? places[free[j]] : places.back()) = std::move(sentence);
        }
        if (model.sizes.decoder_only)
            read(owners, lengths, count);
        else
            encode(owners, lengths, count);
    }

    // Feeds each row its token.
    void step(const int64_t* tokens, const float* positions) {
        Owners owners;
        std::vector<Chosen> chosen;
        first_rows.assign(places.size(), 0);
        for (size_t b = 0; b < places.size(); b++) {
            if (!places[b]) continue;
            Sentence& sentence = *places[b];
            first_rows[b] = int(owners.size());
            owners.insert(owners.end(), K, &sentence);
            reserve(int(owners.size()));
            const float* position = positions + size_t(sentence.position++) * D;
            for (int k = 0; k < K; k++) embed(model.tgt_embedding, tokens[b * K + k], position, first_rows[b] + k);
            if (model.sizes.ssru) continue;
            sentence.make_room(K, D);
            for (int k = 0; k < K; k++) {
                sentence.history[k].push_back(sentence.self_slots[0].count + k);
                chosen.push_back({sentence.history[k].data(), int(sentence.history[k].size())});
            }
        }
        decode(owners, chosen);
    }

    // The output of a row of the search, whose number counts the rows of empty places.
    const float* output(int64_t row) { return x.row(first_rows[row / K] + int(row % K)); }

    // Computes the logits of some rows. Returns the logarithm of the sum of their exponentials.
    Floats project(const int64_t* rows, int N) {
        in.reserve(N), logits.reserve(N);
        for (int r = 0; r < N; r++) std::copy_n(output(rows[r]), D, in.row(r));
        product(*model.projection, in, N, logits);
        Floats totals(N);
        for (int r = 0; r < N; r++) {
            const float* row = logits.row(r);
            float most = largest(row, logits.width), sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < logits.width; i++) sum += exponential(row[i] - most);
            totals[r] = most + std::log(sum);
        }
        return totals;
    }

    // The tokens with the largest logits of a row, of equal ones those with the lowest ids.
    std::vector<int64_t> best(int r, int count) {
        const float* row = logits.row(r);
        int V = model.sizes.vocabulary;
        std::vector<int64_t> tokens;
        for (int begin = 0; begin < V; begin += GROUP) {
            int end = std::min(V, begin + GROUP);
            auto enters = [&](float logit) { return int(tokens.size()) < count || logit > row[tokens.back()]; };
            if (!enters(largest(row + begin, end - begin))) continue;
            for (int i = begin; i < end; i++) {
                if (!enters(row[i])) continue;
                if (int(tokens.size()) == count) tokens.pop_back();
                auto at = tokens.end();
                while (at != tokens.begin() && row[i] > row[at[-1]]) --at;
                tokens.insert(at, i);
            }
        }
        return tokens;
    }

  private:
    using Owners = std::vector<Sentence*>;  // the sentence of each row

    // The slots that a row attends to.
    struct Chosen {
        const int* slots;
        int count;
    };

    Matrix in, out, mixed, wide;
    Floats scores, weights;
    std::vector<int> numbers;         // 0, 1, 2, ...: as many as the longest source has positions
    std::vector<const float*> turns;  // of each row: its position's row, which is the caller's until the call ends

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

    void encode(const Owners& owners, const int64_t* lengths, int count) {
        int N = int(owners.size());
        Slots slots;
        for (const Layer& layer : model.encoder) {
            residual(layer.self_norm, true, N, [&](Matrix& from) {
                queries_keys_values(layer, from, N);
                for (int j = 0, first = 0; j < count; first += int(lengths[j++])) {
                    int end = first + int(lengths[j]);
                    slots.clear();
                    for (int r = first; r < end; r++) slots.append(wide.row(r) + D, wide.row(r) + 2 * D, D);
                    for (int r = first; r < end; r++) attend(r, slots, {numbers.data(), slots.count});
                }
                product(*layer.out, mixed, N, out);
            });
            feed_forward(layer, N);
        }
        normalize(model.encoder_norm, N, x, x);
        for (size_t l = 0; l < model.decoder.size(); l++) {
            product(*model.decoder[l].kv, x, N, wide);
            for (int r = 0; r < N; r++) owners[r]->cross_slots[l].append(wide.row(r), wide.row(r) + D, D);
        }
    }

    // What a decoder-only model does instead of encoding: the source takes the first slots.
    void read(const Owners& owners, const int64_t* lengths, int count) {
        std::vector<Chosen> chosen;
        for (int j = 0; j < count; j++) {
            int S = int(lengths[j]);
            owners[chosen.size()]->position = S;
            for (auto& row : owners[chosen.size()]->history) row.assign(numbers.begin(), numbers.begin() + S);
            for (int i = 0; i < S; i++) chosen.push_back({numbers.data(), model.sizes.prefix ? S : i + 1});
        }
        decode(owners, chosen);
    }

    void decode(const Owners& owners, const std::vector<Chosen>& chosen) {
        int N = int(owners.size());
        for (size_t l = 0; l < model.decoder.size(); l++) {
            const Layer& layer = model.decoder[l];
            residual(layer.self_norm, true, N, [&](Matrix& from) {
                if (layer.zf) {
                    product(*layer.zf, from, N, wide);
                    for (int r = 0; r < N; r++)
                        recur(wide.row(r), wide.row(r) + D, D, &owners[r]->cells[r % K][l * D], out.row(r));
                    return;
                }
                queries_keys_values(layer, from, N);
                for (int r = 0; r < N; r++) owners[r]->self_slots[l].append(wide.row(r) + D, wide.row(r) + 2 * D, D);
                for (int r = 0; r < N; r++) attend(r, owners[r]->self_slots[l], chosen[r]);
                product(*layer.out, mixed, N, out);
            });
            if (layer.query)
                residual(layer.cross_norm, model.sizes.cross_skip, N, [&](Matrix& from) {
                    product(*layer.query, from, N, wide);
                    for (int r = 0; r < N; r++) {
                        const Slots& source = owners[r]->cross_slots[l];
                        attend(r, source, {numbers.data(), source.count});
                    }
                    product(*layer.cross_out, mixed, N, out);
                });
            feed_forward(layer, N);
        }
        normalize(model.decoder_norm, N, x, x);
    }

    // Fills N rows of `wide`.
    void queries_keys_values(const Layer& layer, Matrix& from, int N) {
        product(*layer.qkv, from, N, wide);
        if (!model.sizes.rotary) return;
        for (int r = 0; r < N; r++) turn(wide.row(r), turns[r], D);
    }

    // Fills a row of `mixed`; the row's queries are the first D values of `wide`.
    void attend(int r, const Slots& slots, Chosen chosen) {
        int d = D / model.sizes.heads;
        scores.resize(std::max(scores.size(), size_t(slots.capacity)));
        weights.resize(scores.size());
        for (int h = 0; h < D; h += d)
            attend_head(wide.row(r) + h, slots, chosen.slots, chosen.count, D, h, d, scores.data(), weights.data(),
                        mixed.row(r) + h);
    }

    void feed_forward(const Layer& layer, int N) {
        residual(layer.feed_forward_norm, true, N, [&](Matrix& from) {
            product(*layer.inner, from, N, wide);
            for (int r = 0; r < N; r++) activate(wide.row(r), model.sizes.feed_forward, model.sizes.activation);
            product(*layer.outer, wide, N, out);
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

// Returns the result of a function, or `failed` if the memory is exhausted: no exception may leave the library.
template <class Function, class Result>
Result attempt(Result failed, Function function) {
    try {
        return function();
    } catch (const std::exception&) {
        return failed;
    }
}

}  // namespace vtrans

// What decoder.py calls. Arrays are dense; the comments state their sizes. If the memory is exhausted, a returned
// pointer is null, and a returned number is negative.

using namespace vtrans;

extern "C" {

Model* new_model(const Sizes* sizes, const float* const* tensors) {
    return attempt((Model*)nullptr, [&] { return new Model(*sizes, tensors); });
}
void delete_model(Model* model) { delete model; }

Batch* new_batch(const Model* model, int K) {
    return attempt((Batch*)nullptr, [&] { return new Batch(*model, K); });
}
void delete_batch(Batch* batch) { delete batch; }

// `lengths` [count], `tokens` [their sum], `free` [free_count], `positions` [the longest, D].
int batch_admit(Batch* batch, const int64_t* tokens, const int64_t* lengths, int count, const int64_t* free,
                int free_count, const float* positions) {
    return attempt(-1, [&] { return batch->admit(tokens, lengths, count, free, free_count, positions), 0; });
}

void batch_drop(Batch* batch, const int64_t* dropped, int count) {
    for (int i = 0; i < count; i++) batch->places[dropped[i]] = nullptr;
}

int batch_select(Batch* batch, const int64_t* kept, int count) {
    return attempt(-1, [&] {
        std::vector<std::unique_ptr<Sentence>> places;
        for (int i = 0; i < count; i++) places.push_back(std::move(batch->places[kept[i]]));
        batch->places = std::move(places);
        return 0;
    });
}

// The largest position of a next subword.
int batch_position(Batch* batch) {
    int largest = 0;
    for (const auto& place : batch->places)
        if (place) largest = std::max(largest, place->position);
    return largest;
}

// The largest number of slots of a sentence.
int batch_slots(Batch* batch) {
    int largest = 0;
    for (const auto& place : batch->places)
        if (place) largest = std::max(largest, place->self_slots[0].capacity);
    return largest;
}

// `tokens` [B, K], `positions` [position + 1, D].
int batch_step(Batch* batch, const int64_t* tokens, const float* positions) {
    return attempt(-1, [&] { return batch->step(tokens, positions), 0; });
}

// `parents` [B, K]: row k of a sentence continues its row parents[k].
int batch_reorder(Batch* batch, const int64_t* parents) {
    return attempt(-1, [&] {
        for (auto& place : batch->places) {
            if (place) {
                auto history = place->history;
                auto cells = place->cells;
                for (int k = 0; k < batch->K; k++) {
                    place->history[k] = history[parents[k]];
                    if (!cells.empty()) place->cells[k] = cells[parents[k]];
                }
            }
            parents += batch->K;
        }
        return 0;
    });
}

// `rows` [N], here and below; `out` [N, D].
void batch_hidden(Batch* batch, const int64_t* rows, int N, float* out) {
    for (int r = 0; r < N; r++) std::copy_n(batch->output(rows[r]), batch->D, out + size_t(r) * batch->D);
}

// Log-probabilities, `out` [N, V].
int batch_logprobs(Batch* batch, const int64_t* rows, int N, float* out) {
    return attempt(-1, [&] {
        Floats totals = batch->project(rows, N);
        int V = batch->model.sizes.vocabulary;
        for (int r = 0; r < N; r++)
            for (int i = 0; i < V; i++) out[size_t(r) * V + i] = batch->logits.row(r)[i] - totals[r];
        return 0;
    });
}

// Log-probabilities of the `count` best tokens of all rows together. Returns how many tokens u that are: at most
// N * count. `ids` [u], increasing; `out` [N, u].
int batch_best(Batch* batch, const int64_t* rows, int N, int count, int64_t* ids, float* out) {
    return attempt(-1, [&] {
        Floats totals = batch->project(rows, N);
        std::vector<int64_t> all;
        for (int r = 0; r < N; r++)
            for (int64_t token : batch->best(r, count)) all.push_back(token);
        std::sort(all.begin(), all.end());
        int u = int(std::unique(all.begin(), all.end()) - all.begin());
        std::copy_n(all.begin(), u, ids);
        for (int r = 0; r < N; r++)
            for (int j = 0; j < u; j++) out[size_t(r) * u + j] = batch->logits.row(r)[all[j]] - totals[r];
        return u;
    });
}
}
