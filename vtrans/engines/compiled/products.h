// Matrix products for decoder.cpp, in float32, bfloat16 or int8 on the calling thread.
//
// With few rows, a product takes as long as reading its weight, so a weight is stored in the order in which it is read.
//
// Legend: N rows, I inputs and O outputs of a product, P neighbouring inputs that an instruction multiplies and adds.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace vtrans {

// A tile of a product has at most ROWS rows, and TILE outputs. Its sums fill three quarters of the vector registers.
#if defined(__AVX512F__)
constexpr int LANES = 16, VECTORS = 4, ROWS = 6;
#elif defined(__AVX__)
constexpr int LANES = 8, VECTORS = 2, ROWS = 6;
#else
constexpr int LANES = 4, VECTORS = 4, ROWS = 4;
#endif
constexpr int TILE = LANES * VECTORS;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Memory aligned to a cache line, so that no vector load crosses two. Makes greedy search 7% faster.
template <class Number>
struct Aligned : std::allocator<Number> {
    template <class Other>
    struct rebind {
        using other = Aligned<Other>;
    };
    Number* allocate(size_t n) {
        return static_cast<Number*>(::operator new(n * sizeof(Number), std::align_val_t(64)));
    }
    void deallocate(Number* numbers, size_t) { ::operator delete(numbers, std::align_val_t(64)); }
};

template <class Number>
using Numbers = std::vector<Number, Aligned<Number>>;
using Floats = Numbers<float>;

// Instructions that only some AVX-512 processors have. GCC 9 does not support those for bfloat16.
#if defined(__AVX512F__)
#if defined(__clang__) || __GNUC__ >= 11
#define COMPILES_BFLOAT16
#endif
bool supports_vnni() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
}
bool supports_bfloat16() {
#if defined(COMPILES_BFLOAT16)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
#else
    return false;
#endif
}
const bool HAS_VNNI = supports_vnni(), HAS_BFLOAT16 = supports_bfloat16();
#else
constexpr bool HAS_VNNI = false, HAS_BFLOAT16 = false;
#endif

// P for bfloat16 and int8.
const int HALVES_TOGETHER = HAS_BFLOAT16 ? 2 : 1;
#if defined(__AVX2__)
const int BYTES_TOGETHER = HAS_VNNI ? 4 : 2;
#else
const int BYTES_TOGETHER = 1;
#endif

// Returns where part t of T begins.
int share(int count, int t, int T) { return int(int64_t(count) * t / T); }

int padded(int n, int multiple = TILE) { return (n + multiple - 1) / multiple * multiple; }

// Calls compute(min(R, count)) with a compile-time constant.
template <int R, class Compute>
void with_constant(int count, Compute compute) {
    if constexpr (R > 1)
        if (count < R) return with_constant<R - 1>(count, compute);
    compute(std::integral_constant<int, R>());
}

// Rows of values that are `width` apart.
struct Span {
    float* values;
    int width;

    float* row(int r) const { return values + size_t(r) * width; }
};

// Memory for rows of values. Rows are padded, because a product writes whole tiles.
struct Matrix {
    int width;
    Floats values;

    explicit Matrix(int columns) : width(padded(columns)) {}
    float* row(int r) { return values.data() + size_t(r) * width; }
    Span from(int r, int column = 0) { return {row(r) + column, width}; }
    operator Span() { return from(0); }
    void reserve(int rows) { values.resize(std::max(values.size(), size_t(rows) * width)); }
    void reshape(int rows, int columns) { width = padded(columns), reserve(rows); }
};

// In the order of PRECISIONS in weights.py.
enum Precision { FLOAT32, BFLOAT16, INT8 };

constexpr int STEPS = 127;  // int8 steps on each side of zero

// x rounded to bfloat16, ties to even.
inline uint16_t half(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return uint16_t(x == x ? rounded : 0x7fc0);
}

