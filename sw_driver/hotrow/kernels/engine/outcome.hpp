// What an engine reports of a command: the fields of a completion (docs/contract.md).

#pragma once

#include "hotrow_contract.h"

namespace hotrow::engine {

enum class Status : uint8_t {
#define HOTROW_STATUS(name, value) name = value,
    HOTROW_STATUSES(HOTROW_STATUS)
#undef HOTROW_STATUS
};

// Fault of a bus word.
constexpr uint8_t FAULT_SLVERR = 1, FAULT_DECERR = 2;

inline Status fault_status(uint8_t fault) {
    return !fault ? Status::OK : fault == FAULT_SLVERR ? Status::SLVERR : Status::DECERR;
}

struct Outcome {
    Status status = Status::OK;
    uint64_t error_index = 0, error_address = 0, bytes = 0;
    uint32_t lookups = 0, hits = 0, misses = 0, unique = 0, popular = 0, entries = 0, refused = 0,
             evictions = 0, bypasses = 0, wait_for = 0;
};

}  // namespace hotrow::engine
