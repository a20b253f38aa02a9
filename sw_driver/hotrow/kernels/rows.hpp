// Rows of a table, bags of lookups, and loops over several threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

constexpr int PREFETCH = 16;  // lookups ahead
// Elements of a vector, which a register holds: GCC passes larger ones through memory, in pieces of
// other sizes than it loads.
#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif
constexpr int PARTS = LANES / 8;  // of eight elements

using Floats = float __attribute__((vector_size(4 * LANES)));
using Words = uint32_t __attribute__((vector_size(4 * LANES)));

// Result of a call for which there is not enough memory. No exception leaves a call: it would end
// the process of its caller, who speaks C.
constexpr int64_t NO_MEMORY = INT64_MIN;

// int32 or int64, selected at run time.
struct Integers {
    const void *data;
    int32_t wide;

    int64_t operator[](int64_t i) const {
        return wide ? static_cast<const int64_t *>(data)[i] : static_cast<const int32_t *>(data)[i];
    }
};

// Call f with the integers, typed, and return its result.
template <class F>
auto with_type(Integers integers, const F &f) {
    return integers.wide ? f(static_cast<const int64_t *>(integers.data))
                         : f(static_cast<const int32_t *>(integers.data));
}

// Elements of a row in memory; conversions from fp32 round to nearest even.

struct Float32 {
    using Stored = float;
    using Vector = Floats;
    static Floats widen(Vector values) { return values; }
    static Vector narrow(Floats values) { return values; }
};

struct Float16 {
    using Stored = _Float16;
    using Vector = Stored __attribute__((vector_size(2 * LANES)));
    static Floats widen(Vector values) {
#ifdef __F16C__
        __m128i half[PARTS];
        __m256 whole[PARTS];
        std::memcpy(half, &values, sizeof half);
        for (int part = 0; part < PARTS; ++part) whole[part] = _mm256_cvtph_ps(half[part]);
        Floats result;
        std::memcpy(&result, whole, sizeof result);
        return result;
#else
        return __builtin_convertvector(values, Floats);
#endif
    }
    static Vector narrow(Floats values) {
#ifdef __F16C__
        __m256 whole[PARTS];
        __m128i half[PARTS];
        std::memcpy(whole, &values, sizeof whole);
        for (int part = 0; part < PARTS; ++part)
            half[part] = _mm256_cvtps_ph(whole[part], _MM_FROUND_TO_NEAREST_INT);
        Vector result;
        std::memcpy(&result, half, sizeof result);
        return result;
#else
        return __builtin_convertvector(values, Vector);
#endif
    }
};

struct BFloat16 {
    using Stored = uint16_t;
    using Vector = Stored __attribute__((vector_size(2 * LANES)));
    static Floats widen(Vector values) {
        return (Floats)(__builtin_convertvector(values, Words) << 16);
    }
    static Vector narrow(Floats values) {
        const Words bits = (Words)values;
        const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const Words nan = (Words)((bits & 0x7fffffff) > 0x7f800000);
        return __builtin_convertvector((rounded & ~nan) | (nan & 0x7fc0), Vector);
    }
};

// Load and store `n` elements as fp32, at most LANES.

template <class Element = Float32>
inline Floats load(const typename Element::Stored *from, int64_t n = LANES) {
    typename Element::Vector values{};
    std::memcpy(&values, from, n * sizeof *from);
    return Element::widen(values);
}

template <class Element = Float32>
inline void store(typename Element::Stored *to, Floats values, int64_t n = LANES) {
    const typename Element::Vector narrow = Element::narrow(values);
    std::memcpy(to, &narrow, n * sizeof *to);
}

// As a difference, because 0 + -0 is +0.
inline Floats all(float value) { return value - Floats{}; }

// Elementwise functions. Through arrays they would pass in pieces of a vector, and a load of what was
// stored in pieces waits for all stores before it.

inline Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    for (int i = 0; i < LANES; ++i) c[i] = std::fma(a[i], b[i], c[i]);
    return c;
#endif
}

inline Floats sqrt(Floats a) {
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_sqrt_ps(0xffff, (__m512)a);
#elif defined(__AVX__)
    return (Floats)_mm256_sqrt_ps((__m256)a);
#else
    for (int i = 0; i < LANES; ++i) a[i] = std::sqrt(a[i]);
    return a;
#endif
}

// Call f(d, n) for each vector of a row: its first element, and its elements.
template <int WIDTH, class F>
inline void vectors(int64_t dim, F f) {
    if constexpr (WIDTH) {
        for (int64_t d = 0; d < WIDTH; d += LANES) f(d, LANES);
    } else {
        int64_t d = 0;
        for (; d + LANES <= dim; d += LANES) f(d, LANES);
        if (d < dim) f(d, dim - d);
    }
}