// The value of a number in bfloat16.
inline float single(uint16_t x) {
    uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The int8 step size for n numbers, NaN if one is not finite. Compares the bits of absolute values as integers, which
// have the same order, with infinity and NaN above all others.
inline float step_of(const float* x, int n) {
    int32_t most = 0;
    for (int i = 0; i < n; i++) {
        int32_t bits;
        std::memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float size;
    std::memcpy(&size, &most, sizeof size);
    return std::max(size, 1e-30f * STEPS) / STEPS + size * 0;
}

// x rounded to an integer, ties to even, for |x| < 2^22.
inline float whole(float x) { return (x + 12582912.0f) - 12582912.0f; }

// A linear layer. Its weight [O, I] is stored as [padded(O) / TILE, padded(I, P) / P, TILE, P]. In bfloat16 and int8,
// both operands are rounded, and their products are summed exactly or in float32.
struct Linear {
    int inputs, outputs;
    Precision precision;
    Floats bias;
    Floats floats;             // the weight in FLOAT32
    Numbers<uint16_t> halves;  // in BFLOAT16
    Numbers<int8_t> bytes;     // in INT8
    Floats steps;              // INT8: per output
    Numbers<int32_t> shifts;   // INT8: -128 times the sum of an output's weights, because int8_tile adds 128 to x

    // `padding` is the value of padded outputs.
    Linear(const float* weight_OI, const float* bias_O, int inputs, int outputs, Precision precision, float padding = 0)
        : inputs(inputs), outputs(outputs), precision(precision), bias(outputs) {
        if (bias_O) std::copy_n(bias_O, outputs, bias.begin());
        bias.resize(padded(outputs), padding);
        auto at = [&](int o, int i) { return weight_OI[size_t(o) * inputs + i]; };
        if (precision == FLOAT32) pack(floats, 1, at);
        if (precision == BFLOAT16) pack(halves, HALVES_TOGETHER, [&](int o, int i) { return half(at(o, i)); });
        if (precision != INT8) return;
        steps.resize(padded(outputs)), shifts.resize(padded(outputs));
        for (int o = 0; o < outputs; o++) steps[o] = step_of(weight_OI + size_t(o) * inputs, inputs);
        auto rounded = [&](int o, int i) { return int8_t(whole(at(o, i) / steps[o])); };
        for (int o = 0; o < outputs; o++)
            for (int i = 0; i < inputs; i++) shifts[o] -= 128 * rounded(o, i);
        pack(bytes, BYTES_TOGETHER, rounded);
    }

  private:
    template <class Number, class Value>
    void pack(Numbers<Number>& weight, int together, Value value) {
        int width = padded(inputs, together);
        weight.resize(size_t(padded(outputs)) * width);
        std::vector<Number> row(width);
        with_constant<4>(together, [&](auto P) {
            for (int o = 0; o < outputs; o++) {
                for (int i = 0; i < inputs; i++) row[i] = value(o, i);
                Number* at = &weight[size_t(o / TILE) * width * TILE + o % TILE * P];
                for (int i = 0; i < width; i += P) std::copy_n(&row[i], P(), at + size_t(i) * TILE);
            }
        });
    }
};

// Calls compute(o, r, R) for all tiles, with R rows from r on, which are divided evenly. The weight is read from memory
// once, and from the cache for each tile.
template <class Compute>
void for_tiles(const Linear& linear, int N, Compute compute) {
    int tiles = (N + ROWS - 1) / ROWS;
    for (int o = 0; o < linear.outputs; o += TILE)
        for (int t = 0; t < tiles; t++) {
            int r = share(N, t, tiles);
            with_constant<ROWS>(share(N, t + 1, tiles) - r, [&](auto R) { compute(o, r, R); });
        }
}

inline Vector widened(const float* x) { return *reinterpret_cast<const Vector*>(x); }
inline Vector widened(const uint16_t* x) {
    Words bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(x), Words) << 16;
    Vector values;
    std::memcpy(&values, &bits, sizeof values);
    return values;
}

// Computes a tile in float32 from a weight in float32 or bfloat16.
template <int R, class Number>
void tile(const Number* weight, const float* bias, int inputs, const float* x, int x_width, float* y, int y_width) {
    Vector sums[R][VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = reinterpret_cast<const Vector*>(bias)[v];
    for (int i = 0; i < inputs; i++, weight += TILE) {
        Vector part[VECTORS];
        for (int v = 0; v < VECTORS; v++) part[v] = widened(weight + v * LANES);
        for (int r = 0; r < R; r++)
            for (int v = 0; v < VECTORS; v++) sums[r][v] += x[size_t(r) * x_width + i] * part[v];
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) reinterpret_cast<Vector*>(y + size_t(r) * y_width)[v] = sums[r][v];
}

// Rows rounded for a product, each of padded(I, P) numbers.
template <class Number>
struct Rounded {
    int width;
    std::vector<Number> values;
    Floats steps;  // of int8

    Number* row(int r) { return values.data() + size_t(r) * width; }

    // Stores round(value).
    template <class Round>
    void fill(Span x, int N, int inputs, int P, Round round) {
        reserve(N, inputs, P);
        for (int r = 0; r < N; r++) copy(x.row(r), inputs, row(r), round);
    }

    // Stores round(value / step), rounded to an integer first, with a step per row.
    template <class Round>
    void fill_whole(Span x, int N, int inputs, int P, Round round) {
        reserve(N, inputs, P);
        steps.resize(std::max(steps.size(), size_t(N)));
        for (int r = 0; r < N; r++) {
            steps[r] = step_of(x.row(r), inputs);
            float per_step = 1 / steps[r];
            copy(x.row(r), inputs, row(r), [=](float value) { return round(whole(value * per_step)); });
        }
    }

  private:
    void reserve(int N, int inputs, int P) {
        width = padded(inputs, P);
        values.resize(std::max(values.size(), size_t(N) * width));
    }

    template <class Round>
    void copy(const float* __restrict from, int inputs, Number* __restrict to, Round round) {
#pragma omp simd
        for (int i = 0; i < inputs; i++) to[i] = round(from[i]);
        std::fill(to + inputs, to + width, Number(0));
    }
};

#if defined(__AVX512F__)
// P neighbouring inputs of a row, which take four bytes, repeated.
inline __m512i repeated(const void* x) {
    int32_t bytes;
    std::memcpy(&bytes, x, sizeof bytes);
    return _mm512_set1_epi32(bytes);
}

// The next two functions have the same loops, but are compiled for different instruction sets, which a template cannot
// choose.
#if defined(COMPILES_BFLOAT16)
// A tile in bfloat16: P = 2.
template <int R>
__attribute__((target("avx512bf16,avx512bw"))) void bfloat16_tile(const uint16_t* weight, const float* bias, int width,
                                                                 const uint16_t* x, float* y, int y_width) {
    __m512 sums[R][VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = _mm512_loadu_ps(bias + v * LANES);
    for (int i = 0; i < width; i += 2, weight += 2 * TILE) {
        __m512bh part[VECTORS];
        for (int v = 0; v < VECTORS; v++) part[v] = (__m512bh)_mm512_loadu_si512(weight + v * 2 * LANES);
        for (int r = 0; r < R; r++) {
            auto pair = (__m512bh)repeated(x + size_t(r) * width + i);
            for (int v = 0; v < VECTORS; v++) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], part[v], pair);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) _mm512_storeu_ps(y + size_t(r) * y_width + v * LANES, sums[r][v]);
}
#endif

// A tile in int8, with 128 added to x: P = 4.
template <int R>
__attribute__((target("avx512vnni,avx512bw"))) void int8_tile(const int8_t* weight, const int32_t* shifts, int width,
                                                             const uint8_t* x, const float* steps, const float* x_steps,
                                                             const float* bias, float* y, int y_width) {
    Words sums[R][VECTORS];  // GCC 12 keeps an array of __m512i in memory
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = (Words)_mm512_loadu_si512(shifts + v * LANES);
    for (int i = 0; i < width; i += 4, weight += 4 * TILE) {
        __m512i part[VECTORS];
        for (int v = 0; v < VECTORS; v++) part[v] = _mm512_loadu_si512(weight + v * 4 * LANES);
        for (int r = 0; r < R; r++) {
            __m512i four = repeated(x + size_t(r) * width + i);
            for (int v = 0; v < VECTORS; v++)
                sums[r][v] = (Words)_mm512_dpbusd_epi32((__m512i)sums[r][v], four, part[v]);
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) {
            __m512 exact = _mm512_cvtepi32_ps((__m512i)sums[r][v]);
            __m512 scaled = _mm512_mul_ps(exact, _mm512_loadu_ps(steps + v * LANES));
            __m512 shifted = _mm512_fmadd_ps(scaled, _mm512_set1_ps(x_steps[r]), _mm512_loadu_ps(bias + v * LANES));
            _mm512_storeu_ps(y + size_t(r) * y_width + v * LANES, shifted);
        }
}
#endif

// A tile in int8, for any processor: P = 2 with AVX2, else 1. Its sums are in 32 bits, so they are exact.
template <int R>
void wide_int8_tile(const int8_t* weight, int width, const int16_t* x, const float* steps, const float* x_steps,
                    const float* bias, float* y, int y_width) {
    constexpr int PART = 16;  // outputs at a time
    for (int o = 0; o < TILE; o += PART) {
        int32_t sums[R][PART] = {};
#if defined(__AVX2__)
        __m256i low[R], high[R];
        for (int r = 0; r < R; r++) low[r] = high[r] = _mm256_setzero_si256();
        for (int i = 0; i < width; i += 2) {
            auto from = reinterpret_cast<const __m128i*>(weight + size_t(i) * TILE + 2 * o);
            __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
            __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));
            for (int r = 0; r < R; r++) {
                int32_t both;
                std::memcpy(&both, x + size_t(r) * width + i, sizeof both);
                __m256i pair = _mm256_set1_epi32(both);
                low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(first, pair));
                high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(second, pair));
            }
        }
        for (int r = 0; r < R; r++) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[r]), low[r]);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[r] + PART / 2), high[r]);
        }
