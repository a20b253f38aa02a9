// A command of a ring, and the byte addresses of its lists.

#pragma once

#include <cstdint>

namespace hotrow::engine {

enum class Opcode : uint8_t {
    NOP = 0x00, FENCE, WAIT, SIGNAL,
    OBSERVE = 0x10, DECAY, HARVEST, INSTALL, REMOVE, SPLIT, PLAN, MARK,
    GATHER = 0x20, SCATTER, POOL, UPDATE, COPY, FILL
};

// A record of the command ring; fields of different commands share bytes (docs/contract.md).
struct Command {
    Opcode opcode;
    uint8_t flags;
    uint16_t reserved;
    uint32_t tag;
    uint64_t source, lengths, targets;
    union { uint64_t slots, weights; };
    union { uint64_t popular, fill_slots; };
    union { uint64_t nonpopular, victim_slots; };
    union { uint64_t misses, fills; };
    union { uint64_t victims, destination; };
    uint64_t state_destination;
    uint32_t count;
    union { uint32_t samples, bags, gradient_count; };
    uint16_t first_table, table_count;
    uint32_t stride, threshold, shift;
    union { uint32_t event, eps; };
    union { uint32_t value, lr; };
    union { uint64_t rows, gradients; };
    uint64_t state_rows;
};

static_assert(sizeof(Command) == 128);

// Byte addresses of the lists of a command.
struct Addresses {
    uint64_t source, lengths, targets;
    union { uint64_t slots, weights; };
    union { uint64_t popular, fill_slots; };
    union { uint64_t nonpopular, victim_slots; };
    union { uint64_t misses, fills; };
    union { uint64_t victims, destination; };
};

}  // namespace hotrow::engine
