// Sums of rows in the card's order of additions, for the passes and for the engine.

#pragma once

#include "rows.hpp"

constexpr int64_t MOST_PARTIALS = 16;

// Partial sums of a bag: 256 elements over those of a row, rounded up to a power of two from 1 to
// 16.
constexpr int64_t partial_count(int64_t dim) {
    int64_t count = 1;
    while (count < MOST_PARTIALS && count * dim < 256) count *= 2;
    return count;
}

// What is inlined keeps sums in registers.
#define INLINED __attribute__((always_inline))

// Call f for the compile-time numbers 0 .. COUNT - 1.
template <int COUNT, class F>
INLINED inline void each_of(const F &f) {
    if constexpr (COUNT > 1) each_of<COUNT - 1>(f);
    if constexpr (COUNT > 0) f(std::integral_constant<int, COUNT - 1>());
}

// A row of VECTORS vectors.
template <int VECTORS>
struct Sum {
    Floats at[VECTORS];
};

// The sum of partial sums first .. first + COUNT - 1 of PARTIALS, of which the first is there.
// `add(sum, j)` adds row j.
template <int PARTIALS, int VECTORS, int COUNT, class Add>
INLINED inline Sum<VECTORS> partial_sums(int64_t length, int first, const Add &add) {
    if constexpr (COUNT == 1) {
        Sum<VECTORS> sum{};
        add(sum, first);
        for (int64_t j = first + PARTIALS; j < length; j += PARTIALS) add(sum, j);
        return sum;
    } else {
        auto sum = partial_sums<PARTIALS, VECTORS, COUNT / 2>(length, first, add);
        if (first + COUNT / 2 < length) {
            const auto more =
                partial_sums<PARTIALS, VECTORS, COUNT / 2>(length, first + COUNT / 2, add);
            each_of<VECTORS>([&](auto v) INLINED { sum.at[v] += more.at[v]; });
        }
        return sum;
    }
}

// Sum a bag of at least one row: row j is added to partial sum j mod p, starting from +0. Then
// partial sums 0 and 1, 2 and 3, ... are added, and these sums in the same way; one without a
// neighbour takes part in the next round. `row_at(j)` is row j; `take(d, n, sum)` gets the sum of
// elements d .. d + n - 1.
template <class Element, int WIDTH, class RowAt, class Take>
INLINED inline void sum_bag(int64_t length, int64_t dim, const float *weights, const RowAt &row_at,
                            const Take &take) {
    constexpr int PARTIALS = WIDTH ? partial_count(WIDTH) : MOST_PARTIALS;
    constexpr int VECTORS = std::max(1, WIDTH / LANES);
    const auto added = [&](Floats sum, const auto *row, int64_t j, int64_t d, int64_t n) INLINED {
        const Floats values = load<Element>(row + d, n);
        return weights ? fma(all(weights[j]), values, sum) : sum + values;
    };
    if (length == 1) {
        const auto *const row = row_at(0);
        vectors<WIDTH>(dim, [&](int64_t d, int64_t n) INLINED {
            take(d, n, added(Floats{}, row, 0, d, n));
        });
    } else if constexpr (WIDTH && PARTIALS <= 4) {
        const auto sum = partial_sums<PARTIALS, VECTORS, PARTIALS>(
            length, 0, [&](Sum<VECTORS> &sum, int64_t j) INLINED {
                const auto *const row = row_at(j);
                each_of<VECTORS>([&](auto v) INLINED {
                    sum.at[v] = added(sum.at[v], row, j, v * LANES, LANES);
                });
            });
        each_of<VECTORS>([&](auto v) INLINED { take(v * LANES, LANES, sum.at[v]); });
    } else {
        const int64_t partials = WIDTH ? PARTIALS : partial_count(dim);
        const auto in_memory = [&](int64_t d, int64_t n) INLINED {
            Floats sums[MOST_PARTIALS];
            int64_t count = std::min(length, partials);
            for (int64_t j = 0; j < count; ++j) sums[j] = added(Floats{}, row_at(j), j, d, n);
            for (int64_t first = count; first < length; first += partials)
                for (int64_t j = first; j < std::min(first + partials, length); ++j)
                    sums[j - first] = added(sums[j - first], row_at(j), j, d, n);
            for (; count > 1; count = (count + 1) / 2) {
                for (int64_t pair = 0; pair < count / 2; ++pair)
                    sums[pair] = sums[2 * pair] + sums[2 * pair + 1];
                if (count % 2) sums[count / 2] = sums[count - 1];
            }
            take(d, n, sums[0]);
        };
        vectors<WIDTH>(dim, in_memory);
    }
}

// Call take(sum): sum(d, n) are elements d .. d + n - 1 of what `work(keep)` gives keep(d, n, sum).
// `memory` is of vector_count(dim) vectors, where the width is not known.
template <int WIDTH, class Work, class Take>
INLINED inline void with_sum(Floats *memory, const Work &work, const Take &take) {
    Floats own[std::max(1, WIDTH / LANES)];
    Floats *const sums = WIDTH ? own : memory;
    work([&](int64_t d, int64_t, Floats sum) INLINED { sums[d / LANES] = sum; });
    take([&](int64_t d, int64_t) INLINED { return sums[d / LANES]; });
}

// Sums of neighbours 0 and 1, 2 and 3, ... of the elements of two vectors.
inline Floats neighbour_sums(Floats low, Floats high) {
    Words even{}, odd{};
#pragma GCC unroll 16
    for (int lane = 0; lane < LANES; ++lane) even[lane] = 2 * lane, odd[lane] = 2 * lane + 1;
    return __builtin_shuffle(low, high, even) + __builtin_shuffle(low, high, odd);
}

// Add neighbours, then the sums in the same way, down to one sum. The numbers are +0 or greater, so
// that zeros may follow the last one. Spends the vectors.
inline float pairwise_sum(Floats *numbers, int64_t count) {
    for (; count > 1; count = (count + 1) / 2) {
        for (int64_t pair = 0; pair < count / 2; ++pair)
            numbers[pair] = neighbour_sums(numbers[2 * pair], numbers[2 * pair + 1]);
        if (count % 2) numbers[count / 2] = neighbour_sums(numbers[count - 1], Floats{});
    }
    Floats sum = numbers[0];
    for (int width = LANES; width > 1; width /= 2) sum = neighbour_sums(sum, sum);
    return sum[0];
}