#else
        for (int i = 0; i < width; i++)
            for (int r = 0; r < R; r++)
                for (int j = 0; j < PART; j++)
                    sums[r][j] += int32_t(x[size_t(r) * width + i]) * weight[size_t(i) * TILE + o + j];
#endif
        for (int r = 0; r < R; r++)
            for (int j = 0; j < PART; j++)
                y[size_t(r) * y_width + o + j] = float(sums[r][j]) * steps[o + j] * x_steps[r] + bias[o + j];
    }
}

// The memory in which products round their rows.
struct Scratch {
    Rounded<float> floats;
    Rounded<uint16_t> halves;
    Rounded<uint8_t> bytes;
    Rounded<int16_t> words;
};

void float32_product(const Linear& linear, Span x, int N, Span y) {
    for_tiles(linear, N, [&](int o, int r, auto R) {
        tile<R>(&linear.floats[size_t(o) * linear.inputs], &linear.bias[o], linear.inputs, x.row(r), x.width,
                y.row(r) + o, y.width);
    });
}

void bfloat16_product(const Linear& linear, Span x, int N, Span y, Scratch& scratch) {
    int I = linear.inputs;
#if defined(COMPILES_BFLOAT16)
    if (HAS_BFLOAT16) {
        auto& rounded = scratch.halves;
        rounded.fill(x, N, I, 2, [](float value) { return half(value); });
        for_tiles(linear, N, [&](int o, int r, auto R) {
            bfloat16_tile<R>(&linear.halves[size_t(o) * rounded.width], &linear.bias[o], rounded.width, rounded.row(r),
                             y.row(r) + o, y.width);
        });
        return;
    }
#endif
    auto& rounded = scratch.floats;
    rounded.fill(x, N, I, 1, [](float value) { return single(half(value)); });
    for_tiles(linear, N, [&](int o, int r, auto R) {
        tile<R>(&linear.halves[size_t(o) * I], &linear.bias[o], I, rounded.row(r), I, y.row(r) + o, y.width);
    });
}

