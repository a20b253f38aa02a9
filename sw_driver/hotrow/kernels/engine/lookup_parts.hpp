// The lookups of a batch, divided among threads.
//
// Lookups that change nothing which others of the batch see are divided by position. Of the rest a
// thread takes those of its sets in order, so that each set changes as in one thread. What the
// threads list is merged by position.

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
    // Divide the lookups at these positions, which increase from list to list, by sets.
    void by_set(const BatchReader &, const std::vector<std::vector<uint32_t>> &listed);
    // Divide into consecutive lookups.
    void by_position(const BatchReader &);

    int parts() const { return parts_; }
    // The lookups of a part, in order.
    const std::vector<Stream> &streams(int part) const { return streams_[part]; }

private:
    int threads_for(uint64_t lookups, uint32_t part) const;
    int sets_for(uint64_t lookups, uint32_t part) const;
    static std::vector<Stream> spans_of(const BatchReader &, int spans);
    // Divide the lookups of spans by sets; with `apart` each span is a part of its own.
    void divide(const BatchReader &, const std::vector<Stream> &spans, int parts, bool apart);

    Workers &workers_;
    uint64_t split_mask_;  // the bits of a hash that divide sets into parts
    int split_bits_, parts_ = 1;
    std::vector<std::vector<uint32_t>> positions_;  // by span, then part
    std::vector<std::vector<Stream>> streams_;
};

// The lists of the parts, each in order of position.
using Lists = std::vector<const std::vector<Listed> *>;

// Call visit(part, entry) for all entries in order of position.
template <class Visit>
void in_order(const Lists &lists, const Visit &visit) {
    const size_t parts = lists.size();
    std::vector<size_t> at(parts);
    while (true) {
        size_t next = parts;
        uint32_t position = ~uint32_t{0};
        for (size_t part = 0; part < parts; ++part)
            if (at[part] < lists[part]->size() && (*lists[part])[at[part]].position < position)
                next = part, position = (*lists[part])[at[part]].position;
        if (next == parts) return;
        visit(next, (*lists[next])[at[next]++]);
    }
}

// All slots and rows in order of position.
void merge(const Lists &, std::vector<uint32_t> &slots, std::vector<Row> &rows);

}  // namespace hotrow::engine
