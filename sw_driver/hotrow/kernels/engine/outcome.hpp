// What an engine reports of a command: the fields of a completion (docs/contract.md).

#pragma once

#include <cstdint>

namespace hotrow::engine {

enum class Status : uint8_t {
    OK, BAD_OPCODE, BAD_FLAGS, EMPTY, TOO_LARGE, LOOKUPS, TABLE_UNKNOWN, MISALIGNED, REGION,
    READ_ONLY, ROW_OUT_OF_RANGE, STRIDE, BAD_EVENT, ABORTED, SLVERR, DECERR, TIMEOUT, ROW_SHAPE,
    BATCH_ORDER, WINDOW, STALLED
};

// Fault of a bus word.
constexpr uint8_t FAULT_SLVERR = 1, FAULT_DECERR = 2;

inline Status fault_status(uint8_t fault) {
    return fault ? static_cast<Status>(static_cast<int>(Status::SLVERR) - 1 + fault) : Status::OK;
}

struct Outcome {
    Status status = Status::OK;
    uint64_t error_index = 0, error_address = 0, bytes = 0;
    uint32_t lookups = 0, hits = 0, misses = 0, unique = 0, popular = 0, entries = 0, refused = 0,
             evictions = 0, bypasses = 0, wait_for = 0;
};

}  // namespace hotrow::engine
