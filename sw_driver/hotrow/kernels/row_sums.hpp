// Sums of rows in the card's order of additions, for the passes and for the engine.

#pragma once

#include "rows.hpp"

constexpr int64_t MOST_PARTIALS = 16, PARTIAL_ELEMENTS = 256;

// Partial sums of a bag: PARTIAL_ELEMENTS over those of a row, rounded up to a power of two from 1 to
// 16.
constexpr int64_t partial_count(int64_t dim) {
    int64_t count = 1;
    while (count < MOST_PARTIALS && count * dim < PARTIAL_ELEMENTS) count *= 2;
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

    INLINED void operator+=(const Sum &more) {
        each_of<VECTORS>([&](auto v) INLINED { at[v] += more.at[v]; });
    }
};

// The sum of numbers first .. first + COUNT - 1 as pairs, as far as they are below `count`; the
// first is. `add(sum, k)` adds number k.
template <int VECTORS, int COUNT, class Add>
INLINED inline Sum<VECTORS> sum_pairs(int64_t count, int first, const Add &add) {
    Sum<VECTORS> sum{};
    if constexpr (COUNT == 1) {
        add(sum, first);
    } else {
        sum = sum_pairs<VECTORS, COUNT / 2>(count, first, add);
        if (first + COUNT / 2 < count)
            sum += sum_pairs<VECTORS, COUNT / 2>(count, first + COUNT / 2, add);
    }
    return sum;
}

// Sum a bag of more than PARTIALS rows by as many partial sums; `add(sum, j)` adds row j.
template <int VECTORS, int PARTIALS, class Add>
INLINED inline Sum<VECTORS> sum_partials(int64_t length, const Add &add) {
    Sum<VECTORS> sums[PARTIALS]{}, stored[PARTIALS];
    int64_t j = 0;
    for (; j + PARTIALS <= length; j += PARTIALS)
        each_of<PARTIALS>([&](auto k) INLINED { add(sums[k], j + k); });
    // From memory, where an index may be any number.
    each_of<PARTIALS>([&](auto k) INLINED { stored[k] = sums[k]; });
    for (int64_t k = 0; j + k < length; ++k) add(stored[k], j + k);
    return sum_pairs<VECTORS, PARTIALS>(
        PARTIALS, 0, [&](Sum<VECTORS> &sum, int k) INLINED { sum = stored[k]; });
}

// Sum a bag of at least one row: row j is added to partial sum j mod p, starting from +0. Then
// partial sums 0 and 1, 2 and 3, ... are added, and these sums in the same way; one without a
// neighbour takes part in the next round. `row_at(j)` is row j; `take(d, n, sum)` gets the sum of
// elements d .. d + n - 1.
template <class Element, int WIDTH, class RowAt, class Take>
INLINED inline void sum_bag(int64_t length, int64_t dim, const float *weights, const RowAt &row_at,
                            const Take &take) {
    const auto added = [&](Floats sum, const auto *row, int64_t j, int64_t d, int64_t n) INLINED {
        const Floats values = load<Element>(row + d, n);
        return weights ? fma(all(weights[j]), values, sum) : sum + values;
    };
    const int64_t partials = partial_count(WIDTH ? WIDTH : dim);
    // Pairs of so few are added as in the list; with weights, a partial sum rounds each product.
    const bool in_order = length <= (weights ? 1 : std::min<int64_t>(partials, 3));
    if constexpr (WIDTH) {
        constexpr int VECTORS = std::max(1, WIDTH / LANES), PARTIALS = partial_count(WIDTH);
        const auto add = [&](Sum<VECTORS> &sum, int64_t j) INLINED {
            const auto *const row = row_at(j);
            each_of<VECTORS>([&](auto v) INLINED {
                sum.at[v] = added(sum.at[v], row, j, v * LANES, LANES);
            });
        };
        Sum<VECTORS> sum{};
        if (in_order)
            for (int64_t j = 0; j < length; ++j) add(sum, j);
        else if (length <= PARTIALS)
            sum = sum_pairs<VECTORS, PARTIALS>(length, 0, add);
        else
            sum = sum_partials<VECTORS, PARTIALS>(length, add);
        each_of<VECTORS>([&](auto v) INLINED { take(v * LANES, LANES, sum.at[v]); });
    } else if (partials == 1 || in_order) {
        vectors<0>(dim, [&](int64_t d, int64_t n) INLINED {
            Floats sum{};
            for (int64_t j = 0; j < length; ++j) sum = added(sum, row_at(j), j, d, n);
            take(d, n, sum);
        });
    } else {
        const int64_t size = vector_count(dim);
        Floats sums[2 * PARTIAL_ELEMENTS / LANES + MOST_PARTIALS];
        for (int64_t j = 0; j < length; ++j) {
            const auto *const row = row_at(j);
            Floats *const sum = sums + (j & (partials - 1)) * size;
            vectors<0>(dim, [&](int64_t d, int64_t n) INLINED {
                sum[d / LANES] = added(j < partials ? Floats{} : sum[d / LANES], row, j, d, n);
            });
        }
        for (int64_t count = std::min(length, partials); count > 1; count = (count + 1) / 2) {
            for (int64_t k = 0; k < (count + 1) / 2; ++k)
                for (int64_t v = 0; v < size; ++v) {
                    const Floats *const pair = sums + 2 * k * size + v;
                    sums[k * size + v] = 2 * k + 1 < count ? pair[0] + pair[size] : pair[0];
                }
        }
        vectors<0>(dim, [&](int64_t d, int64_t n) INLINED { take(d, n, sums[d / LANES]); });
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