// Prefetch row `index` of an array with `stride` elements from row to row. The index may be any
// number: it is checked where the row is used.
template <int WRITE, class Stored>
inline void prefetch(const Stored *rows, int64_t index, int64_t stride, int64_t dim) {
    const uintptr_t row = reinterpret_cast<uintptr_t>(rows) + static_cast<uint64_t>(index) *
                          static_cast<uint64_t>(stride) * sizeof *rows;
    for (uint64_t b = 0; b < dim * sizeof *rows; b += 64)
        __builtin_prefetch(reinterpret_cast<const void *>(row + b), WRITE);
}

// Position of the first slot that occurs before it in the list of at most INT32_MAX, or -1.
inline int64_t first_repeated(Integers slots, int64_t count) {
    int64_t i = 1;
    while (i < count && slots[i - 1] < slots[i]) ++i;
    if (i >= count) return -1;  // ascending
    int log2 = 3;
    while (int64_t{1} << log2 < 2 * count) ++log2;
    std::vector<int32_t> table(int64_t{1} << log2, -1);
    const uint64_t mask = (uint64_t{1} << log2) - 1;
    for (i = 0; i < count; ++i) {
        uint64_t at = static_cast<uint64_t>(slots[i]) * 0x9E3779B97F4A7C15u >> (64 - log2);
        for (; table[at] >= 0; at = (at + 1) & mask)
            if (slots[table[at]] == slots[i]) return i;
        table[at] = static_cast<int32_t>(i);
    }
    return -1;
}

// A table: `stride` counts elements from row to row.
struct Table {
    void *data;
    int64_t rows, stride, dim;
    int32_t type;  // 0 float32, 1 float16, 2 bfloat16
};

// Bags feature after feature, those of a feature sample after sample. Without `lengths` each bag
// has one lookup. Pooled bags lie in float32[samples, row_stride], those of feature f from column
// columns[f] on.
struct Bags {
    Integers lengths;
    const float *weights;     // one per lookup, or null
    const uint8_t *mean;      // one per feature, or null
    const int64_t *columns;
    int64_t features, samples, lookups, row_stride;

    int64_t length(int64_t bag) const { return lengths.data ? lengths[bag] : 1; }

    // Number by which the sum of a bag is divided.
    int64_t divisor(int64_t feature, int64_t length) const {
        return mean && mean[feature] && length > 1 ? length : 1;
    }

    // Position of the first lookup of a bag, or -1 where the lengths exceed the lookups.
    int64_t first_lookup(int64_t bag) const {
        if (!lengths.data) return bag;
        int64_t sum = 0;
        for (int64_t each = 0; each < bag; ++each) {
            const int64_t length = lengths[each];
            if (length < 0 || length > lookups - sum) return -1;
            sum += length;
        }
        return sum;
    }

    bool sound() const { return first_lookup(features * samples) == lookups; }
};

constexpr int MOST_THREADS = 1024;

inline int64_t vector_count(int64_t dim) { return (dim + LANES - 1) / LANES; }

// Memory of `size` vectors for each thread, taken before the threads start; none shares a cache line
// with another's.
class PerThread {
public:
    PerThread(int threads, int64_t size)
        : room_(size ? size + 2 : 0), vectors_(std::clamp(threads, 1, MOST_THREADS) * room_) {}

    // That of one more thread.
    Floats *take() { return vectors_.data() + room_ * taken_.fetch_add(1); }

private:
    int64_t room_;
    std::vector<Floats> vectors_;
    std::atomic<int> taken_{0};
};

// Call work(first, last), which throws nothing, for equal spans of 0 .. count on up to `threads`
// threads.
template <class Work>
void parallel(int64_t count, int threads, const Work &work) {
    if (!count) return;
    threads = std::clamp(threads, 1, static_cast<int>(std::min<int64_t>(MOST_THREADS, count)));
    std::vector<std::thread> started;
    int64_t first = 0;
    for (int each = 0; each + 1 < threads; ++each) {
        const int64_t last = first + (count - first) / (threads - each);
        try {
            started.emplace_back(work, first, last);
        } catch (const std::exception &) {
            break;  // no more threads, or no memory for one: the caller's does the rest
        }
        first = last;
    }
    work(first, count);
    for (auto &each : started) each.join();
}

// Call f with a compile-time width where there is one for `dim`, else with 0.
template <class F>
void with_width(int64_t dim, F f) {
    switch (dim) {
        case 16: return f(std::integral_constant<int, 16>());
        case 32: return f(std::integral_constant<int, 32>());
        case 64: return f(std::integral_constant<int, 64>());
        case 128: return f(std::integral_constant<int, 128>());
        default: return f(std::integral_constant<int, 0>());
    }
}

// Call f with an object of the class of a table's elements.
template <class F>
void with_element(int32_t type, F f) {
    if (type == 0) return f(Float32());
    if (type == 1) return f(Float16());
    return f(BFloat16());
}
