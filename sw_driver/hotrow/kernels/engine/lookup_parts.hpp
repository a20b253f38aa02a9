// The lookups of a batch, divided among threads.
//
// A thread takes the lookups of its sets in order, so that each set changes as in one thread; what
// the threads list is merged by position.

#pragma once

#include <cstdint>
#include <vector>

#include "batch_reader.hpp"
#include "geometry.hpp"
#include "lookup_passes.hpp"
#include "workers.hpp"

namespace hotrow::engine {

class LookupParts {
public:
    LookupParts(const Geometry &, Workers &);

    // Divide by sets: no two parts share a set of directory, counters or miss table.
    void by_set(const BatchReader &);
    // Divide into consecutive lookups.
    void by_position(const BatchReader &);

    int parts() const { return parts_; }
    // The lookups of a part, in order.
    const std::vector<Stream> &streams(int part) const { return streams_[part]; }

private:
    void divide(const BatchReader &, int parts, int spans);

    Workers &workers_;
    uint64_t split_mask_;  // the bits of a hash that divide sets into parts
    int split_bits_, parts_ = 1;
    std::vector<std::vector<uint32_t>> positions_;  // by span, then part
    std::vector<std::vector<Stream>> streams_;
};

// Call visit(part, entry) for the entries of all parts in the order of their positions.
template <class Lists, class Visit>
void in_order(const Lists &lists, const Visit &visit) {
    if (lists.size() == 1) {
        for (const auto &entry : *lists[0]) visit(0, entry);
        return;
    }
    std::vector<size_t> at(lists.size());
    while (true) {
        size_t next = lists.size();
        for (size_t part = 0; part < lists.size(); ++part)
            if (at[part] < lists[part]->size() &&
                (next == lists.size() ||
                 (*lists[part])[at[part]].position < (*lists[next])[at[next]].position))
                next = part;
        if (next == lists.size()) return;
        visit(next, (*lists[next])[at[next]++]);
    }
}

}  // namespace hotrow::engine
