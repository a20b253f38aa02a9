// A batch in tables that lie whole in memory: a call from ids to bags, one from gradients to sums.

#include <memory>

#include "gradient_lists.hpp"
#include "passes.hpp"
#include "row_steps.hpp"

// Features whose tables share an array of rows: what batches of any size have in common.
struct Features {
    Table table;
    const int64_t *places;   // among the features of a batch
    const int64_t *first;    // row 0 of the table of each
    const int64_t *rows;     // of the table of each
    const int64_t *columns;  // where its sums begin
    const uint8_t *mean;     // one per feature, or null
    int64_t count;
    int32_t *seen;           // memory of `group`, one number per row of the array
};

// Check the ids of a batch, and sum the rows of each bag.
//
// Id i of the feature at place p lies at p * feature_stride + i * stride, among `size` elements;
// with `lengths`, one per bag, id i of all features, which follow one another, at i * stride.
// `flat`, of the width of `flat_wide`, gets the row of each lookup in the array.
//
// Returns 0, or another number where the batch is refused: an id is no row of its table, or the
// lengths are not those of the ids. Then `flat` and `pooled` are undefined.
extern "C" int64_t look_up(const Features *of, const void *ids, int32_t wide, int64_t size,
                           int64_t feature_stride, int64_t stride, int64_t samples,
                           const int64_t *lengths, const float *weights, void *flat,
                           int32_t flat_wide, int64_t lookups, float *pooled, int64_t row_stride,
                           int threads) try {
    std::vector<int64_t> begin(of->count), counts(of->count, samples);
    for (int64_t f = 0, sum = 0; f < of->count; ++f) {
        begin[f] = of->places[f] * feature_stride;
        if (!lengths) continue;
        begin[f] = sum * stride, counts[f] = 0;
        for (int64_t bag = f * samples; bag < (f + 1) * samples; ++bag) {
            if (lengths[bag] < 0 || lengths[bag] > lookups - sum) return 1;
            counts[f] += lengths[bag], sum += lengths[bag];
        }
    }
    if (flatten_ids({ids, wide}, size, of->count, begin.data(), counts.data(), stride, of->rows,
                    of->first, flat, lookups, flat_wide) != -1)
        return 1;
    const Bags bags{{lengths, 1}, weights, of->mean, of->columns, of->count, samples, lookups,
                    row_stride};
    return pool_forward(&of->table, &bags, {flat, flat_wide}, samples, 1, pooled, threads);
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Sum the gradients of the lookups of each row, as `pool_backward` does.
//
// `flat`, `lengths` and `weights` are those of `look_up`; `distinct`, of the width of `flat`, and
// `sums` have memory for all lookups. Returns the number of distinct rows, and 2^32 more where a sum
// is not finite, or -1 where the lookups are not those of the features.
extern "C" int64_t sum_rows(const Features *of, const void *flat, int32_t wide, int64_t lookups,
                            int64_t samples, const int64_t *lengths, const float *weights,
                            const float *gradients, int64_t row_stride, void *distinct, float *sums,
                            int threads) try {
    if (lookups < 0 || lookups > INT32_MAX || (!lengths && lookups != of->count * samples))
        return -1;
    const std::unique_ptr<int32_t[]> numbers(new int32_t[2 * lookups]);
    const int64_t found = group({flat, wide}, 1, lookups, 0, 1, of->table.rows, of->seen,
                                numbers.get(), distinct, numbers.get() + lookups);
    if (found < 0) return -1;
    const Bags bags{{lengths, 1}, weights, of->mean, of->columns, of->count, samples, lookups,
                    row_stride};
    if (!bags.sound()) return -1;
    const Sums state = sum_lists(gradients, bags, numbers.get(), numbers.get() + lookups, found,
                                 of->table.dim, sums, threads);
    return found + (int64_t{state == INFINITE} << 32);
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Sum the rows of each bag, where the row of each lookup is known.
//
// `at`, of the width of `wide`, has the row of each lookup in the array; `lengths` and `weights` are
// those of `look_up`. Returns 0, or another number as `pool_forward` does.
extern "C" int64_t pool_rows(const Features *of, const void *at, int32_t wide, int64_t lookups,
                             int64_t samples, const int64_t *lengths, const float *weights,
                             float *pooled, int64_t row_stride, int threads) {
    const Bags bags{{lengths, 1}, weights, of->mean, of->columns, of->count, samples, lookups,
                    row_stride};
    return pool_forward(&of->table, &bags, {at, wide}, samples, 1, pooled, threads);
}

// Copy float32[count, width], and return the bits of the largest magnitude: more than those of any
// finite number where one is not finite.
extern "C" int64_t copy_bounded(const float *from, int64_t count, int64_t stride, int64_t width,
                                float *to) {
    int32_t large = 0;
    for (int64_t row = 0; row < count; ++row, from += stride, to += width) {
        for (int64_t i = 0; i < width; ++i) {
            int32_t bits;
            std::memcpy(&bits, from + i, sizeof bits);
            large = std::max(large, bits & 0x7fffffff);
            to[i] = from[i];
        }
    }
    return large;
}

// Step on the rows of a batch, each by the sum of the gradients of its lookups.
//
// `flat` and `lengths` are those of `look_up`, without weights; no bag is a mean. `state` and the
// rule are those of `update`. `listed` is memory for lookups + PREFETCH pointers, `numbers` for
// 2 * lookups, `distinct` for `lookups` of the width of `flat`. Returns 0, or -1 where the lookups
// are not those of the features: then no row has changed.
extern "C" int64_t step_whole(const Features *of, const void *flat, int32_t wide, int64_t lookups,
                              int64_t samples, const int64_t *lengths, const float *gradients,
                              int64_t row_stride, const float **listed, int32_t *numbers,
                              void *distinct, float *state, int64_t state_stride, int32_t kind,
                              const Parameters *by, int threads) try {
    const Bags bags{{lengths, 1}, nullptr, nullptr, of->columns, of->count, samples, lookups,
                    row_stride};
    if (lookups < 0 || lookups > INT32_MAX || (!lengths && lookups != of->count * samples) ||
        !bags.sound())
        return -1;
    int32_t *const counts = numbers + lookups;
    const int64_t found = group({flat, wide}, 1, lookups, 0, 1, of->table.rows, of->seen, numbers,
                                distinct, counts);
    if (found < 0) return -1;
    GradientLists lists{listed, nullptr, counts, found};
    lists.fill(bags, gradients, numbers, of->table.dim, nullptr);
    const Integers slots{distinct, wide};
    step_rows(of->table, state, state_stride, static_cast<Rule>(kind), *by, threads,
              [&](const auto &work) { lists.parallel(threads, work); },
              [&](int64_t i) { return slots[i]; },
              [&](auto width, int64_t i, Floats *memory, const auto &take) INLINED {
        constexpr int WIDTH = decltype(width)::value;
        with_sum<WIDTH>(memory, [&](const auto &keep) INLINED {
            lists.sum<WIDTH>(i, of->table.dim, keep);
        }, take);
    });
    return 0;
} catch (const std::exception &) {
    return NO_MEMORY;
}
