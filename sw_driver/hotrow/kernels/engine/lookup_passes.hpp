// Passes over the lookups of a batch.

#pragma once

#include <cstdint>
#include <vector>

#include "counters.hpp"
#include "directory.hpp"
#include "hotrow_contract.h"
#include "missed_rows.hpp"

namespace hotrow::engine {

// Some lookups of a batch, in order.
struct Stream {
    const uint64_t *hashes;         // by position in the batch
    const uint16_t *tables;         // by position; null without partitions
    const Partition *partitions;    // by table
    const uint32_t *positions;      // null: `count` positions from `first` on, none refused
    uint32_t first, count;

    uint32_t position(uint32_t at) const { return positions ? positions[at] : first + at; }
    Partition partition(uint32_t position) const {
        return tables ? partitions[tables[position]] : Partition{};
    }
};

enum Policy : uint8_t {
    LRU = HOTROW_POLICY_LRU,
    RRIP = HOTROW_POLICY_RRIP,
    LFU = HOTROW_POLICY_LFU,
    FREQ = HOTROW_POLICY_FREQ
};

struct PolicyState {
    Policy policy = LRU;
    bool admit = false, writes = true;

    bool counts() const { return policy >= LFU; }
    uint8_t filled(uint32_t count) const {
        return policy == LRU ? 0 : policy == RRIP ? 1 : saturated(count);
    }
    uint8_t used(uint8_t number, uint32_t count) const {
        return policy == LRU ? 0 : policy == RRIP ? 3 : policy == LFU ? saturated(count) : number;
    }
    static uint8_t saturated(uint32_t count) { return static_cast<uint8_t>(count < 255 ? count : 255); }
};

// An entry of a list of rows; a missed or bypassed row has no slot.
struct Listed {
    uint32_t position, slot;
    Row row;
};

struct BypassedLookup {
    uint32_t position, index;
};

// The plan of some lookups of a batch. Passes of one batch have disjoint sets and bypass entries.
struct PlanPass {
    Directory &directory;
    const Counters &counters;
    MissedRows &bypassed;
    std::vector<int64_t> &bypassed_by;  // last batch that bypassed a row of an entry
    int64_t newest_bypass;              // of all entries, before this batch
    PolicyState policy;
    int64_t planned, retired;
    int sweep_log2, beat_shift;
    int64_t window;
    const uint32_t *before;  // count of each row before its first lookup; null: as they are
    uint32_t *slots;         // by position

    std::vector<Listed> listed, victims;
    std::vector<BypassedLookup> bypasses;
    uint64_t hits = 0, resident_rows = 0;
    int64_t wait_for = -1;

    int64_t beat(uint32_t position) const { return position >> beat_shift; }
    uint32_t count_of(uint32_t position, uint64_t hash) const {
        return !policy.counts() ? 0 : before ? before[position] : counters.count_of(hash);
    }
    // Greatest of the stamps in use; older stamps are less far below it than 2**16.
    uint16_t newest_stamp() const { return static_cast<uint16_t>(planned + (1 << sweep_log2)); }

    // Whether the lookup of a row that this batch filled joined the first lookup of its row.
    bool joins_fill(uint32_t position, uint32_t slot) const {
        for (size_t at = listed.size(); at-- > 0;) {
            if (beat(listed[at].position) + window < beat(position)) return false;
            if (listed[at].slot == slot) return true;
        }
        return false;
    }
    void bypass(uint32_t position, uint64_t hash);
    void wait(uint64_t hash);
};

struct Installed {
    uint32_t slot;
    bool present;
};

struct Passes {
    // Hash of each lookup, or REFUSED where the id exceeds `last`; returns how many are refused.
    // `base` is the key of row 0. Pattern: base and last per lookup.
    uint64_t (*hash_pattern)(const void *ids, bool wide, uint32_t count, const uint64_t *base,
                             const uint64_t *last, uint64_t key_mask, uint64_t *hashes);
    uint64_t (*hash_run)(const void *ids, bool wide, uint32_t count, uint64_t base, uint64_t last,
                         uint64_t key_mask, uint64_t *hashes);
    // Slot of each lookup, or NO_SLOT; list the positions without one.
    void (*find)(const Directory &, const Stream &, uint32_t *slots, std::vector<uint32_t> &missed);
    // Hold the slots of the rows; returns the hits.
    uint64_t (*mark)(const Directory &, const Stream &, uint16_t batch, uint16_t newest_stamp);
    void (*plan)(PlanPass &, const Stream &);
    // Plan the lookups whose slots are held, which no row of the batch evicts, so that their order
    // does not matter and threads may share sets; list the positions of the others.
    void (*plan_held)(PlanPass &, const Stream &, std::vector<uint32_t> &others);
    void (*settle)(PlanPass &);  // after the last lookup of the batch
    Installed (*install)(Directory &, uint64_t hash, Partition, uint8_t number, uint16_t planned,
                         uint16_t retired);
    uint32_t (*remove)(Directory &, uint64_t hash, Partition);
    // Age the stamps of some sets, see `Directory`.
    void (*sweep)(Directory &, size_t first_set, size_t last_set, uint16_t oldest,
                  uint16_t newest_stamp, bool age_numbers);
};

// The passes for these sets.
const Passes &passes_for(const Directory &);

}  // namespace hotrow::engine
