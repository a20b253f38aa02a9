// The lookups of a batch in memory: the hash of each id's row, and the first wrong one.

#pragma once

#include <cstdint>
#include <vector>

#include "command.hpp"
#include "geometry.hpp"
#include "lookup_passes.hpp"
#include "memory.hpp"
#include "outcome.hpp"
#include "tables.hpp"

namespace hotrow::engine {

class BatchReader {
public:
    BatchReader(const Geometry &, const Memory &, const Tables &);

    // Read the lookups of a command; return false if the bag lengths have a fault or do not add up.
    // `outcome` receives the first error and the number of lookups that are served.
    bool read(const Command &, const Addresses &, const Passes &, Outcome &outcome);

    uint32_t count() const { return count_; }
    bool refused() const { return refused_ > 0; }
    int beat_shift() const { return beat_shift_; }  // the beat of a lookup is position >> shift

    // Lookups first .. first + count - 1, of which none is refused.
    Stream stream(uint32_t first, uint32_t count) const {
        return {hashes_.data(), partitioned_ ? tables_.data() : nullptr, partitions_.data(), nullptr,
                first, count};
    }
    // Lookups at some positions.
    Stream stream(const uint32_t *positions, uint32_t count) const {
        return {hashes_.data(), partitioned_ ? tables_.data() : nullptr, partitions_.data(),
                positions, 0, count};
    }
    const uint64_t *hashes() const { return hashes_.data(); }

    // Which samples have a lookup whose word has the highest bit; uint8[samples].
    void cold_samples(const uint32_t *words, std::vector<uint8_t> &cold) const;

private:
    struct Column {
        uint64_t base, last;
        uint16_t table;
    };

    const uint8_t *view(const Addresses &, uint64_t address, uint64_t size) const;
    bool read_lengths(const Addresses &, Outcome &);
    void read_columns();
    void hash_lookups(const Passes &);
    void refuse_faulty(Outcome &);
    bool feature_major() const;
    // Column of a bag.
    uint32_t column_of(uint64_t bag) const {
        return static_cast<uint32_t>(feature_major() ? bag / samples_ : bag % columns_.size());
    }
    // Call run(first, last, column) for each run of lookups first .. last - 1 of one column.
    template <class Run>
    void runs(const Run &run) const;

    const Geometry &geometry_;
    const Memory &memory_;
    const Tables &table_of_;
    KeyShape keys_;

    uint32_t count_ = 0, samples_ = 0, flags_ = 0;
    int beat_shift_ = 0;
    uint64_t refused_ = 0;
    bool partitioned_ = false, wide_ = false, jagged_ = false;
    const uint8_t *ids_ = nullptr;
    std::vector<uint8_t> octets_, faults_, length_octets_;
    const uint16_t *lengths_ = nullptr;
    std::vector<uint32_t> starts_;  // first lookup of each bag, and their number
    std::vector<Column> columns_;
    std::vector<uint64_t> base_, last_;  // of consecutive lookups, from column 0 on
    std::vector<Partition> partitions_;  // by table
    std::vector<uint64_t> hashes_;
    std::vector<uint16_t> tables_;
};

}  // namespace hotrow::engine
