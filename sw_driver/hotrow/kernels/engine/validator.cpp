#include "validator.hpp"

namespace hotrow::engine {

namespace {

Outcome refused(Status status, uint64_t index = 0) {
    Outcome outcome;
    outcome.status = status;
    outcome.error_index = index;
    return outcome;
}

struct Rule {
    bool served;
    int flags, contrary;
};

Rule rule_of(Opcode opcode, Queue queue) {
    switch (opcode) {
#define HOTROW_RULE(name, value, lookup, move, flags, contrary) \
    case Opcode::name: return {queue == Queue::LOOKUP ? lookup : move, flags, contrary};
        HOTROW_COMMANDS(HOTROW_RULE)
#undef HOTROW_RULE
    }
    return {};
}

}  // namespace

Outcome Validator::validate(const Command &command, Queue queue, Addresses &addresses) const {
    const Outcome outcome = check_operands(command, queue);
    return outcome.status == Status::OK ? check_lists(command, addresses) : outcome;
}

Outcome Validator::check_operands(const Command &command, Queue queue) const {
    Outcome outcome = check_opcode(command, queue);
    if (outcome.status == Status::OK) outcome = check_shape(command);
    if (outcome.status == Status::OK && (is_batch(opcode_of(command)) || pools_batch(command)))
        for (uint32_t column = 0; column < command.table_count; ++column) {
            const uint32_t number = uint32_t{command.first_table} + column;
            if (!tables_.find(number)) return refused(Status::TABLE_UNKNOWN, number);
        }
    return outcome;
}

Outcome Validator::check_opcode(const Command &command, Queue queue) const {
    const Opcode opcode = opcode_of(command);
    Rule rule = rule_of(opcode, queue);
    if ((is_arithmetic(opcode) && !geometry_.arithmetic) ||
        ((opcode == Opcode::PLAN || opcode == Opcode::MARK) && !geometry_.planner))
        rule.served = false;
    if (opcode == Opcode::INSTALL && !geometry_.planner) rule.flags = 0;
    if (opcode == Opcode::POOL && geometry_.arithmetic < 2) rule.flags &= ~HOTROW_POOL_BATCH;
    if (!rule.served) return refused(Status::BAD_OPCODE, command.opcode);
    if ((command.flags & ~rule.flags) ||
        (rule.contrary && (command.flags & rule.contrary) == rule.contrary))
        return refused(Status::BAD_FLAGS, command.flags);
    return {};
}

Outcome Validator::check_shape(const Command &command) const {
    const Opcode opcode = opcode_of(command);
    if ((opcode == Opcode::WAIT || opcode == Opcode::SIGNAL) && command.event >= geometry_.events)
        return refused(Status::BAD_EVENT, command.event);
    if (is_batch(opcode)) return check_batch(command);
    if (pools_batch(command)) {
        const Outcome outcome = check_batch(command);
        if (outcome.status != Status::OK) return outcome;
    }
    const bool all = opcode == Opcode::REMOVE && (command.flags & HOTROW_ALL_ALL);
    const bool counted = opcode == Opcode::INSTALL || opcode == Opcode::REMOVE ||
                         opcode == Opcode::HARVEST || moves_rows(opcode) || is_span(opcode);
    if (counted && !command.count && !all) return refused(Status::EMPTY);
    if (is_arithmetic(opcode) && !command.bags) return refused(Status::EMPTY);
    const uint32_t stride = command.stride;
    if (moves_rows(opcode) && (!stride || stride > HOTROW_LARGEST_STRIDE || stride % HOTROW_ROW_ALIGNMENT))
        return refused(Status::MISALIGNED, stride);
    if (is_span(opcode) && command.count % HOTROW_STATE_ALIGNMENT)
        return refused(Status::MISALIGNED, command.count);
    return {};
}

Outcome Validator::check_batch(const Command &command) const {
    const uint64_t bags = uint64_t{command.samples} * command.table_count;
    if (!bags || !command.count) return refused(Status::EMPTY);
    if (command.samples > geometry_.batch_samples)
        return refused(Status::TOO_LARGE, command.samples);
    if (command.count > geometry_.batch_lookups) return refused(Status::TOO_LARGE, command.count);
    const bool jagged = pools_batch(command) || (command.flags & HOTROW_BATCH_JAGGED);
    if (!jagged && command.count != bags) return refused(Status::LOOKUPS, bags);
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
        operand(packed, size, write, HOTROW_LIST_ALIGNMENT, address);
    };
    const Opcode opcode = opcode_of(command);
    if (is_batch(opcode)) {
        list(command.source, count * (flags & HOTROW_BATCH_ID64 ? 8 : 4), false, addresses.source);
        if (flags & HOTROW_BATCH_JAGGED)
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
    } else if (opcode == Opcode::INSTALL || (opcode == Opcode::REMOVE && !(flags & HOTROW_ALL_ALL))) {
        list(command.source, 8 * count, false, addresses.source);
        list(command.slots, 4 * count, true, addresses.slots);
    } else if (moves_rows(opcode)) {
        list(command.source, (pools_batch(command) ? 4 : 8) * count, false, addresses.source);
        const bool pools = opcode == Opcode::POOL, updates = opcode == Opcode::UPDATE;
        if (pools || updates)
            list(command.lengths, 2 * (pools ? bag_count(command) : count), false,
                 addresses.lengths);
        if (flags & HOTROW_GATHER_LISTED)
            list(command.targets, 4 * (pools || updates ? bag_count(command) : count), false,
                 addresses.targets);
        if (pools && (flags & HOTROW_POOL_WEIGHTED))
            list(command.weights, 4 * count, false, addresses.weights);
    } else if (is_span(opcode)) {
        uint64_t unused;
        if (opcode == Opcode::COPY)
            operand(command.source, count, false, HOTROW_STATE_ALIGNMENT, unused);
        operand(command.destination, count, true, HOTROW_STATE_ALIGNMENT, unused);
    }
    return outcome;
}

}  // namespace hotrow::engine
