// Arithmetic for decoder.cpp between the matrix products, in float32 on the calling thread.
//
// Legend: D model width, d head width. A slot is a position whose keys and values are stored.

#pragma once

#include <numeric>

#include "products.h"

namespace vtrans {

// e^x for x <= 0, at least 1e-38: Cephes' expf, with a relative error of 1e-7. Loops over it are vectorised.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // x / log(2), rounded to an integer
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (int32_t(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

template <int n>
struct Lanes {
    typedef float Numbers __attribute__((vector_size(4 * n)));
};

// The sum of the numbers of a vector, by halves.
template <int n = LANES>
float total(typename Lanes<n>::Numbers x) {
    typename Lanes<n / 2>::Numbers low, high;
    std::memcpy(&low, &x, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof low, sizeof high);
    if constexpr (n > 4) return total<n / 2>(low + high);
    return low[0] + high[0] + (low[1] + high[1]);
}

// clang does not vectorise a loop over all numbers, which must leave out those that are NaN.
float largest(const float* x, int n) {
    Vector mosts = Vector{} - INFINITE;
    int i = 0;
    for (; i + LANES <= n; i += LANES) mosts = widened(x + i) > mosts ? widened(x + i) : mosts;
    float most = -INFINITE;
#pragma omp simd reduction(max : most)
    for (int l = 0; l < LANES; l++) most = mosts[l] > most ? mosts[l] : most;
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

// The weight is null if there is no norm.
struct Norm {
    const float *weight, *bias;

    void apply(const float* x, int D, float epsilon, float* y) const {
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < D; i++) sum += x[i];
        float mean = sum / D;
#pragma omp simd reduction(+ : squares)
        for (int i = 0; i < D; i++) squares += (x[i] - mean) * (x[i] - mean);
        // An overflow must not become a scale of 0, which would make the output finite and wrong.
        float scale = squares < INFINITE ? 1 / std::sqrt(squares / D + epsilon) : NAN;
#pragma omp simd
        for (int i = 0; i < D; i++) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
    }
};

// In the order of ACTIVATIONS in weights.py.
enum Activation { RELU, GELU, SWISH };

void activate(float* x, int n, int activation) {
    if (activation == RELU) {
        for (int i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
    } else if (activation == GELU) {
        for (int i = 0; i < n; i++) x[i] *= 0.5f * (1 + std::erf(x[i] * 0.70710678f));
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++) {
            float power = exponential(-std::fabs(x[i]));
            x[i] *= (x[i] < 0 ? power : 1.0f) / (1 + power);
        }
    }
}

// One position of an SSRU: replaces the state c by f * c + (1 - f) * z, where f is the sigmoid of `gate`, and writes
// relu(c) to `out`.
void recur(const float* z, const float* gate, int D, float* c, float* out) {
#pragma omp simd
    for (int i = 0; i < D; i++) {
        float power = exponential(-std::fabs(gate[i]));
        float f = (gate[i] < 0 ? power : 1.0f) / (1 + power);
        c[i] = z[i] + f * (c[i] - z[i]);
        out[i] = c[i] < 0 ? 0 : c[i];
    }
}

// Rotates the queries and keys of a row [2, D] by the cosines and sines of its position, like `rotate` in
// model/positions.py.
void turn(float* x, const float* pairs, int D) {
    for (float* part : {x, x + D})
        for (int i = 0; i < D; i += 2) {
            float a = part[i], b = part[i + 1], cosine = pairs[i], sine = pairs[i + 1];
            part[i] = a * cosine - b * sine, part[i + 1] = a * sine + b * cosine;
        }
}

// The keys and values of a layer: a row for each slot, which holds its keys [D], followed by its values [D].
struct Slots {
    int count = 0, capacity = 0;
    Floats rows;

    Span span(int D) { return {rows.data(), 2 * D}; }

    // Appends `added` rows that are `width` apart.
    void append(const float* from, int width, int added, int D) {
        if (count + added > capacity) {
            std::vector<int> all(count);
            std::iota(all.begin(), all.end(), 0);
            keep(all, added, D);
        }
        for (int r = 0; r < added; r++) std::copy_n(from + size_t(r) * width, 2 * D, span(D).row(count++));
    }

    // Keeps only these slots, which increase. Makes room for `added` more, and for at least twice as many as it keeps.
    void keep(const std::vector<int>& kept, int added, int D) {
        count = int(kept.size()), capacity = padded(std::max(2 * count, count + added), LANES);
        for (int s = 0; s < count; s++) std::copy_n(span(D).row(kept[s]), 2 * D, span(D).row(s));
        rows.resize(size_t(capacity) * 2 * D);
    }
};

// The attention of one row. It owns the memory of its weights.
struct Attention {
    Floats weights;  // [heads, slots], padded with zeros

    // Writes the output [D] of a row with queries q [D] that attends to `count` slots: the ones in `chosen`, or the
    // first ones if it is null.
    void compute(const float* q, Span slots, const int* chosen, int count, int D, int heads, float* out) {
        int d = D / heads, width = padded(count, LANES);
        weights.resize(std::max(weights.size(), size_t(heads) * width));
        int h = 0;
        for (; h + TOGETHER <= heads; h += TOGETHER) weigh<TOGETHER>(q, slots, h, chosen, count, d);
        for (; h < heads; h++) weigh<1>(q, slots, h, chosen, count, d);
        // Neighbouring vectors are summed in one loop, so that additions need not wait for each other.
        int j = 0;
        if (d % LANES == 0) {
            for (; j + TOGETHER * LANES <= D; j += TOGETHER * LANES)
                sum<TOGETHER>(slots, chosen, count, D, d, width, j, out);
            for (; j < D; j += LANES) sum<1>(slots, chosen, count, D, d, width, j, out);
        }
        for (; j < D; j++) {
            float sum = 0;
            for (int t = 0; t < count; t++) sum += weights[j / d * width + t] * row(slots, chosen, t)[D + j];
            out[j] = sum;
        }
    }

  private:
    static constexpr int TOGETHER = 4;

    static const float* row(Span slots, const int* chosen, int t) { return slots.row(chosen ? chosen[t] : t); }

    // Computes the weights of n heads from h on. The inner loops are over heads, so that operations need not wait for
    // each other.
    template <int n>
    void weigh(const float* q, Span slots, int h, const int* chosen, int count, int d) {
        int width = padded(count, LANES), vectors = d - d % LANES;
        float scale = 1 / std::sqrt(float(d));
        float* rows[n];
        for (int i = 0; i < n; i++) rows[i] = &weights[size_t(h + i) * width];
        for (int t = 0; t < count; t++) {
            const float* keys = row(slots, chosen, t);
            Vector products[n] = {};
            for (int j = 0; j < vectors; j += LANES)
                for (int i = 0; i < n; i++) {
                    int at = (h + i) * d + j;
                    products[i] += widened(q + at) * widened(keys + at);
                }
            for (int i = 0; i < n; i++) {
                float score = total(products[i]);
                for (int at = (h + i) * d + vectors; at < (h + i + 1) * d; at++) score += q[at] * keys[at];
                rows[i][t] = score * scale;
            }
        }
        Vector sums[n] = {};
        for (int i = 0; i < n; i++) {
            std::fill(rows[i] + count, rows[i] + width, -INFINITE);
            float most = largest(rows[i], width);
#pragma omp simd
            for (int t = 0; t < width; t++) rows[i][t] = exponential(rows[i][t] - most);
            for (int t = 0; t < width; t += LANES) sums[i] += widened(rows[i] + t);
        }
        for (int i = 0; i < n; i++) {
            float share = 1 / total(sums[i]);
#pragma omp simd
            for (int t = 0; t < width; t++) rows[i][t] *= share;
        }
    }

    // Computes n vectors of the output from j on.
    template <int n>
    void sum(Span slots, const int* chosen, int count, int D, int d, int width, int j, float* out) const {
        Vector sums[n] = {};
        const float* head[n];
        for (int i = 0; i < n; i++) head[i] = &weights[(j + i * LANES) / d * width];
        for (int t = 0; t < count; t++) {
            const float* values = row(slots, chosen, t) + D + j;
            for (int i = 0; i < n; i++) sums[i] += head[i][t] * widened(values + i * LANES);
        }
        for (int i = 0; i < n; i++) *reinterpret_cast<Vector*>(out + j + i * LANES) = sums[i];
    }
};

}  // namespace vtrans
