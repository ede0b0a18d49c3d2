// Matrix products for decoder.cpp, in float32, bfloat16 or int8 on the calling thread.
//
// With few rows, a product takes as long as reading its weight, so a weight is stored in the order in which it is read.
//
// Legend: N rows, I inputs and O outputs of a product, P neighbouring inputs that an instruction multiplies and adds.

#pragma once

#include "memory.h"

namespace vtrans {

// Integers in which int8 products are computed without VNNI, and P for them.
#if defined(__SSE2__)
using Wide = int16_t;
#else
using Wide = int32_t;
#endif
constexpr int WIDE_TOGETHER = 4 / sizeof(Wide);
typedef Wide WideVector __attribute__((vector_size(4 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(WIDE_TOGETHER * LANES), aligned(1), may_alias));

constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Instructions that not all processors with AVX-512 or AVX2 have, nor all compilers.
#if defined(__AVX512BW__)
#define VNNI "avx512vnni"
#else
#define VNNI "avxvnni"
#endif
#if defined(__clang__) || __GNUC__ >= 11
#define COMPILES_NEWER
#endif
#if defined(__AVX512BW__) || (defined(__AVX2__) && defined(COMPILES_NEWER))
#define COMPILES_VNNI
const bool HAS_VNNI = (__builtin_cpu_init(), __builtin_cpu_supports(VNNI));
#else
constexpr bool HAS_VNNI = false;
#endif
#if defined(__AVX512BW__) && defined(COMPILES_NEWER)
#define COMPILES_BFLOAT16
const bool HAS_BFLOAT16 = (__builtin_cpu_init(), __builtin_cpu_supports("avx512bf16"));
#else
constexpr bool HAS_BFLOAT16 = false;
#endif

// P for bfloat16 and int8.
const int HALVES_TOGETHER = HAS_BFLOAT16 ? 2 : 1;
const int BYTES_TOGETHER = HAS_VNNI ? 4 : WIDE_TOGETHER;

// Returns where part t of T begins.
int share(int count, int t, int T) { return int(int64_t(count) * t / T); }

// Calls compute(min(R, count)) with a compile-time constant.
template <int R, class Compute>
void with_constant(int count, Compute compute) {
    if constexpr (R > 1)
        if (count < R) return with_constant<R - 1>(count, compute);
    compute(std::integral_constant<int, R>());
}

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

// Calls compute(weight, o, r, R) for all tiles, with R rows from r on, which are divided evenly. The weight is read from
// memory once, while the previous tiles are computed, and from the cache for each tile.
template <class Number, class Compute>
void for_tiles(const Linear& linear, const Numbers<Number>& weight, int N, Compute compute) {
    constexpr int LINE = 64 / sizeof(Number);
    int size = int(weight.size() / padded(linear.outputs)) * TILE;
    int tiles = (N + ROWS - 1) / ROWS, lines = (size / LINE + tiles - 1) / std::max(1, tiles);
    const Number* at = weight.data();
    for (int o = 0; o < linear.outputs; o += TILE, at += size)
        for (int t = 0, r = 0; t < tiles; t++) {
            for (int l = 0; l < lines; l++) __builtin_prefetch(at + size + (t * lines + l) * LINE, 0, 2);
            int rows = N / tiles + (t < N % tiles);
            with_constant<ROWS>(rows, [&](auto R) { compute(at, o, r, R); });
            r += rows;
        }
}

inline Vector widened(const float* x) { return *reinterpret_cast<const Vector*>(x); }
inline Vector widened(const uint16_t* x) {
    Integers bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(x), Integers) << 16;
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

// P neighbouring inputs of a row, which take four bytes, repeated.
inline Integers repeated(const void* x) {
    int32_t bytes;
    std::memcpy(&bytes, x, sizeof bytes);
    return Integers{} + bytes;
}
inline Integers integers(const void* x) { return *static_cast<const Integers*>(x); }

// Tiles have similar loops, but are compiled for different instruction sets, which a template cannot choose.
#if defined(COMPILES_BFLOAT16)
// A tile in bfloat16: P = 2.
template <int R>
__attribute__((target("avx512bf16"))) void bfloat16_tile(const uint16_t* weight, const float* bias, int width,
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

// Stores a tile in int8, given its exact sums and the steps of its operands.
struct Scale {
    const float *steps, *x_steps, *bias;
    float* y;
    int y_width;

    template <int R>
    void store(const Integers (&sums)[R][VECTORS]) const {
        for (int r = 0; r < R; r++)
            for (int v = 0; v < VECTORS; v++) {
                Vector scaled = __builtin_convertvector(sums[r][v], Vector) * widened(steps + v * LANES);
                Vector shifted = scaled * x_steps[r] + widened(bias + v * LANES);
                *reinterpret_cast<Vector*>(y + size_t(r) * y_width + v * LANES) = shifted;
            }
    }
};

#if defined(COMPILES_VNNI)
// A tile in int8, with 128 added to x: P = 4.
template <int R>
__attribute__((target(VNNI))) void int8_tile(const int8_t* weight, const int32_t* shifts, int width,
                                                    const uint8_t* x, Scale scale) {
    Integers sums[R][VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = integers(shifts + v * LANES);
    for (int i = 0; i < width; i += 4, weight += 4 * TILE) {
        Integers part[VECTORS];
        for (int v = 0; v < VECTORS; v++) part[v] = integers(weight + v * 4 * LANES);
        for (int r = 0; r < R; r++) {
            Integers four = repeated(x + size_t(r) * width + i);
            for (int v = 0; v < VECTORS; v++) {
#if defined(__AVX512BW__)
                sums[r][v] = (Integers)_mm512_dpbusd_epi32((__m512i)sums[r][v], (__m512i)four, (__m512i)part[v]);
#else
                sums[r][v] = (Integers)_mm256_dpbusd_avx_epi32((__m256i)sums[r][v], (__m256i)four, (__m256i)part[v]);
#endif
            }
        }
    }
    scale.store(sums);
}
#endif

// P bytes for each lane, converted to Wide, and the sums of P products per lane.
#if defined(__AVX512BW__)
inline Integers wide(const int8_t* x) { return (Integers)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)x)); }
inline Integers dot(Integers a, Integers b) { return (Integers)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
inline Integers wide(const int8_t* x) { return (Integers)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)x)); }
inline Integers dot(Integers a, Integers b) { return (Integers)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#else
inline Integers wide(const int8_t* x) { return (Integers)__builtin_convertvector(*(const Bytes*)x, WideVector); }
#if defined(__SSE2__)
inline Integers dot(Integers a, Integers b) { return (Integers)_mm_madd_epi16((__m128i)a, (__m128i)b); }
#else
inline Integers dot(Integers a, Integers b) { return a * b; }
#endif
#endif

// A tile in int8, for any processor. Its sums are in 32 bits, so they are exact.
template <int R>
void wide_int8_tile(const int8_t* weight, int width, const Wide* x, Scale scale) {
    constexpr int P = WIDE_TOGETHER;
    Integers sums[R][VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = Integers{};
    for (int i = 0; i < width; i += P, weight += P * TILE) {
        Integers part[VECTORS];
        for (int v = 0; v < VECTORS; v++) part[v] = wide(weight + v * P * LANES);
        for (int r = 0; r < R; r++) {
            Integers all = repeated(x + size_t(r) * width + i);
            for (int v = 0; v < VECTORS; v++) sums[r][v] += dot(part[v], all);
        }
    }
    scale.store(sums);
}

// The memory in which products round their rows.
struct Scratch {
    Rounded<float> floats;
    Rounded<uint16_t> halves;
    Rounded<uint8_t> bytes;
    Rounded<Wide> wide;
};

void float32_product(const Linear& linear, Span x, int N, Span y) {
    for_tiles(linear, linear.floats, N, [&](const float* weight, int o, int r, auto R) {
        tile<R>(weight, &linear.bias[o], linear.inputs, x.row(r), x.width,
                y.row(r) + o, y.width);
    });
}

void bfloat16_product(const Linear& linear, Span x, int N, Span y, Scratch& scratch) {
    int I = linear.inputs;
#if defined(COMPILES_BFLOAT16)
    if (HAS_BFLOAT16) {
        auto& rounded = scratch.halves;
        rounded.fill(x, N, I, 2, [](float value) { return half(value); });
        for_tiles(linear, linear.halves, N, [&](const uint16_t* weight, int o, int r, auto R) {
            bfloat16_tile<R>(weight, &linear.bias[o], rounded.width, rounded.row(r), y.row(r) + o, y.width);
        });
        return;
    }
#endif
    auto& rounded = scratch.floats;
    rounded.fill(x, N, I, 1, [](float value) { return single(half(value)); });
    for_tiles(linear, linear.halves, N, [&](const uint16_t* weight, int o, int r, auto R) {
        tile<R>(weight, &linear.bias[o], I, rounded.row(r), I, y.row(r) + o, y.width);
    });
}

void int8_product(const Linear& linear, Span x, int N, Span y, Scratch& scratch) {
#if defined(COMPILES_VNNI)
    if (HAS_VNNI) {
        auto& rounded = scratch.bytes;
        rounded.fill_whole(x, N, linear.inputs, 4, [](float value) { return uint8_t(int(value) + 128); });
        for_tiles(linear, linear.bytes, N, [&](const int8_t* weight, int o, int r, auto R) {
            int8_tile<R>(weight, &linear.shifts[o], rounded.width, rounded.row(r),
                         {&linear.steps[o], &rounded.steps[r], &linear.bias[o], y.row(r) + o, y.width});
        });
        return;
    }
#endif
    auto& rounded = scratch.wide;
    rounded.fill_whole(x, N, linear.inputs, WIDE_TOGETHER, [](float value) { return Wide(value); });
    for_tiles(linear, linear.bytes, N, [&](const int8_t* weight, int o, int r, auto R) {
        wide_int8_tile<R>(weight, rounded.width, rounded.row(r),
                          {&linear.steps[o], &rounded.steps[r], &linear.bias[o], y.row(r) + o, y.width});
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
