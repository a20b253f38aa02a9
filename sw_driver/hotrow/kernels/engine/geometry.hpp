// The parameters of an engine, as hotrow_rtl.config.Config names them.

#pragma once

#include <cstdint>

namespace hotrow::engine {

constexpr int MISS_WAYS = 2;  // rows that a set of the miss table keeps

inline int bits_of(uint64_t power) { return __builtin_ctzll(power); }

// Filled by the host; the order is that of its structure.
struct Geometry {
    uint32_t bus_bytes, lookup_lanes, lane_banks, address_width, card_memory_log2;
    uint32_t handles, tables;
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

    // Whether the parameters are within the limits of hotrow_rtl.config.check_geometry.
    bool sound() const {
        const auto within = [](uint64_t value, uint64_t low, uint64_t high) {
            return value >= low && value <= high;
        };
        const auto power = [&](uint64_t value, uint64_t low, uint64_t high) {
            return within(value, low, high) && !(value & (value - 1));
        };
        return power(bus_bytes, 8, 64) && lookup_lanes <= 1 && within(lane_banks, 1, 2) &&
               lanes() >= lane_banks && within(address_width, 32, 64) &&
               (!card_memory_log2 || within(card_memory_log2, 12, address_width - 1)) &&
               power(handles, 8, 1 << 16) && power(tables, 2, 1024) &&
               power(counter_sets, 2 * banks(), 1 << 24) && within(counter_ways, 2, 64) &&
               within(counter_bits, 4, 32) && within(directory_choices, 1, 2) &&
               power(directory_partitions, 1, 64) && power(directory_ways, 2, 16) &&
               power(directory_sets, 2 * banks(), 1 << 24) &&
               directory_sets >= banks() * directory_partitions &&
               within(stamp_bits, 4, 16) && power(batch_samples, 64, 1 << 20) &&
               power(batch_lookups, batch_samples, uint64_t{1} << 31) &&
               power(miss_entries, 2 * banks() * MISS_WAYS, 1 << 20) &&
               within(window_beats, 1, 15) && power(events, 2, 256) && arithmetic <= 2 &&
               planner <= 1 && power(row_bytes, 64, 4096);
    }
};

}  // namespace hotrow::engine
