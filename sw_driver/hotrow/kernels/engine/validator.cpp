#include "validator.hpp"

namespace hotrow::engine {

namespace {

constexpr uint32_t LISTED = 1, ALL = 1, ID64 = 1, JAGGED = 4, WEIGHTED = 4, COUNT_AND_ADMIT = 24;
constexpr uint32_t LIST_ALIGNMENT = 64, ROW_ALIGNMENT = 16, STATE_ALIGNMENT = 4;
constexpr uint32_t LARGEST_STRIDE = 65520;

Outcome refused(Status status, uint64_t index = 0) {
    Outcome outcome;
    outcome.status = status;
    outcome.error_index = index;
    return outcome;
}

// Bits that a command defines, or -1 for an opcode that the queue does not serve.
int flags_of(Opcode opcode, Queue queue, bool planner) {
    switch (opcode) {
        case Opcode::NOP: case Opcode::FENCE: case Opcode::WAIT: case Opcode::SIGNAL: return 0;
        default: break;
    }
    if (queue == Queue::LOOKUP) switch (opcode) {
        case Opcode::OBSERVE: case Opcode::SPLIT: return 15;
        case Opcode::DECAY: case Opcode::REMOVE: return 1;
        case Opcode::HARVEST: return 0;
        case Opcode::INSTALL: return planner ? 192 : 0;
        case Opcode::PLAN: return 255;
        case Opcode::MARK: return 7;
        default: return -1;
    }
    switch (opcode) {
        case Opcode::GATHER: case Opcode::SCATTER: return 3;
        case Opcode::POOL: case Opcode::UPDATE: return 7;
        case Opcode::COPY: case Opcode::FILL: return 0;
        default: return -1;
    }
}

}  // namespace

Outcome Validator::validate(const Command &command, Queue queue, Addresses &addresses) const {
    Outcome outcome = check_opcode(command, queue);
    if (outcome.status == Status::OK) outcome = check_shape(command);
    if (outcome.status == Status::OK && is_batch(command.opcode))
        for (uint32_t column = 0; column < command.table_count; ++column) {
            const uint32_t number = uint32_t{command.first_table} + column;
            if (!tables_.find(number)) return refused(Status::TABLE_UNKNOWN, number);
        }
    return outcome.status == Status::OK ? check_lists(command, addresses) : outcome;
}

Outcome Validator::check_opcode(const Command &command, Queue queue) const {
    const Opcode opcode = command.opcode;
    const bool absent =
        (is_arithmetic(opcode) && !geometry_.arithmetic) ||
        ((opcode == Opcode::PLAN || opcode == Opcode::MARK) && !geometry_.planner);
    const int defined = flags_of(opcode, queue, geometry_.planner);
    if (absent || defined < 0)
        return refused(Status::BAD_OPCODE, static_cast<uint64_t>(opcode));
    const bool contrary =
        opcode == Opcode::PLAN && (command.flags & COUNT_AND_ADMIT) == COUNT_AND_ADMIT;
    if ((command.flags & ~defined) || contrary) return refused(Status::BAD_FLAGS, command.flags);
    return {};
}

Outcome Validator::check_shape(const Command &command) const {
    const Opcode opcode = command.opcode;
    if ((opcode == Opcode::WAIT || opcode == Opcode::SIGNAL) && command.event >= geometry_.events)
        return refused(Status::BAD_EVENT, command.event);
    if (is_batch(opcode)) return check_batch(command);
    const bool all = opcode == Opcode::REMOVE && (command.flags & ALL);
    const bool counted = opcode == Opcode::INSTALL || opcode == Opcode::REMOVE ||
                         opcode == Opcode::HARVEST || moves_rows(opcode) || is_span(opcode);
    if (counted && !command.count && !all) return refused(Status::EMPTY);
    if (is_arithmetic(opcode) && !command.bags) return refused(Status::EMPTY);
    const uint32_t stride = command.stride;
    if (moves_rows(opcode) && (!stride || stride > LARGEST_STRIDE || stride % ROW_ALIGNMENT))
        return refused(Status::MISALIGNED, stride);
    if (is_span(opcode) && command.count % STATE_ALIGNMENT)
        return refused(Status::MISALIGNED, command.count);
    return {};
}

Outcome Validator::check_batch(const Command &command) const {
    const uint64_t bags = uint64_t{command.samples} * command.table_count;
    if (!bags || !command.count) return refused(Status::EMPTY);
    if (command.samples > geometry_.batch_samples)
        return refused(Status::TOO_LARGE, command.samples);
    if (command.count > geometry_.batch_lookups) return refused(Status::TOO_LARGE, command.count);
    if (!(command.flags & JAGGED) && command.count != bags) return refused(Status::LOOKUPS, bags);
    return {};
}

Outcome Validator::check_lists(const Command &command, Addresses &addresses) const {
    Outcome outcome;
    const uint64_t count = command.count, flags = command.flags, samples = command.samples;
    // Check one operand, unless an earlier one failed; `address` receives its byte address.
    const auto operand = [&](uint64_t packed, uint64_t size, bool write, uint64_t alignment,
                             uint64_t &address) {
        if (outcome.status != Status::OK) return;
        outcome.status = regions_.check(packed, size, write, address);
        if (outcome.status == Status::OK && address % alignment) outcome.status = Status::MISALIGNED;
        if (outcome.status != Status::OK) outcome.error_address = packed;
    };
    const auto list = [&](uint64_t packed, uint64_t size, bool write, uint64_t &address) {
        operand(packed, size, write, LIST_ALIGNMENT, address);
    };
    const Opcode opcode = command.opcode;
    if (is_batch(opcode)) {
        list(command.source, count * (flags & ID64 ? 8 : 4), false, addresses.source);
        if (flags & JAGGED)
            list(command.lengths, 2 * samples * command.table_count, false, addresses.lengths);
        if (opcode == Opcode::SPLIT) {
            list(command.slots, 4 * count, true, addresses.slots);
            list(command.popular, 4 * samples, true, addresses.popular);
            list(command.nonpopular, 4 * samples, true, addresses.nonpopular);
            list(command.misses, 8 * count, true, addresses.misses);
        } else if (opcode == Opcode::PLAN) {
            list(command.slots, 4 * count, true, addresses.slots);
            list(command.fill_slots, 4 * count, true, addresses.fill_slots);
            list(command.victim_slots, 4 * count, true, addresses.victim_slots);
            list(command.fills, 8 * count, true, addresses.fills);
            list(command.victims, 8 * count, true, addresses.victims);
        }
    } else if (opcode == Opcode::HARVEST) {
        list(command.destination, 16 * count, true, addresses.destination);
    } else if (opcode == Opcode::INSTALL || (opcode == Opcode::REMOVE && !(flags & ALL))) {
        list(command.source, 8 * count, false, addresses.source);
        list(command.slots, 4 * count, true, addresses.slots);
    } else if (moves_rows(opcode)) {
        list(command.source, 8 * count, false, addresses.source);
        const bool pools = opcode == Opcode::POOL, updates = opcode == Opcode::UPDATE;
        if (pools || updates)
            list(command.lengths, 2 * (pools ? command.bags : count), false, addresses.lengths);
        if (flags & LISTED)
            list(command.targets, 4 * (pools || updates ? command.bags : count), false,
                 addresses.targets);
        if (pools && (flags & WEIGHTED))
            list(command.weights, 4 * count, false, addresses.weights);
    } else if (is_span(opcode)) {
        uint64_t unused;
        if (opcode == Opcode::COPY)
            operand(command.source, count, false, STATE_ALIGNMENT, unused);
        operand(command.destination, count, true, STATE_ALIGNMENT, unused);
    }
    return outcome;
}

}  // namespace hotrow::engine
