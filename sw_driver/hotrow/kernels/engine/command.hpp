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
