// The commands of the move queue: copies of rows and bytes, pooled bags, and updates.
//
// Answers equal those of hotrow_sim.model.device to the bit, whatever the number of threads.

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
class CompleteBags {
public:
    CompleteBags(const List<uint16_t> &lengths, uint64_t bags, uint64_t room, uint32_t least) {
        if (lengths.sound() && room == bags && least <= 1 && all_ones(lengths, bags)) {
            bags_ = bags;
            return;
        }
        first_.reserve(bags + 1);
        first_.push_back(0);
        for (uint64_t bag = 0; bag < bags; ++bag) {
            const uint64_t end = first_.back() + lengths[bag];
            const Status fault = lengths.status(bag);
            if (fault != Status::OK || end > room || lengths[bag] < least) {
                ended.status = fault != Status::OK ? fault : Status::LOOKUPS;
                ended.error_index = fault != Status::OK ? first_.back() : end;
                break;
            }
            first_.push_back(end);
        }
        bags_ = first_.size() - 1;
        if (ended.status != Status::OK || first_.back() == room) return;
        ended.status = Status::LOOKUPS;
        ended.error_index = first_.back();
    }

    uint64_t bags() const { return bags_; }
    // First element of a bag; that of bag `bags()` is the number of elements.
    uint64_t first(uint64_t bag) const { return first_.empty() ? bag : first_[bag]; }
    // The same of all bags, or null where every bag has one element.
    const uint64_t *data() const { return first_.empty() ? nullptr : first_.data(); }

    Outcome ended;

private:
    static bool all_ones(const List<uint16_t> &lengths, uint64_t bags) {
        uint16_t other = 0;
        for (uint64_t bag = 0; bag < bags; ++bag) other |= lengths[bag] ^ 1;
        return !other;
    }

    uint64_t bags_ = 0;
    std::vector<uint64_t> first_;  // empty if every bag has one element
};

}  // namespace hotrow::engine
