// Arithmetic for decoder.cpp, in float32 on the calling thread.
//
// With few rows, a product takes as long as reading its weight, so a weight is stored in the order in which it is read.
//
// Legend: D model width, d head width, N rows, I inputs and O outputs of a product. A slot is a position whose keys and
// values are kept.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace vtrans {

// A tile of a product has ROWS rows and TILE outputs. Its sums fill half of the vector registers.
#if defined(__AVX512F__)
constexpr int LANES = 16, VECTORS = 4;
#elif defined(__AVX__)
constexpr int LANES = 8, VECTORS = 2;
#else
constexpr int LANES = 4, VECTORS = 4;
#endif
constexpr int ROWS = 4, TILE = LANES * VECTORS;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

constexpr float INFINITE = std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;

int padded(int n) { return (n + TILE - 1) / TILE * TILE; }

// Rows of values. A product writes whole tiles, so a row is padded.
struct Matrix {
    int width;
    Floats values;

    explicit Matrix(int columns) : width(padded(columns)) {}
    float* row(int r) { return values.data() + size_t(r) * width; }
    void reserve(int rows) { values.resize(std::max(values.size(), size_t(rows) * width)); }
};

// A linear layer. Its weight [O, I] is stored as [padded(O) / TILE, I, TILE].
struct Linear {
    int inputs, outputs;
    Floats weight, bias;

    Linear(const float* weight_OI, const float* bias_O, int inputs, int outputs)
        : inputs(inputs), outputs(outputs), weight(size_t(padded(outputs)) * inputs), bias(padded(outputs)) {
        for (int o = 0; o < outputs; o++)
            for (int i = 0; i < inputs; i++)
                weight[(size_t(o / TILE) * inputs + i) * TILE + o % TILE] = weight_OI[size_t(o) * inputs + i];
        if (bias_O) std::copy_n(bias_O, outputs, bias.begin());
    }
};

template <int R>
void tile(const float* weight, const float* bias, int inputs, const float* x, int x_width, float* y, int y_width) {
    Vector sums[R][VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = reinterpret_cast<const Vector*>(bias)[v];
    for (int i = 0; i < inputs; i++, weight += TILE) {
        Vector part[VECTORS];
        for (int v = 0; v < VECTORS; v++) part[v] = reinterpret_cast<const Vector*>(weight)[v];
        for (int r = 0; r < R; r++)
            for (int v = 0; v < VECTORS; v++) sums[r][v] += x[size_t(r) * x_width + i] * part[v];
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) reinterpret_cast<Vector*>(y + size_t(r) * y_width)[v] = sums[r][v];
}

// y = x W^T + b for N rows. The weight is read from memory once, and from the cache for each ROWS rows.
void product(const Linear& linear, Matrix& x, int N, Matrix& y) {
    for (int o = 0; o < linear.outputs; o += TILE)
        for (int r = 0; r < N; r += ROWS) {
            auto compute = [&](auto tile) {
                tile(&linear.weight[size_t(o) * linear.inputs], &linear.bias[o], linear.inputs, x.row(r), x.width,
                     y.row(r) + o, y.width);
            };
            switch (N - r) {
                case 1: compute(tile<1>); break;
                case 2: compute(tile<2>); break;
                case 3: compute(tile<3>); break;
                default: compute(tile<ROWS>);
            }
        }
}

// e^x for x <= 0, at least 1e-38: Cephes' expf, with a relative error of 1e-7. Loops over it use vectors.
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

float largest(const float* x, int n) {
    float most = -INFINITE;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
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
        // An overflow must not become a scale of 0, with which the output would be finite and wrong.
        float scale = squares < INFINITE ? 1 / std::sqrt(squares / D + epsilon) : NAN;
#pragma omp simd
        for (int i = 0; i < D; i++) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
    }
};

// The order of ACTIVATIONS in decoder.py.
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

// Turns the queries and the keys of a row [2, D] by the cosines and sines of its position, as `turned` of model/positions.py.
void turn(float* x, const float* pairs, int D) {
    for (float* part : {x, x + D})
        for (int i = 0; i < D; i += 2) {
            float a = part[i], b = part[i + 1], cosine = pairs[i], sine = pairs[i + 1];
            part[i] = a * cosine - b * sine, part[i + 1] = a * sine + b * cosine;
        }
}

// Keys [D, capacity], so that the scores of neighbouring slots fill a vector, and values [count, D].
struct Slots {
    int count = 0, capacity = 0;
    Floats keys, values;

    void append(const float* key, const float* value, int D) {
        if (count == capacity) {
            std::vector<int> all(count);
            std::iota(all.begin(), all.end(), 0);
            keep(all, D);
        }
        for (int i = 0; i < D; i++) keys[size_t(i) * capacity + count] = key[i];
        values.insert(values.end(), value, value + D);
        count++;
    }

    void clear() {
        count = 0;
        values.clear();
    }

    // Keeps only these slots, and has room for at least as many more.
    void keep(const std::vector<int>& kept, int D) {
        int kept_count = int(kept.size()), room = (2 * kept_count + LANES) / LANES * LANES;
        Floats kept_keys(size_t(D) * room), kept_values(size_t(kept_count) * D);
        for (int i = 0; i < D; i++)
            for (int s = 0; s < kept_count; s++) kept_keys[size_t(i) * room + s] = keys[size_t(i) * capacity + kept[s]];
        for (int s = 0; s < kept_count; s++)
            std::copy_n(values.data() + size_t(kept[s]) * D, D, kept_values.data() + size_t(s) * D);
        keys = std::move(kept_keys), values = std::move(kept_values), count = kept_count, capacity = room;
    }
};

// The attention of one head, at h to h + d in keys and values, to some slots. `scores` has room for all slots.
void attend_head(const float* q, const Slots& slots, const int* chosen, int count, int D, int h, int d, float* scores,
                 float* weights, float* out) {
    for (int s = 0; s < slots.count; s += LANES) {
        Vector sum{};
        for (int j = 0; j < d; j++)
            sum += q[j] * *reinterpret_cast<const Vector*>(&slots.keys[size_t(h + j) * slots.capacity + s]);
        *reinterpret_cast<Vector*>(scores + s) = sum;
    }
    float scale = 1 / std::sqrt(float(d)), total = 0;
    for (int t = 0; t < count; t++) weights[t] = scores[chosen[t]] * scale;
    float most = largest(weights, count);
#pragma omp simd reduction(+ : total)
    for (int t = 0; t < count; t++) total += weights[t] = exponential(weights[t] - most);
    if (!count) total = 1;  // an empty source
    const float* values = slots.values.data() + h;
    int j = 0;
    for (; j + LANES <= d; j += LANES) {
        Vector sum{};
        for (int t = 0; t < count; t++)
            sum += weights[t] * *reinterpret_cast<const Vector*>(values + size_t(chosen[t]) * D + j);
        *reinterpret_cast<Vector*>(out + j) = sum / total;
    }
    for (; j < d; j++) {
        float sum = 0;
        for (int t = 0; t < count; t++) sum += weights[t] * values[size_t(chosen[t]) * D + j];
        out[j] = sum / total;
    }
}

}  // namespace vtrans
