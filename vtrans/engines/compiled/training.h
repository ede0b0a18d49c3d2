// Attention, dropout with a residual connection, and the loss, with their gradients, for training in float32 or bfloat16.
// Sums are in float32.
//
// Legend: B sentences, H heads, T queries and n keys of a sentence, d head width, V vocabulary.

#pragma once

#include "batch.h"

namespace vtrans {

inline float number(float x) { return x; }
inline float number(uint16_t x) { return single(x); }
inline void store(float x, float* to) { *to = x; }
inline void store(float x, uint16_t* to) { *to = half(x); }

// e^x for x <= 0, but 0 instead of less than 2e-35: products of denormal numbers are slow.
inline float weight_of(float x) { return x < -80.0f ? 0.0f : exponential(x); }

// The left matrix of a small product: neighbours in a column are `down` apart, those in a row `right`.
struct Left {
    const float* values;
    int down, right;
};

template <int R, int C>
void small_tile(Left a, int K, const float* b, int b_width, float* c, int c_width) {
    Vector sums[R][C] = {};
    for (int k = 0; k < K; k++, b += b_width) {
        Vector part[C];
        for (int v = 0; v < C; v++) part[v] = widened(b + v * LANES);
        for (int r = 0; r < R; r++)
            for (int v = 0; v < C; v++) sums[r][v] += a.values[size_t(r) * a.down + size_t(k) * a.right] * part[v];
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < C; v++) *reinterpret_cast<Vector*>(c + size_t(r) * c_width + v * LANES) = sums[r][v];
}

// Writes M rows of the product of `a` and K rows of `b`, all columns of `b`.
void small_product(Left a, int M, int K, const Floats& b, int width, Floats& c) {
    for (int v = 0; v < width; v += VECTORS * LANES)
        with_constant<VECTORS>((width - v) / LANES, [&](auto vectors) {
            for (int m = 0; m < M; m += ROWS)
                with_constant<ROWS>(M - m, [&](auto rows) {
                    Left part = {a.values + size_t(m) * a.down, a.down, a.right};
                    small_tile<rows, vectors>(part, K, &b[v], width, &c[size_t(m) * width + v], width);
                });
        });
}

// The arguments of an attention. The numbers of a position contain all heads.
struct AttentionSizes {
    int32_t sentences, heads, width, queries, keys;  // B, H, d, T, n
    int32_t q_step, k_step;  // numbers from a query to the next, and from a key or value
    int32_t turned, masked;  // whether rotary positions differ between sentences, and the mask between queries
    const float* turns;      // [1 or B, T, H * d], rotary positions; null: none
    const bool* keep;        // [B, 1 or T, n]; null: attention is causal
};

// Computes the attention of one head of a sentence at a time. It owns the memory, in which rows are padded to vectors.
template <class Number>
struct HeadAttention {
    const AttentionSizes& sizes;
    const int T, n, d, wide, most;  // the padded d and n
    const float scale;
    Floats q, k, v, columns, weights, masked;
    Floats grad_out, grad_weights, grad_q, grad_k, grad_v;  // grad_q also holds the output

    explicit HeadAttention(const AttentionSizes& sizes)
        : sizes(sizes), T(sizes.queries), n(sizes.keys), d(sizes.width), wide(padded(d, LANES)), most(padded(n, LANES)),
          scale(1 / std::sqrt(float(d))), q(size_t(T) * wide), k(size_t(n) * wide), v(k), columns(size_t(d) * most),
          weights(size_t(T) * most), masked(most), grad_out(q), grad_weights(weights), grad_q(q), grad_k(k), grad_v(k) {}

    void forward(int b, int h, const Number* from_q, const Number* from_k, const Number* from_v, Number* out) {
        weigh(b, h, from_q, from_k, from_v);
        small_product({weights.data(), most, 1}, T, n, v, wide, grad_q);
        write(grad_q, T, out + place(b, T, sizes.heads * d, h), sizes.heads * d, 1);
    }

    void backward(int b, int h, const Number* from_q, const Number* from_k, const Number* from_v, const Number* from_out,
                  Number* to_q, Number* to_k, Number* to_v) {
        weigh(b, h, from_q, from_k, from_v);
        read(from_out + place(b, T, sizes.heads * d, h), sizes.heads * d, T, grad_out);
        transpose(v);
        small_product({grad_out.data(), wide, 1}, T, d, columns, most, grad_weights);
        small_product({weights.data(), 1, most}, n, T, grad_out, wide, grad_v);
        for (int t = 0; t < T; t++) {
            float *row = &grad_weights[size_t(t) * most], *weight = &weights[size_t(t) * most];
            Vector sums = {};
            for (int i = 0; i < most; i += LANES) sums += widened(row + i) * widened(weight + i);
            float mean = total(sums);
#pragma omp simd
            for (int i = 0; i < most; i++) row[i] = (row[i] - mean) * weight[i];
        }
        small_product({grad_weights.data(), most, 1}, T, n, k, wide, grad_q);
        small_product({grad_weights.data(), 1, most}, n, T, q, wide, grad_k);
        turn_all(b, grad_q, T, -1), turn_all(b, grad_k, n, -1);
        write(grad_q, T, to_q + place(b, T, sizes.q_step, h), sizes.q_step, scale);
        write(grad_k, n, to_k + place(b, n, sizes.k_step, h), sizes.k_step, scale);
        write(grad_v, n, to_v + place(b, n, sizes.k_step, h), sizes.k_step, 1);
    }

  private:
    size_t place(int b, int positions, int step, int h) const { return size_t(b) * positions * step + h * d; }

