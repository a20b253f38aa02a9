// Numbers of lookups among the distinct slots of a batch.

#include "passes.hpp"

// Number the distinct slots in order of first appearance.
//
// table[slot] is the slot's number if it is less than the count of distinct slots so far and
// distinct[table[slot]] is the slot; any contents will do at the start (P. Briggs and L. Torczon,
// "An efficient representation for sparse sets", 1993). Lookup i * columns + j has the slot at
// i * row_stride + j * column_stride.
//
// Returns the count of distinct slots, or -1 - i where lookup i is no slot.
extern "C" int64_t group(Integers slots, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride, int64_t keys, int32_t *table, int32_t *numbers,
                         void *distinct, int32_t *counts) {
    int64_t found = 0, i = 0;
    if (!rows || !columns) return 0;
    const auto run = [&](const auto *from, auto *unique) -> int64_t {
        for (int64_t row = 0; row < rows; ++row) {
            const auto *each = from + row * row_stride;
            for (int64_t column = 0; column < columns; ++column, each += column_stride, ++i) {
                if (column + PREFETCH < columns) {
                    prefetch<0>(table, each[PREFETCH * column_stride], 1, 1);
                }
                const auto slot = *each;
                if (static_cast<uint64_t>(slot) >= static_cast<uint64_t>(keys)) return -1 - i;
                // Without branches: whether a slot was seen before is hard to predict.
                const uint64_t last = static_cast<uint32_t>(table[slot]);
                const bool plausible = last < static_cast<uint64_t>(found);
                const int64_t candidate = plausible ? last : 0;
                const bool known = plausible & (unique[candidate] == slot);
                const int64_t number = known ? candidate : found;
                table[slot] = static_cast<int32_t>(number);
                unique[number] = slot;
                counts[number] = (known ? counts[number] : 0) + 1;
                numbers[i] = static_cast<int32_t>(number);
                found += !known;
            }
        }
        return found;
    };
    if (slots.wide)
        return run(static_cast<const int64_t *>(slots.data), static_cast<int64_t *>(distinct));
    return run(static_cast<const int32_t *>(slots.data), static_cast<int32_t *>(distinct));
}

// Number the distinct keys in order of first appearance, and list where each appears first.
//
// `table` has memory for `mask` + 1 entries, a power of two above `count`. Returns the number of
// distinct keys.
extern "C" int64_t number_keys(const uint64_t *keys, int64_t count, int32_t *table, uint64_t mask,
                               int64_t *numbers, int64_t *first) {
    std::fill(table, table + mask + 1, -1);
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        uint64_t at = (keys[i] * 0x9E3779B97F4A7C15u) >> 20 & mask;
        while (table[at] >= 0 && keys[first[table[at]]] != keys[i]) at = (at + 1) & mask;
        if (table[at] < 0) {
            table[at] = static_cast<int32_t>(found);
            first[found++] = i;
        }
        numbers[i] = table[at];
    }
    return found;
}

// List the bags of each distinct slot's lookups, slot after slot, in lookup order.
//
// `next` has memory for a position of each distinct slot. Returns 0, or -1 where lengths, numbers
// and counts are not those of the lookups.
extern "C" int64_t list_bags(Integers lengths, int64_t bags, const int32_t *numbers,
                             int64_t lookups, const int32_t *counts, int64_t distinct,
                             int32_t *next, uint32_t *places) {
    int64_t total = 0, i = 0;
    for (int64_t number = 0; number < distinct; total += counts[number++]) {
        if (counts[number] < 0) return -1;
        next[number] = static_cast<int32_t>(total);
    }
    if (total != lookups) return -1;
    for (int64_t bag = 0; bag < bags; ++bag) {
        const int64_t length = lengths.data ? lengths[bag] : 1;
        if (length < 0 || length > lookups - i) return -1;
        for (const int64_t end = i + length; i < end; ++i) {
            const int64_t number = numbers[i];
            if (number < 0 || number >= distinct || next[number] >= lookups) return -1;
            places[next[number]++] = static_cast<uint32_t>(bag);
        }
    }
    return i == lookups ? 0 : -1;
}
