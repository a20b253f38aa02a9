// COPY and FILL: consecutive bytes, in pieces of the longest row where memory has faults.

#include <algorithm>
#include <cstring>

#include "move_engine.hpp"

namespace hotrow::engine {

namespace {

void fill(uint8_t *to, uint32_t pattern, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += sizeof pattern)
        std::memcpy(to + at, &pattern, sizeof pattern);
}

}  // namespace

Outcome MoveEngine::move_span(const Command &command) {
    const bool fills = opcode_of(command) == Opcode::FILL;
    const uint64_t count = command.count, piece = geometry_.row_bytes;
    uint64_t source = 0, destination;
    if (!fills) regions_.check(command.source, count, false, source);
    regions_.check(command.destination, count, true, destination);

    Outcome outcome;
    const uint8_t *const from = fills ? nullptr : memory_.view(source, count);
    uint8_t *const to = memory_.view(destination, count, true);
    if (to && (fills || from)) {
        const bool apart = fills || from + count <= to || to + count <= from;
        const int parts = apart ? parts_for(count) : 1;
        workers_.run(parts, [&](int part) {
            const uint64_t first = count * part / parts / 64 * 64;
            const uint64_t last = part + 1 == parts ? count : count * (part + 1) / parts / 64 * 64;
            if (fills) fill(to + first, command.value, last - first);
            else if (apart) std::memcpy(to + first, from + first, last - first);
            else std::memmove(to, from, count);
        });
        outcome.entries = static_cast<uint32_t>((count + piece - 1) / piece);
        outcome.bytes = count;
        return outcome;
    }
    std::vector<uint8_t> octets(piece);
    FirstError error;
    for (uint64_t start = 0; start < count; start += piece) {
        const uint64_t length = std::min(piece, count - start), number = start / piece;
        if (fills) {
            fill(octets.data(), command.value, length);
        } else if (const uint8_t *here = memory_.view(source + start, length)) {
            std::memcpy(octets.data(), here, length);
        } else {
            error.note(number, Status::DECERR, command.source + start);
            continue;
        }
        const uint8_t fault = memory_.write(destination + start, octets.data(), length);
        if (fault) {
            error.note(number, fault_status(fault), command.destination + start);
            continue;
        }
        ++outcome.entries;
        outcome.bytes += length;
    }
    error.report(outcome);
    return outcome;
}

}  // namespace hotrow::engine
