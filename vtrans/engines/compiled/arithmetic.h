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

// Keys [D, capacity], transposed so that the scores of neighbouring slots fill a vector, and values [count, D].
struct Slots {
    int count = 0, capacity = 0;
    Floats keys, values;

    // Appends `added` rows that are `width` apart. Each holds its keys [D], followed by its values [D].
    void append(const float* rows, int width, int added, int D) {
        if (count + added > capacity) {
            std::vector<int> all(count);
            std::iota(all.begin(), all.end(), 0);
            keep(all, added, D);
        }
        for (int i = 0; i < D; i++)
            for (int r = 0; r < added; r++) keys[size_t(i) * capacity + count + r] = rows[size_t(r) * width + i];
        for (int r = 0; r < added; r++) {
            const float* row = rows + size_t(r) * width + D;
            values.insert(values.end(), row, row + D);
        }
        count += added;
    }

    void clear() {
        count = 0;
        values.clear();
    }

    // Keeps only these slots. Makes room for `added` more, and for at least twice as many as it keeps.
    void keep(const std::vector<int>& kept, int added, int D) {
        int kept_count = int(kept.size()), room = padded(std::max(2 * kept_count, kept_count + added), LANES);
        Floats kept_keys(size_t(D) * room), kept_values(size_t(kept_count) * D);
        for (int i = 0; i < D; i++)
            for (int s = 0; s < kept_count; s++) kept_keys[size_t(i) * room + s] = keys[size_t(i) * capacity + kept[s]];
        for (int s = 0; s < kept_count; s++)
            std::copy_n(values.data() + size_t(kept[s]) * D, D, kept_values.data() + size_t(s) * D);
        keys = std::move(kept_keys), values = std::move(kept_values), count = kept_count, capacity = room;
    }
};

// The attention of one row. It owns the memory of its scores and weights.
struct Attention {
    Floats scores, weights;  // [heads, slots], and [heads, chosen slots], padded with zeros

    // Writes the output [D] of a row with queries q [D] that attends to `count` slots: the ones in `chosen`, or the
    // first ones if it is null.
    void compute(const float* q, const Slots& slots, const int* chosen, int count, int D, int heads, float* out) {
        int d = D / heads, width = padded(count, LANES);
        scores.resize(std::max(scores.size(), size_t(heads) * slots.capacity));
        weights.resize(std::max(weights.size(), size_t(heads) * width));
        int h = 0;
        for (; h + TOGETHER <= heads; h += TOGETHER) {
            score<TOGETHER>(q, slots, h, d);
            weigh<TOGETHER>(h, chosen, count, d, slots.capacity);
        }
        for (; h < heads; h++) {
            score<1>(q, slots, h, d);
            weigh<1>(h, chosen, count, d, slots.capacity);
        }
        // Neighbouring vectors are summed in one loop, so that additions need not wait for each other.
        int j = 0;
        if (d % LANES == 0) {
            for (; j + TOGETHER * LANES <= D; j += TOGETHER * LANES)
                sum<TOGETHER>(slots, chosen, count, D, d, width, j, out);
            for (; j < D; j += LANES) sum<1>(slots, chosen, count, D, d, width, j, out);
        }
        for (; j < D; j++) {
            float sum = 0;
            for (int t = 0; t < count; t++)
                sum += weights[j / d * width + t] * slots.values[size_t(slot(chosen, t)) * D + j];
            out[j] = sum;
        }
    }

  private:
    static constexpr int TOGETHER = 4;

    static int slot(const int* chosen, int t) { return chosen ? chosen[t] : t; }

    // Computes the scores of n heads from h on.
    template <int n>
    void score(const float* q, const Slots& slots, int h, int d) {
        for (int s = 0; s < slots.count; s += LANES) {
            Vector sums[n] = {};
            for (int j = 0; j < d; j++)
                for (int i = 0; i < n; i++) {
                    int at = (h + i) * d + j;
                    sums[i] += q[at] * widened(&slots.keys[size_t(at) * slots.capacity + s]);
                }
            for (int i = 0; i < n; i++)
                *reinterpret_cast<Vector*>(&scores[size_t(h + i) * slots.capacity + s]) = sums[i];
        }
    }

    // Computes the weights of n heads from h on, from their scores. The inner loops are over heads, so that operations
    // need not wait for each other.
    template <int n>
    void weigh(int h, const int* chosen, int count, int d, int capacity) {
        int width = padded(count, LANES);
        float scale = 1 / std::sqrt(float(d));
        float* rows[n];
        for (int i = 0; i < n; i++) {
            const float* from = &scores[size_t(h + i) * capacity];
            float* row = rows[i] = &weights[size_t(h + i) * width];
            if (chosen) {
                for (int t = 0; t < count; t++) row[t] = from[chosen[t]] * scale;
                std::fill(row + count, row + width, -INFINITE);
            } else {
#pragma omp simd
                for (int t = 0; t < width; t++) row[t] = t < count ? from[t] * scale : -INFINITE;
            }
        }
        Vector sums[n] = {};
        for (int i = 0; i < n; i++) {
            float most = largest(rows[i], width);
#pragma omp simd
            for (int t = 0; t < width; t++) rows[i][t] = exponential(rows[i][t] - most);
            for (int t = 0; t < width; t += LANES) sums[i] += widened(rows[i] + t);
        }
        float totals[n] = {};
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < n; i++) totals[i] += sums[i][l];
        for (int i = 0; i < n; i++) {
            float share = 1 / totals[i];
#pragma omp simd
            for (int t = 0; t < width; t++) rows[i][t] *= share;
        }
    }

    // Computes n vectors of the output from j on.
    template <int n>
    void sum(const Slots& slots, const int* chosen, int count, int D, int d, int width, int j, float* out) const {
        Vector sums[n] = {};
        const float* head[n];
        for (int i = 0; i < n; i++) head[i] = &weights[(j + i * LANES) / d * width];
        for (int t = 0; t < count; t++) {
            const float* values = &slots.values[size_t(slot(chosen, t)) * D + j];
            for (int i = 0; i < n; i++) sums[i] += head[i][t] * widened(values + i * LANES);
        }
        for (int i = 0; i < n; i++) *reinterpret_cast<Vector*>(out + j + i * LANES) = sums[i];
    }
};

}  // namespace vtrans
