// The block of each row's last copy: packed numbers, or a map where few rows of a chunk are logged.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace tables {

// Entries are from 1 on; 0: the row lies in the base.
class Index {
  public:
    static constexpr uint32_t CHUNK = 1 << 16;  // rows that change their form together

    Index(uint64_t rows, int bits)
        : rows_(rows), bits_(bits), chunks_(new Chunk[(rows + CHUNK - 1) / CHUNK]) {}

    uint64_t rows() const { return rows_; }
    uint64_t bytes() const { return bytes_ + (rows_ + CHUNK - 1) / CHUNK * sizeof(Chunk); }

    void prefetch(uint32_t row) const {
        const Chunk &chunk = chunks_[row / CHUNK];
        if (chunk.bits) {
            __builtin_prefetch(chunk.data.get() + (uint64_t{row % CHUNK} * chunk.bits >> 3));
        } else if (chunk.capacity) {
            __builtin_prefetch(chunk.data.get() + 8 * chunk.home(row % CHUNK));
        }
    }

    uint32_t get(uint32_t row) const {
        const Chunk &chunk = chunks_[row / CHUNK];
        const uint32_t at = row % CHUNK;
        if (chunk.bits) return packed(chunk.data.get(), chunk.bits, at);
        if (!chunk.capacity) return 0;
        return pair(chunk.data.get(), find(chunk.data.get(), chunk.capacity, at)).second;
    }

    // Throws std::bad_alloc and leaves all as it was.
    void set(uint32_t row, uint32_t entry) {
        Chunk &chunk = chunks_[row / CHUNK];
        const uint32_t at = row % CHUNK;
        if (!chunk.bits) {
            if (chunk.capacity) {
                const uint32_t place = find(chunk.data.get(), chunk.capacity, at);
                if (pair(chunk.data.get(), place).second) {
                    put(chunk.data.get(), place, at, entry);
                    return;
                }
            }
            if (5 * (uint64_t{chunk.used} + 1) > 4 * uint64_t{chunk.capacity}) grow(chunk, row);
        }
        if (!chunk.bits) {
            put(chunk.data.get(), find(chunk.data.get(), chunk.capacity, at), at, entry);
            ++chunk.used;
            return;
        }
        if (entry >> (chunk.bits - 1) > 1) pack(chunk, row, width_of(entry));
        store(chunk.data.get(), chunk.bits, at, entry);
    }

  private:
    struct Free {
        void operator()(uint8_t *data) const { std::free(data); }
    };
    using Data = std::unique_ptr<uint8_t, Free>;
    struct Chunk {
        Data data;
        uint32_t capacity = 0, used = 0;  // pairs of the map
        int bits = 0;                     // of a packed entry; 0: a map

        uint32_t home(uint32_t at) const { return at * 0x9E3779B1u & (capacity - 1); }
    };

    static int width_of(uint32_t entry) { return entry ? 32 - __builtin_clz(entry) : 1; }
    static Data zeros(uint64_t bytes) {
        Data data(static_cast<uint8_t *>(std::calloc(bytes, 1)));
        if (!data) throw std::bad_alloc();
        return data;
    }
    static std::pair<uint32_t, uint32_t> pair(const uint8_t *data, uint32_t place) {
        std::pair<uint32_t, uint32_t> found;
        std::memcpy(&found.first, data + 8 * uint64_t{place}, 4);
        std::memcpy(&found.second, data + 8 * uint64_t{place} + 4, 4);
        return found;
    }
    static void put(uint8_t *data, uint32_t place, uint32_t at, uint32_t entry) {
        std::memcpy(data + 8 * uint64_t{place}, &at, 4);
        std::memcpy(data + 8 * uint64_t{place} + 4, &entry, 4);
    }
    static uint32_t find(const uint8_t *data, uint32_t capacity, uint32_t at) {
        uint32_t place = at * 0x9E3779B1u & (capacity - 1);
        for (;; place = (place + 1) & (capacity - 1)) {
            const auto found = pair(data, place);
            if (!found.second || found.first == at) return place;
        }
    }
    static uint32_t packed(const uint8_t *data, int bits, uint32_t at) {
        const uint64_t bit = uint64_t{at} * bits;
        uint64_t word;
        std::memcpy(&word, data + (bit >> 3), 8);
        return static_cast<uint32_t>(word >> (bit & 7) & ((uint64_t{1} << bits) - 1));
    }
    static void store(uint8_t *data, int bits, uint32_t at, uint32_t entry) {
        const uint64_t bit = uint64_t{at} * bits, mask = (uint64_t{1} << bits) - 1;
        uint64_t word;
        std::memcpy(&word, data + (bit >> 3), 8);
        word = (word & ~(mask << (bit & 7))) | uint64_t{entry} << (bit & 7);
        std::memcpy(data + (bit >> 3), &word, 8);
    }
    uint64_t rows_of(uint32_t row) const {
        const uint64_t first = row / CHUNK * uint64_t{CHUNK};
        return rows_ - first < CHUNK ? rows_ - first : CHUNK;
    }
    static uint64_t packed_bytes(uint64_t rows, int bits) { return (rows * bits + 7) / 8 + 8; }
    uint64_t size_of(const Chunk &chunk, uint32_t row) const {
        return chunk.bits ? packed_bytes(rows_of(row), chunk.bits) : 8 * uint64_t{chunk.capacity};
    }

    // Room for one more row: a larger map, or packed entries where that takes no more memory.
    void grow(Chunk &chunk, uint32_t row) {
        const uint32_t capacity = chunk.capacity ? 2 * chunk.capacity : 8;
        if (8 * uint64_t{capacity} > packed_bytes(rows_of(row), bits_)) return pack(chunk, row, 1);
        Data data = zeros(8 * uint64_t{capacity});
        for (uint32_t place = 0; place < chunk.capacity; ++place) {
            const auto found = pair(chunk.data.get(), place);
            if (found.second)
                put(data.get(), find(data.get(), capacity, found.first), found.first,
                    found.second);
        }
        bytes_ += 8 * uint64_t{capacity} - size_of(chunk, row);
        chunk.data = std::move(data);
        chunk.capacity = capacity;
    }

    // Pack the entries, of at least so many bits.
    void pack(Chunk &chunk, uint32_t row, int bits) {
        bits = bits > bits_ ? bits : bits_;
        for (uint32_t place = 0; !chunk.bits && place < chunk.capacity; ++place) {
            const int needed = width_of(pair(chunk.data.get(), place).second);
            bits = needed > bits ? needed : bits;
        }
        const uint64_t rows = rows_of(row);
        Data data = zeros(packed_bytes(rows, bits));
        if (chunk.bits) {
            for (uint32_t at = 0; at < rows; ++at)
                store(data.get(), bits, at, packed(chunk.data.get(), chunk.bits, at));
        } else {
            for (uint32_t place = 0; place < chunk.capacity; ++place) {
                const auto found = pair(chunk.data.get(), place);
                if (found.second) store(data.get(), bits, found.first, found.second);
            }
        }
        bytes_ += packed_bytes(rows, bits) - size_of(chunk, row);
        chunk.data = std::move(data);
        chunk.bits = bits_ = bits;
        chunk.capacity = chunk.used = 0;
    }

    uint64_t rows_, bytes_ = 0;
    int bits_;
    std::unique_ptr<Chunk[]> chunks_;
};

}  // namespace tables
