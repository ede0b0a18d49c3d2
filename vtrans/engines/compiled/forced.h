// The forced pass: the log-probabilities of existing targets, and the attention that aligns them.
//
// Legend: S source length, T target length.

#pragma once

#include "batch.h"

namespace vtrans {

// `Pairs` of forced.py. Sources and targets are concatenated, and so are the decoder's inputs: BOS, followed by a
// target without its last subword. The aligning attention is the mean over some layers and their first heads.
struct Pairs {
    const int64_t *sources, *source_lengths, *targets, *fed, *target_lengths;
    int32_t count, first_layer, end_layer, heads;
};

// Rows computed together: enough to reuse each weight often, and few enough to stay in the cache.
constexpr int FORCED_ROWS = 256;

struct ForcedPass {
    const Model& model;
    const Pairs& pairs;
    const float *src_positions, *tgt_positions;
    float* logprobs;   // [T] of each pair
    float* attention;  // [T, S] of each pair, or null
    std::vector<int64_t> sources{0}, targets{0}, weights{0};  // where each pair begins

    ForcedPass(const Model& model, const Pairs& pairs, const float* src_positions, const float* tgt_positions,
               float* logprobs, float* attention)
        : model(model), pairs(pairs), src_positions(src_positions), tgt_positions(tgt_positions), logprobs(logprobs),
          attention(attention) {
        for (int j = 0; j < pairs.count; j++) {
            sources.push_back(sources.back() + pairs.source_lengths[j]);
            targets.push_back(targets.back() + pairs.target_lengths[j]);
            weights.push_back(weights.back() + pairs.source_lengths[j] * pairs.target_lengths[j]);
        }
    }

    // Computes all pairs, divided among threads.
    void run(int most_threads) {
        int T = threads_for(targets.back(), pairs.count, std::max(1, most_threads));
        in_threads(T, [&](int t) {
            Rows rows(model, model.whole(), 1);
            int begin = share(pairs.count, t, T), last = share(pairs.count, t + 1, T);
            for (int end = begin; begin < last; begin = end) {
                for (int64_t size = 0; end < last && (end == begin || size + larger(end) <= FORCED_ROWS); end++)
                    size += larger(end);
                together(rows, begin, end);
            }
        });
    }

  private:
    int64_t larger(int j) const { return std::max(pairs.source_lengths[j], pairs.target_lengths[j]); }

    // Computes the pairs from `begin` to `end`.
    void together(Rows& rows, int begin, int end) {
        std::vector<Sentence> sentences;
        std::vector<Sentence*> pointers;
        Recorder recorder{pairs.first_layer, pairs.end_layer, pairs.heads, {}};
        for (int j = begin; j < end; j++) sentences.emplace_back(model, 1);
        for (int j = begin; j < end; j++) {
            pointers.push_back(&sentences[j - begin]);
            int S = int(pairs.source_lengths[j]);
            for (int t = 0; attention && t < pairs.target_lengths[j]; t++)
                recorder.rows.push_back({attention + weights[j] + int64_t(t) * S, S});
        }
        int count = end - begin, N = int(targets[end] - targets[begin]);
        rows.recorder = nullptr;
        rows.read(pointers.data(), pairs.sources + sources[begin], pairs.source_lengths + begin, count, src_positions);
        rows.recorder = attention ? &recorder : nullptr;
        rows.feed(pointers.data(), pairs.fed + targets[begin], pairs.target_lengths + begin, count, tgt_positions);
        for (int first = 0; first < N; first += PROJECTED_ROWS) {
            std::vector<Output> outputs;
            for (int r = first; r < std::min(N, first + PROJECTED_ROWS); r++) outputs.push_back({rows.x.row(r), nullptr});
            Floats totals = rows.project(outputs.data(), int(outputs.size()));
            for (size_t r = 0; r < outputs.size(); r++) {
                int64_t at = targets[begin] + first + r;
                logprobs[at] = rows.logits.row(r)[pairs.targets[at]] - totals[r];
            }
        }
    }
};

}  // namespace vtrans
