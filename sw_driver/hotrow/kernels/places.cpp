// Slots of a device's directory as places in a trainer's storage.

#include "rows.hpp"

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
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = slots[i];
        if ((slot & flag) || slot >= directory) {
            const int64_t number = (slot & flag) ? slot & ~static_cast<int64_t>(flag)
                                                 : slot - directory;
            if (number >= area_rows) return 1 + i;
            places[i] = static_cast<int32_t>(area[number]);
        } else {
            const int64_t within = (slot & mask) - first;
            if (within < 0 || within >= part) return 1 + i;
            places[i] = static_cast<int32_t>((slot >> choice_log2) * part + within);
        }
    }
    return 0;
}
