// The sets of the directory: tags and the planner's stamps of each slot.
//
// A set is one block of memory: the tags, then the two stamps of each way. With 8 ways and tags of
// at most 29 bits it is one cache line. Numbers are apart, as LRU needs none.
//
// Stamps are the low 16 bits of batch numbers. A sweep every `sweep_batches` makes older stamps
// `oldest_stamp` old, so that stamps of at most 16 bits keep their order.

#pragma once

#include <cstdint>
#include <cstring>

#include "hotrow_contract.h"
#include "aligned_memory.hpp"
#include "geometry.hpp"
#include "lookup_keys.hpp"

namespace hotrow::engine {

constexpr uint32_t NO_SLOT = HOTROW_NO_SLOT;

template <class Tag, int WAYS>
struct SetBlock {
    // Tag + 1, and in the two highest bits whether the slot is dirty, and whether the batch that is
    // planned filled it; 0 is a free way.
    Tag tags[WAYS];
    uint16_t needed[WAYS];  // last batch that needs the slot
    uint16_t used[WAYS];    // last batch that was planned with the slot
};

// The partition of the directory that a table uses.
struct Partition {
    uint8_t parts_log2 = 0, part = 0;
};

struct Directory {
    KeyShape keys;
    int ways;
    bool wide;  // tags of 64 bits
    size_t slots, block_bytes;
    AlignedMemory blocks, numbers;
    bool numbered = false;  // a slot may have another number than 0

    explicit Directory(const Geometry &g)
        : keys(g), ways(g.directory_ways), wide(keys.tag_width() > 29), slots(g.slots()),
          block_bytes(ways * ((wide ? 8 : 4) + 4)),
          blocks(slots / ways * block_bytes), numbers(slots) {
        clear();
    }

    void clear() {
        const size_t tags = ways * (wide ? 8 : 4);
        for (size_t set = 0; set < slots / ways; ++set) {
            std::memset(blocks.data() + set * block_bytes, 0, tags);
            std::memset(blocks.data() + set * block_bytes + tags, 0xFF, block_bytes - tags);
        }
        std::memset(numbers.data(), 0, slots);
        numbered = false;
    }
};

}  // namespace hotrow::engine
