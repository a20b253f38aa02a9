// The key of a row, its hash, and where the hash places the row.
//
// A key is table << row_width | row. Its hash is a permutation, so that a hash names a row too; all
// structures of the lookup queue are addressed by hashes (hotrow_rtl/lookup/hashing).

#pragma once

#include <cstdint>

#include "geometry.hpp"

namespace hotrow::engine {

constexpr uint64_t REFUSED = ~uint64_t{0};  // instead of the hash of a lookup that is not served

inline uint64_t low_bits(int width) { return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

inline int log2_of(uint64_t power) { return __builtin_ctzll(power); }

// The chains of xor-shifts; positive shifts towards the high end.
constexpr int CHAIN0[] = {-11, 24, -5, 20, -15};
constexpr int CHAIN1[] = {-21, 19, -11, 3, -5, 19};

inline uint64_t xorshift(uint64_t word, int shift, uint64_t mask) {
    return shift > 0 ? word ^ ((word << shift) & mask) : word ^ (word >> -shift);
}

inline uint64_t hash0(uint64_t key, uint64_t mask) {
    for (int shift : CHAIN0) key = xorshift(key, shift, mask);
    return key;
}

inline uint64_t hash1(uint64_t key, uint64_t mask) {
    for (int shift : CHAIN1) key = xorshift(key, shift, mask);
    return key;
}

// The inverse: a step repeated with doubled shifts inverts it.
template <int N>
inline uint64_t unhash(uint64_t hashed, const int (&chain)[N], int width) {
    const uint64_t mask = low_bits(width);
    for (int at = N - 1; at >= 0; --at)
        for (int shift = chain[at]; (shift < 0 ? -shift : shift) < width; shift *= 2)
            hashed = xorshift(hashed, shift, mask);
    return hashed;
}

struct Row {
    uint32_t row, table;  // in the order of an entry in memory
};

// The widths by which hashes are taken apart.
struct KeyShape {
    int row_width, key_width, bank_bits, bank_key_width;
    int set_bits;   // of a hash choice in one bank
    int low_bits_;  // lowest bits of a directory hash that no tag has
    int choices;
    uint32_t sets;  // of a hash choice over all banks

    explicit KeyShape(const Geometry &g)
        : row_width(g.row_width()), key_width(g.key_width()), bank_bits(log2_of(g.banks())),
          bank_key_width(key_width - bank_bits), set_bits(log2_of(g.directory_sets) - bank_bits),
          low_bits_(log2_of(g.directory_sets / g.directory_partitions) - bank_bits),
          choices(g.directory_choices), sets(g.directory_sets) {}

    int tag_width() const { return bank_key_width - low_bits_; }

    uint64_t hash(uint64_t table, uint64_t row) const {
        return hash0(table << row_width | row, low_bits(key_width));
    }

    Row row_of(uint64_t hash) const {
        const uint64_t key = unhash(hash, CHAIN0, key_width);
        return {static_cast<uint32_t>(key & low_bits(row_width)),
                static_cast<uint32_t>(key >> row_width)};
    }

    uint64_t choice_hash(uint64_t hash, int choice) const {
        const uint64_t bank_key = hash >> bank_bits;
        return choice ? hash1(bank_key, low_bits(bank_key_width)) : bank_key;
    }

    // Set over all banks and choices: the bank is in the lowest bits, the choice in the highest.
    uint32_t set_of(uint64_t hash, uint64_t choice_hash, int choice, int parts_log2,
                    uint32_t part) const {
        const int width = set_bits - parts_log2;
        const uint64_t set = uint64_t{part} << width | (choice_hash & low_bits(width));
        return static_cast<uint32_t>(choice * sets + (set << bank_bits | (hash & low_bits(bank_bits))));
    }

    // The hash of the row with that tag in that set.
    uint64_t hash_of(uint64_t tag, uint32_t set) const {
        const int choice = set >= sets;
        const uint32_t inner = set - choice * sets;
        const uint64_t hashed =
            tag << low_bits_ | ((inner >> bank_bits) & low_bits(low_bits_));
        const uint64_t bank_key = choice ? unhash(hashed, CHAIN1, bank_key_width) : hashed;
        return bank_key << bank_bits | (inner & low_bits(bank_bits));
    }
};

}  // namespace hotrow::engine