void int8_product(const Linear& linear, Span x, int N, Span y, Scratch& scratch) {
#if defined(__AVX512F__)
    if (HAS_VNNI) {
        auto& rounded = scratch.bytes;
        rounded.fill_whole(x, N, linear.inputs, 4, [](float value) { return uint8_t(int(value) + 128); });
        for_tiles(linear, N, [&](int o, int r, auto R) {
            int8_tile<R>(&linear.bytes[size_t(o) * rounded.width], &linear.shifts[o], rounded.width, rounded.row(r),
                         &linear.steps[o], &rounded.steps[r], &linear.bias[o], y.row(r) + o, y.width);
        });
        return;
    }
#endif
    auto& rounded = scratch.words;
    rounded.fill_whole(x, N, linear.inputs, BYTES_TOGETHER, [](float value) { return int16_t(value); });
    for_tiles(linear, N, [&](int o, int r, auto R) {
        wide_int8_tile<R>(&linear.bytes[size_t(o) * rounded.width], rounded.width, rounded.row(r), &linear.steps[o],
                          &rounded.steps[r], &linear.bias[o], y.row(r) + o, y.width);
    });
}

// y = x W^T + b for N rows.
void product(const Linear& linear, Span x, int N, Span y, Scratch& scratch) {
    if (linear.precision == INT8)
        int8_product(linear, x, N, y, scratch);
    else if (linear.precision == BFLOAT16)
        bfloat16_product(linear, x, N, y, scratch);
    else
        float32_product(linear, x, N, y);
}

}  // namespace vtrans
