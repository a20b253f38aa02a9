// The checks that a command passes before it has any effect.

#pragma once

#include "command.hpp"
#include "geometry.hpp"
#include "outcome.hpp"
#include "regions.hpp"
#include "tables.hpp"

namespace hotrow::engine {

enum class Queue : uint8_t { LOOKUP, MOVE };

class Validator {
public:
    Validator(const Geometry &geometry, const Regions &regions, const Tables &tables)
        : geometry_(geometry), regions_(regions), tables_(tables) {}

    // The first error, or OK and the byte address of each list. The addresses of spans stay packed.
    Outcome validate(const Command &, Queue, Addresses &) const;
    // The first error that is not of its lists.
    Outcome check_operands(const Command &, Queue) const;

private:
    Outcome check_opcode(const Command &, Queue) const;
    Outcome check_shape(const Command &) const;
    Outcome check_batch(const Command &) const;
    Outcome check_lists(const Command &, Addresses &) const;

    const Geometry &geometry_;
    const Regions &regions_;
    const Tables &tables_;
};

inline bool is_batch(Opcode opcode) {
    return opcode == Opcode::OBSERVE || opcode == Opcode::SPLIT || opcode == Opcode::PLAN ||
           opcode == Opcode::MARK;
}
inline bool is_arithmetic(Opcode opcode) {
    return opcode == Opcode::POOL || opcode == Opcode::UPDATE;
}
// A POOL of the ids of a batch.
inline bool pools_batch(const Command &command) {
    return opcode_of(command) == Opcode::POOL && (command.flags & HOTROW_POOL_BATCH);
}
// Bags of a POOL, or gradients of an UPDATE.
inline uint64_t bag_count(const Command &command) {
    return uint64_t{command.bags} * (pools_batch(command) ? command.table_count : 1);
}
inline bool is_span(Opcode opcode) { return opcode == Opcode::COPY || opcode == Opcode::FILL; }
inline bool moves_rows(Opcode opcode) {
    return opcode >= Opcode::GATHER && opcode <= Opcode::UPDATE;
}

}  // namespace hotrow::engine
