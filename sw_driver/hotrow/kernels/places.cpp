// Slots of a device's directory as places in a trainer's storage.

#include "passes.hpp"

// Translate the slots of a batch: a slot of the directory to its place in one partition, and the
// k-th row without a slot to area[k].
//
// A row without a slot is `directory` + k, or `flag` | k where there is a flag. The directory has
// one half per hash choice of 2**choice_log2 slots, and a partition `part` consecutive slots of
// each, from `first` on. Returns 0, or 1 + i where slot i is not in the partition or has no place
// in the area.
extern "C" int64_t place_slots(const uint32_t *slots, int64_t count, int64_t directory,
                               uint32_t flag, int32_t choice_log2, int64_t part, int64_t first,
                               const int64_t *area, int64_t area_rows, int32_t *places) {
    const int64_t mask = (int64_t{1} << choice_log2) - 1;
    if (part == mask + 1 && !first) {  // a partition of the whole directory: a slot is its place
        uint32_t most = flag;
        for (int64_t i = 0; i < count; ++i) most = std::max(most, slots[i]);
        if (most < std::min<int64_t>(directory, INT32_MAX)) {
            std::memcpy(places, slots, count * sizeof *places);
            return 0;
        }
    }
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = slots[i];
        if ((slot & flag) || slot >= directory) {
            const int64_t number = (slot & flag) ? slot & ~static_cast<int64_t>(flag)
                                                 : slot - directory;
            if (number >= area_rows || area[number] < 0 || area[number] > INT32_MAX) return 1 + i;
            places[i] = static_cast<int32_t>(area[number]);
        } else {
            const int64_t within = (slot & mask) - first;
            const int64_t place = (slot >> choice_log2) * part + within;
            if (within < 0 || within >= part || place > INT32_MAX) return 1 + i;
            places[i] = static_cast<int32_t>(place);
        }
    }
    return 0;
}

// The tables and rows of flat rows: entry i is row, table of flat[i]. Table t of `tables` begins at
// first[t], ascending from 0, and has the number `number` + t. Returns 0, or 1 + i where flat[i] is
// negative or no 32-bit row of its table.
extern "C" int64_t locate_rows(const int64_t *flat, int64_t count, const int64_t *first,
                               int64_t tables, uint32_t number, uint32_t *entries) {
    int64_t at = 0;  // of the row before: rows of a table mostly follow one another
    for (int64_t i = 0; i < count; ++i) {
        if (flat[i] < 0) return 1 + i;
        if (flat[i] < first[at] || (at + 1 < tables && flat[i] >= first[at + 1]))
            at = std::upper_bound(first, first + tables, flat[i]) - first - 1;
        if (flat[i] - first[at] > UINT32_MAX) return 1 + i;
        entries[2 * i] = static_cast<uint32_t>(flat[i] - first[at]);
        entries[2 * i + 1] = number + static_cast<uint32_t>(at);
    }
    return 0;
}

// Select the rows of one group among rows that a device listed.
//
// Row i is keys[i], table << 32 | row, in slot slots[i]; group_of and first are by table. Writes for
// each chosen row first[table] + row and its slot, and adds to with[table] the rows with a slot and
// to without[table] the others. Returns the number of chosen rows, or -1 - i where row i has no such
// table.
extern "C" int64_t select_rows(const uint64_t *keys, const uint32_t *slots, int64_t count,
                               int64_t tables, const int32_t *group_of, const int64_t *first,
                               int32_t group, int64_t directory, int64_t *flat,
                               uint32_t *chosen_slots, int64_t *with, int64_t *without) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t t = keys[i] >> 32;
        if (t >= static_cast<uint64_t>(tables)) return -1 - i;
        if (group_of[t] != group) continue;
        flat[found] = static_cast<uint64_t>(first[t]) + static_cast<uint32_t>(keys[i]);
        chosen_slots[found++] = slots[i];
        ++(slots[i] < directory ? with : without)[t];
    }
    return found;
}

// Record the rows in some slots: held[places[i]] = flat[i], and no slot of them is dirty.
//
// Returns 0, 1 + i where place i is no slot, or row i none of the type, or -1 - i where place i
// occurs before; then nothing was recorded.
extern "C" int64_t assign_slots(const int32_t *places, const int64_t *flat, int64_t count,
                                int64_t slots, void *held, int32_t wide, uint8_t *dirty) try {
    for (int64_t i = 0; i < count; ++i)
        if (static_cast<uint32_t>(places[i]) >= static_cast<uint64_t>(slots) || flat[i] < 0 ||
            (!wide && flat[i] > INT32_MAX))
            return 1 + i;
    const int64_t repeated = first_repeated(Integers{places, 0}, count);
    if (repeated >= 0) return -1 - repeated;
    for (int64_t i = 0; i < count; ++i) {
        if (i + PREFETCH < count) {
            prefetch<1>(static_cast<char *>(held), places[i + PREFETCH], wide ? 8 : 4, 1);
            prefetch<1>(dirty, places[i + PREFETCH], 1, 1);
        }
        if (wide) static_cast<int64_t *>(held)[places[i]] = flat[i];
        else static_cast<int32_t *>(held)[places[i]] = static_cast<int32_t>(flat[i]);
        dirty[places[i]] = 0;
    }
    return 0;
} catch (const std::exception &) {
    return NO_MEMORY;
}

// Mark the slots among some places dirty, and list the others. Returns their number, or -1 - i
// where place i is negative.
extern "C" int64_t mark_dirty(Integers places, int64_t count, int64_t slots, uint8_t *dirty,
                              int64_t *others) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (i + PREFETCH < count) prefetch<1>(dirty, places[i + PREFETCH], 1, 1);
        const int64_t place = places[i];
        if (place < 0) return -1 - i;
        if (place < slots) dirty[place] = 1;
        else others[found++] = place;
    }
    return found;
}
