// The planner's work on one core: LRU over all slots, with holds, row by row.
//
// An array holds the slot of every row. A list holds the slots in the order of their last use: free
// slots and the least recently used first; a mark counts as a use. If the first slot is held, all
// are, and the row is bypassed.

#include <cstdint>
#include <vector>

namespace {

constexpr int32_t NONE = -1;

struct Planner {
    int32_t slots;
    int32_t first, last;  // of the list
    std::vector<int32_t> slot_of, previous, next;
    std::vector<int64_t> row_at, needed;

    Planner(int64_t rows, int32_t slots)
        : slots(slots), first(0), last(slots - 1), slot_of(rows, NONE), previous(slots),
          next(slots), row_at(slots, NONE), needed(slots, NONE) {
        for (int32_t slot = 0; slot < slots; ++slot) {
            previous[slot] = slot - 1;
            next[slot] = slot + 1 < slots ? slot + 1 : NONE;
        }
    }

    void use(int32_t slot, int64_t batch) {
        if (needed[slot] < batch) needed[slot] = batch;
        if (slot == last) return;
        const int32_t left = previous[slot], right = next[slot];
        if (left == NONE) first = right; else next[left] = right;
        previous[right] = left;
        previous[slot] = last;
        next[slot] = NONE;
        next[last] = slot;
        last = slot;
    }
};

}  // namespace

extern "C" {

Planner *planner_make(int64_t rows, int32_t slots) { return new Planner(rows, slots); }

void planner_free(Planner *planner) { delete planner; }

void planner_mark(Planner *planner, const int64_t *rows, int64_t count, int64_t batch) {
    for (int64_t i = 0; i < count; ++i) {
        const int32_t slot = planner->slot_of[rows[i]];
        if (slot >= 0) planner->use(slot, batch);
    }
}

// Write the slot of each lookup, the filled rows (counts[0] of them) and the evicted rows
// (counts[1]).
void planner_plan(Planner *planner, const int64_t *rows, int64_t count, int64_t batch,
                  int64_t retired, int64_t *slots, int64_t *fills, int64_t *evicted,
                  int64_t *counts) {
    Planner &p = *planner;
    int64_t filled = 0, left = 0;
    std::vector<int64_t> bypassed;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows[i];
        int32_t slot = p.slot_of[row];
        if (slot == NONE) {
            fills[filled++] = row;
            if (p.needed[p.first] > retired) {
                slot = p.slots + static_cast<int32_t>(bypassed.size());
                bypassed.push_back(row);
            } else {
                slot = p.first;
                if (p.row_at[slot] != NONE) {
                    evicted[left++] = p.row_at[slot];
                    p.slot_of[p.row_at[slot]] = NONE;
                }
                p.row_at[slot] = row;
                p.needed[slot] = batch;
            }
            p.slot_of[row] = slot;
        }
        if (slot < p.slots) p.use(slot, batch);
        slots[i] = slot;
    }
    for (const int64_t row : bypassed) p.slot_of[row] = NONE;
    counts[0] = filled;
    counts[1] = left;
}

}
