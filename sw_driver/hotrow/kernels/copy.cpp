// Rows from one array to another.

#include "rows.hpp"

// Copy `count` rows of `bytes`: to row to[i] from row from[i], or row i where there is no index.
//
// Strides are in bytes. Returns 0, 1 + i where index i is no row of its array, or -1 - i where to[i]
// occurs before; then nothing was copied.
extern "C" int64_t copy_rows(char *target, int64_t target_rows, int64_t target_stride, Integers to,
                             const char *source, int64_t source_rows, int64_t source_stride,
                             Integers from, int64_t count, int64_t bytes, int threads) try {
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t t = to.data ? to[i] : i, s = from.data ? from[i] : i;
        if (t >= static_cast<uint64_t>(target_rows) || s >= static_cast<uint64_t>(source_rows))
            return 1 + i;
    }
    const int64_t repeated = to.data ? first_repeated(to, count) : -1;
    if (repeated >= 0) return -1 - repeated;
    if (!bytes) return 0;
    parallel(count, threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            if (i + PREFETCH < last) {
                if (from.data) prefetch<0>(source, from[i + PREFETCH], source_stride, bytes);
                if (to.data) prefetch<1>(target, to[i + PREFETCH], target_stride, bytes);
            }
            std::memcpy(target + (to.data ? to[i] : i) * target_stride,
                        source + (from.data ? from[i] : i) * source_stride, bytes);
        }
    });
    return 0;
} catch (const std::exception &) {
    return NO_MEMORY;
}
