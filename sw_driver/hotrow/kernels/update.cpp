// Steps of an optimizer on rows where they lie.

#include "row_steps.hpp"

// One step on distinct rows: row slots[i] by gradient i.
//
// `state` has `columns` numbers a row. `distinct` says that no row occurs twice. Sets dirty[slot] of
// each slot below `marked` before its row changes. Returns 0, 1 + i where slots[i] is no row, or
// -1 - i where it occurs before; then no row has changed.
extern "C" int64_t update(const Table *table, float *state, int64_t state_stride, Integers slots,
                          int64_t count, int32_t distinct, uint8_t *dirty, int64_t marked,
                          const float *gradients, int32_t kind, const Parameters *by,
                          int threads) try {
    for (int64_t i = 0; i < count; ++i)
        if (static_cast<uint64_t>(slots[i]) >= static_cast<uint64_t>(table->rows)) return 1 + i;
    const int64_t repeated = distinct ? -1 : first_repeated(slots, count);
    if (repeated >= 0) return -1 - repeated;
    step_rows(*table, state, state_stride, static_cast<Rule>(kind), *by, threads,
              [&](const auto &work) { parallel(count, threads, work); },
              [&](int64_t i) {  // of rows ahead first
        const int64_t slot = slots[i];
        if (slot < marked) dirty[slot] = 1;
        return slot;
    },
              [&](auto, int64_t i, Floats *, const auto &take) {
        take([&](int64_t d, int64_t n) { return load(gradients + i * table->dim + d, n); });
    });
    return 0;
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Number of the first row of float32[count, dim] with an element that is not finite, or -1.
extern "C" int64_t first_not_finite(const float *rows, int64_t count, int64_t dim) {
    const auto finite = [&](int64_t first, int64_t last) {
        uint32_t large = 0;  // bit 31 where an exponent was all ones
        for (int64_t i = first * dim; i < last * dim; ++i) {
            uint32_t bits;
            std::memcpy(&bits, rows + i, sizeof bits);
            large |= (bits & 0x7fffffff) + 0x00800000;
        }
        return !(large >> 31);
    };
    if (finite(0, count)) return -1;
    int64_t i = 0;
    while (finite(i, i + 1)) ++i;
    return i;
}