    // Computes the weights [T, most] of a head.
    void weigh(int b, int h, const Number* from_q, const Number* from_k, const Number* from_v) {
        read(from_q + place(b, T, sizes.q_step, h), sizes.q_step, T, q);
        read(from_k + place(b, n, sizes.k_step, h), sizes.k_step, n, k);
        read(from_v + place(b, n, sizes.k_step, h), sizes.k_step, n, v);
        turn_all(b, q, T, 1), turn_all(b, k, n, 1);
        transpose(k);
        small_product({q.data(), wide, 1}, T, d, columns, most, weights);
        for (int t = 0; t < T; t++) {
            if (t == 0 || !sizes.keep || sizes.masked) mask(b, t);
            float* row = &weights[size_t(t) * most];
            Vector sums = {};
            for (int i = 0; i < most; i += LANES)
                *reinterpret_cast<Vector*>(row + i) = widened(row + i) + widened(&masked[i]);
            float top = largest(row, most);
#pragma omp simd
            for (int i = 0; i < most; i++) row[i] = weight_of((row[i] - top) * scale);
            for (int i = 0; i < most; i += LANES) sums += widened(row + i);
            float share = 1 / total(sums);
#pragma omp simd
            for (int i = 0; i < most; i++) row[i] *= share;
        }
    }

    // Sets `masked` to 0 at the keys that query t attends to, and to minus infinity at the others.
    void mask(int b, int t) {
        const bool* keep = sizes.keep + (sizes.masked ? size_t(b) * T + t : b) * n;
        for (int i = 0; i < most; i++) masked[i] = i < n && (sizes.keep ? keep[i] : i <= t) ? 0 : -INFINITE;
    }

    void read(const Number* from, int step, int count, Floats& to) const {
        for (int t = 0; t < count; t++, from += step)
            for (int i = 0; i < d; i++) to[size_t(t) * wide + i] = number(from[i]);
    }

    void write(const Floats& from, int count, Number* to, int step, float factor) const {
        for (int t = 0; t < count; t++, to += step)
            for (int i = 0; i < d; i++) store(from[size_t(t) * wide + i] * factor, to + i);
    }

    // Rotates all rows by their positions (rotate in model/positions.py); with `sign` -1, backwards.
    void turn_all(int b, Floats& rows, int count, float sign) const {
        const float* pairs = sizes.turns + size_t(sizes.turned ? b : 0) * T * sizes.heads * d;
        for (int t = 0; sizes.turns && t < count; t++, pairs += sizes.heads * d) {
            float* x = &rows[size_t(t) * wide];
            for (int i = 0; i < d; i += 2) {
                float x0 = x[i], x1 = x[i + 1], cosine = pairs[i], sine = sign * pairs[i + 1];
                x[i] = x0 * cosine - x1 * sine, x[i + 1] = x0 * sine + x1 * cosine;
            }
        }
    }

    // Fills `columns` [d, most].
    void transpose(const Floats& from) {
        for (int i = 0; i < d; i++)
            for (int t = 0; t < n; t++) columns[size_t(i) * most + t] = from[size_t(t) * wide + i];
    }
};

// Calls compute(head, b, h) for all heads of all sentences, which the threads divide.
template <class Number, class Compute>
void for_heads(const AttentionSizes& sizes, int threads, Compute compute) {
    int parts = std::max(1, std::min(threads, sizes.sentences));
    in_threads(parts, [&](int t) {
        HeadAttention<Number> head(sizes);
        for (int b = share(sizes.sentences, t, parts); b < share(sizes.sentences, t + 1, parts); b++)
            for (int h = 0; h < sizes.heads; h++) compute(head, b, h);
    });
}

// Whether dropout keeps element i: a hash of 32 bits (lowbias32 by C. Wellons), in which both seeds are mixed.
inline bool kept(uint32_t i, const uint32_t* seeds, uint32_t dropped) {
    uint32_t x = i + seeds[0];
    x = (x ^ x >> 16) * 0x21f0aaad ^ seeds[1];
    x = (x ^ x >> 15) * 0xd35a2d97;
    return (x ^ x >> 15) >> 16 >= dropped;
}

// Writes x + dropout(y), where `dropped` of 65,536 elements are zeroed. Without x, writes the gradient of y.
template <class From, class To>
void add_dropped(const float* x, const From* y, To* out, int64_t begin, int64_t end, const uint32_t* seeds,
                 uint32_t dropped) {
    float scale = 65536.0f / (65536 - dropped);
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float value = kept(uint32_t(i), seeds, dropped) ? number(y[i]) * scale : 0.0f;
        store(x ? x[i] + value : value, out + i);
    }
}

// Replaces the logits of a row by the gradient of its loss (into_gradient in training/optimization/loss.py). Adds the
// target's negative log-likelihood and the log-sum-exp to `sums`.
template <class Number>
void loss_gradient(Number* logits, int V, int64_t target, int pad_id, float smoothing, Floats& row, double* sums) {
    for (int i = 0; i < V; i++) row[i] = number(logits[i]);
    row[pad_id] = -INFINITE;
    float top = largest(row.data(), V), wanted = row[target], sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < V; i++) row[i] = weight_of(row[i] - top), sum += row[i];
    float share = 1 / sum;
#pragma omp simd
    for (int i = 0; i < V; i++) row[i] *= share;
    row[target] += smoothing - 1;
    for (int i = 0; i < V; i++) store(row[i], logits + i);
    double total = double(top) + std::log(double(sum));
    sums[0] += total - wanted, sums[1] += total;
}

}  // namespace vtrans
