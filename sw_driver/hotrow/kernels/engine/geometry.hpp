// The parameters of an engine, as hotrow_rtl.config.Config names them.

#pragma once

#include <cstdint>

namespace hotrow::engine {

inline int bits_of(uint64_t power) { return __builtin_ctzll(power); }

// Filled by the host; the order is that of its structure.
struct Geometry {
    uint32_t bus_bytes, lookup_lanes, lane_banks, address_width, handles, tables;
    uint32_t counter_sets, counter_ways, counter_bits;
    uint32_t directory_choices, directory_sets, directory_ways, directory_partitions;
    uint32_t stamp_bits, batch_samples, batch_lookups, miss_entries, window_beats;
    uint32_t events, arithmetic, planner, row_bytes, clock_mhz;

    uint32_t lanes() const { return lookup_lanes ? lookup_lanes : bus_bytes / 4; }
    uint32_t banks() const { return lane_banks * lanes(); }
    int row_width() const {
        const int width = static_cast<int>(address_width) - 4;
        return width < 32 ? width : 32;
    }
    int key_width() const { return bits_of(tables) + row_width(); }
    uint32_t slots() const { return directory_choices * directory_sets * directory_ways; }
    uint32_t sweep_batches() const { return uint32_t{1} << (stamp_bits - 2); }
};

}  // namespace hotrow::engine
