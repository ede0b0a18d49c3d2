// Vectors and memory for decoder.cpp.

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

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace vtrans {

// A tile of a product has at most ROWS rows, and TILE outputs. Its sums fill three quarters of the vector registers.
#if defined(__AVX512BW__)
constexpr int LANES = 16, VECTORS = 4, ROWS = 6;
#elif defined(__AVX2__)
constexpr int LANES = 8, VECTORS = 2, ROWS = 6;
#else
constexpr int LANES = 4, VECTORS = 4, ROWS = 4;
#endif
constexpr int TILE = LANES * VECTORS;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int32_t Integers __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

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

int padded(int n, int multiple = TILE) { return (n + multiple - 1) / multiple * multiple; }

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

}  // namespace vtrans
