// A command of a ring, and the byte addresses of its lists.

#pragma once

#include "hotrow_contract.h"

namespace hotrow::engine {

enum class Opcode : uint8_t {
#define HOTROW_OPCODE(name, opcode, ...) name = opcode,
    HOTROW_COMMANDS(HOTROW_OPCODE)
#undef HOTROW_OPCODE
};

using Command = hotrow_command;

inline Opcode opcode_of(const Command &command) { return static_cast<Opcode>(command.opcode); }

// Where the slots of a PLAN go as places in a trainer's storage, see `place_slots`.
struct Places {
    struct Part {
        int64_t begin, end, first;  // lookups, and the first slot of their partition in each choice
    };
    int32_t *places;  // by lookup
    const Part *parts;
    int64_t count, part;
    int32_t choice_log2, placed;  // `placed`: whether the places were written, and not the slots
};

// Byte addresses of the lists of a command; with `places` they are pointers of the host.
struct Addresses {
    uint64_t source, lengths, targets;
    union { uint64_t slots, weights; };
    union { uint64_t popular, fill_slots; };
    union { uint64_t nonpopular, victim_slots; };
    union { uint64_t misses, fills; };
    union { uint64_t victims, destination; };
    Places *places = nullptr;
};

}  // namespace hotrow::engine
