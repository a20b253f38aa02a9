// A batch in tables that lie whole in memory: a call from ids to bags, one from gradients to sums.

#include <memory>

#include "passes.hpp"

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

// Sum the gradients of the lookups of each row, in lookup order.
//
// `flat`, `lengths` and `weights` are those of `look_up`; `distinct`, of the width of `flat`, and
// `sums` have memory for all lookups. Returns the number of distinct rows, or -1 where the lookups
// are not those of the features.
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
    const int64_t state = pool_backward(gradients, &bags, numbers.get(), numbers.get() + lookups,
                                        found, of->table.dim, sums, threads);
    if (state == FINITE || state == INFINITE) return found;
    return state == NO_MEMORY ? state : -1;
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Sum the rows of each bag in lookup order, where the row of each lookup is known.
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
