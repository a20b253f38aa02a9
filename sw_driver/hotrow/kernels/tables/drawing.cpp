// Rows that tables start with, drawn from a seed.

#include "base.hpp"

extern "C" {

// Rows first, first + step, ... of a table: `count` of them, to rows `stride` bytes apart.
int64_t draw_rows(uint8_t *to, int64_t stride, int64_t count, uint64_t first, uint64_t step,
                  int64_t dim, uint64_t seed, float bound, int32_t element) {
    tables::Base base;
    base.seed = seed, base.bound = bound, base.dim = dim, base.element = element;
    for (int64_t at = 0; at < count; ++at)
        base.draw(first + static_cast<uint64_t>(at) * step, to + at * stride);
    return 0;
}
}
