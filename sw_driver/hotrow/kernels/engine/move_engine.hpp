// The commands of the move queue: copies of rows and bytes, pooled bags, and updates.
//
// Answers equal those of hotrow_sim.model.move_engine to the bit, whatever the number of threads.

#pragma once

#include <cstdint>
#include <vector>

#include "command.hpp"
#include "geometry.hpp"
#include "lists.hpp"
#include "lookup_keys.hpp"
#include "memory.hpp"
#include "outcome.hpp"
#include "regions.hpp"
#include "tables.hpp"
#include "workers.hpp"

namespace hotrow::engine {

class MoveEngine {
public:
    MoveEngine(const Geometry &geometry, const Memory &memory, const Regions &regions,
               const Tables &tables, Workers &workers)
        : geometry_(geometry), memory_(memory), regions_(regions), tables_(tables),
          workers_(workers) {}

    // Execute a command that the validator accepts.
    Outcome execute(const Command &, const Addresses &);

private:
    // GATHER, SCATTER (row_copies.cpp).
    Outcome copy_rows(const Command &, const Addresses &);
    // COPY, FILL (span_moves.cpp).
    Outcome move_span(const Command &);
    // POOL (row_pooling.cpp).
    Outcome pool(const Command &, const Addresses &);
    // UPDATE (row_updates.cpp).
    Outcome update(const Command &, const Addresses &);

    // Threads that a list of so many bytes pays for.
    int parts_for(uint64_t bytes) const;

    const Geometry &geometry_;
    const Memory &memory_;
    const Regions &regions_;
    const Tables &tables_;
    Workers &workers_;
};

// Bags of a list before the first one that is invalid, and the error of that bag.
struct CompleteBags {
    std::vector<uint64_t> first;  // first element of each complete bag, and their number
    Outcome ended;

    CompleteBags(const List<uint16_t> &lengths, uint64_t bags, uint64_t room, uint32_t least) {
        first.reserve(bags + 1);
        first.push_back(0);
        for (uint64_t bag = 0; bag < bags; ++bag) {
            const uint64_t end = first.back() + lengths[bag];
            const Status fault = lengths.status(bag);
            if (fault != Status::OK || end > room || lengths[bag] < least) {
                ended.status = fault != Status::OK ? fault : Status::LOOKUPS;
                ended.error_index = fault != Status::OK ? first.back() : end;
                return;
            }
            first.push_back(end);
        }
        if (first.back() == room) return;
        ended.status = Status::LOOKUPS;
        ended.error_index = first.back();
    }

    uint64_t bags() const { return first.size() - 1; }
};

}  // namespace hotrow::engine
