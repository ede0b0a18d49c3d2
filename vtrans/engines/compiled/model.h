// The weights of a model for decoder.cpp.
//
// Legend: D model width, F feed-forward width, V vocabulary.

#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "arithmetic.h"

namespace vtrans {

using Shared = std::shared_ptr<const Linear>;

// Subwords in increasing order of id, and the projection to them. Both are padded; padding is never predicted.
struct Listed {
    std::vector<int64_t> ids;
    Linear projection;

    int width() const { return int(ids.size()); }
};

// A layer. Encoder layers and layers of decoder-only models have no cross-attention. In an SSRU layer, `zf` replaces
// `qkv` and `out`.
struct Layer {
    Shared zf, qkv, out, query, kv, cross_out, inner, outer;
    Norm self_norm, cross_norm, feed_forward_norm;
};

// `Sizes` of weights.py.
struct Sizes {
    int32_t width, feed_forward, heads, vocabulary, pad_id, encoder_layers, decoder_layers, activation,
        precision;
    int32_t pre, cross_skip, decoder_only, prefix, ssru, rotary;  // booleans
    float epsilon, embedding_scale;
};

// The weights, from tensors in the order of weights.py. Weights of products are copied, a shared one once; the others
// are referenced. All sentences allow the `common` subwords; without a shortlist, these are the whole vocabulary.
struct Model {
    Sizes sizes;
    const float *src_embedding, *tgt_embedding;
    std::vector<Layer> encoder, decoder;
    Norm encoder_norm, decoder_norm;
    const float *rows, *bias;  // of the projection
    std::unique_ptr<const Listed> common;

    // The whole vocabulary. With a shortlist, its projection is made on first use.
    const Listed& whole() const {
        if (!shortlist) return *common;
        std::call_once(needed, [&] { made = listed_here(all_ids()); });
        return *made;
    }

    Model(const Sizes& sizes, const float* const* tensors, const int64_t* listed, int count)
        : sizes(sizes), shortlist(count > 0), next(tensors) {
        src_embedding = *next++, tgt_embedding = *next++;
        for (int i = 0; i < sizes.encoder_layers; i++) encoder.push_back(layer(false, false));
        encoder_norm = norm();
        for (int i = 0; i < sizes.decoder_layers; i++) decoder.push_back(layer(sizes.ssru, !sizes.decoder_only));
        decoder_norm = norm();
        rows = *next++, bias = *next++;
        common = listed_here(count ? std::vector<int64_t>(listed, listed + count) : all_ids());
    }

    // Returns null if there are none.
    std::unique_ptr<const Listed> listed_here(std::vector<int64_t> ids) const {
        if (ids.empty()) return nullptr;
        int D = sizes.width, count = int(ids.size());
        Floats chosen, chosen_bias;
        for (int64_t id : ids) {
            if (count < sizes.vocabulary) chosen.insert(chosen.end(), rows + id * D, rows + (id + 1) * D);
            chosen_bias.push_back(id == sizes.pad_id ? -INFINITE : bias ? bias[id] : 0);
        }
        const float* weight = chosen.empty() ? rows : chosen.data();
        Linear projection(weight, chosen_bias.data(), D, count, Precision(sizes.precision), -INFINITE);
        ids.resize(padded(count), sizes.pad_id);
        return std::make_unique<Listed>(Listed{std::move(ids), std::move(projection)});
    }

  private:
    const bool shortlist;
    mutable std::once_flag needed;
    mutable std::unique_ptr<const Listed> made;  // the whole vocabulary
    const float* const* next;
    std::map<const float*, Shared> linears;  // by their weights

    std::vector<int64_t> all_ids() const {
        std::vector<int64_t> ids(sizes.vocabulary);
        std::iota(ids.begin(), ids.end(), 0);
        return ids;
    }

    Shared linear(int inputs, int outputs) {
        Shared& shared = linears[next[0]];
        if (!shared)
            shared = std::make_shared<Linear>(next[0], next[1], inputs, outputs, Precision(sizes.precision));
        next += 2;
        return shared;
    }

    Norm norm() {
        next += 2;
        return {next[-2], next[-1]};
    }

    Layer layer(bool ssru, bool cross) {
        int D = sizes.width, F = sizes.feed_forward;
        Layer made{};
        if (ssru) made.zf = linear(D, 2 * D);
        if (!ssru) made.qkv = linear(D, 3 * D), made.out = linear(D, D);
        made.self_norm = norm();
        if (cross) {
            made.query = linear(D, D), made.kv = linear(D, 2 * D), made.cross_out = linear(D, D);
            made.cross_norm = norm();
        }
        made.inner = linear(D, F), made.outer = linear(F, D), made.feed_forward_norm = norm();
        return made;
    }
};

}  // namespace vtrans
