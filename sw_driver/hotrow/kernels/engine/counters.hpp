// The access counters: a set-associative table of saturating counts with eviction credit.
//
// The rules are those of hotrow_sim/golden/lookup/counters.py. A set is one block of memory: the
// counts of its ways, then their tags; credit is apart.

#pragma once

#include <cstdint>
#include <vector>

#include "aligned_memory.hpp"
#include "geometry.hpp"
#include "lookup_keys.hpp"

namespace hotrow::engine {

struct Harvested {
    uint32_t row, table, count, zero;
};

struct Counters {
    KeyShape keys;
    int ways, sets_log2;  // sets over all banks; a set is the lowest bits of a hash
    bool wide;            // tags of 64 bits
    uint32_t limit;
    size_t block_bytes;
    AlignedMemory blocks, credit;

    explicit Counters(const Geometry &g);

    void clear();
    void decay(uint32_t shift);

    // Up to `wanted` rows with the highest counts, at least `threshold`, in order of set and way;
    // ties at the last rank are cut in that order.
    std::vector<Harvested> harvest(uint32_t wanted, uint32_t threshold) const;

    uint32_t count_of(uint64_t hash) const;

    // Count an owner with `amount` lookups; return the count of its row before, or -1 if the row
    // had none.
    int64_t count(uint64_t hash, uint32_t amount);

    void prefetch(uint64_t hash) const {
        __builtin_prefetch(blocks.data() + (hash & low_bits(sets_log2)) * block_bytes, 1);
    }

private:
    template <class Tag>
    int64_t count_in(uint64_t hash, uint32_t amount);

    size_t sets() const { return size_t{1} << sets_log2; }
    uint32_t *counts(size_t set) const {
        return reinterpret_cast<uint32_t *>(blocks.data() + set * block_bytes);
    }
    uint64_t tag(size_t set, int way) const {
        const uint32_t *tags = counts(set) + ways;
        return wide ? reinterpret_cast<const PackedTag *>(tags)[way].value : tags[way];
    }
    struct __attribute__((packed)) PackedTag {
        uint64_t value;
    };
};

}  // namespace hotrow::engine
