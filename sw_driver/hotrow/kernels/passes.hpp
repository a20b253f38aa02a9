// Passes that other passes call, each described where it is defined.

#pragma once

#include "rows.hpp"

// Result of `pool_backward`.
enum Sums : int64_t { FINITE, INFINITE, MALFORMED };

extern "C" {
int64_t flatten_ids(Integers ids, int64_t size, int64_t features, const int64_t *begin,
                    const int64_t *counts, int64_t stride, const int64_t *rows,
                    const int64_t *first, void *flat, int64_t room, int32_t flat_wide);
int64_t group(Integers slots, int64_t rows, int64_t columns, int64_t row_stride,
              int64_t column_stride, int64_t keys, int32_t *table, int32_t *numbers,
              void *distinct, int32_t *counts);
int64_t pool_forward(const Table *table, const Bags *bags, Integers slots, int64_t feature_stride,
                     int64_t sample_stride, float *pooled, int threads);
int64_t place_slots(const uint32_t *slots, int64_t count, int64_t directory, uint32_t flag,
                    int32_t choice_log2, int64_t part, int64_t first, const int64_t *area,
                    int64_t area_rows, int32_t *places);
}

// As `pool_backward`, where `counts` are the lookups of each number, and both are those of `group`;
// spends the counts.
Sums sum_lists(const float *gradients, const Bags &bags, const int32_t *numbers, int32_t *counts,
               int64_t distinct, int64_t dim, float *sums, int threads);
