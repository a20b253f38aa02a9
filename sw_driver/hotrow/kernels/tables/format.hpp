// Bytes of segments: a header page, then blocks of rows.

#pragma once

#include "crc32c.hpp"

#include <algorithm>
#include <vector>

namespace tables {

constexpr uint32_t PAGE = 4096;
constexpr uint32_t BLOCK_HEADER = 64;
constexpr uint64_t SEGMENT_MAGIC = 0x31474553574F5248;  // "HROWSEG1"
constexpr uint64_t FOOTER_MAGIC = 0x314D555357524F48;   // "HORWSUM1"
constexpr uint32_t BLOCK_MAGIC = 0x4B425248;            // "HRBK"
constexpr uint8_t VERSION = 1;
enum Kind : uint8_t { TRAINED = 1, MOVED = 2 };

// What every byte of one store carries.
struct Identity {
    uint8_t store[16];
    uint64_t nonce;  // of the opening that wrote the segment
    uint64_t segment;
};

struct SegmentHeader {
    uint64_t magic;
    uint32_t version, crc;  // of the page, with 0 here
    uint8_t store[16];
    uint64_t nonce, number;
    uint32_t block_bytes, blocks;
};

struct BlockHeader {
    uint32_t magic, crc;  // of the store's id, then of the block without this field
    uint64_t nonce, segment;
    uint32_t block, zero;
    uint64_t epoch, reserved;
    uint16_t table;
    uint8_t kind, version;
    uint16_t count, more;
    uint32_t row_bytes, last;
};
static_assert(sizeof(BlockHeader) == BLOCK_HEADER);

// The last page of a full segment. Its summary lies after the blocks.
struct Footer {
    uint64_t magic, offset, bytes;  // of the summary
    uint32_t summary_crc, crc;      // crc of the page, with 0 here
};

// A block in a summary; its row numbers follow. Blocks come in any order.
struct Listed {
    uint32_t block;
    uint16_t table, count;
    uint64_t epoch;

    int64_t bytes() const { return sizeof(Listed) + 4 * int64_t{count}; }
};

// How rows of one table lie in a block.
struct RowLayout {
    uint32_t width;     // bytes of a row, state per element included
    uint32_t wide;      // bytes of a row in memory, zeros at the end
    uint32_t side;      // bytes of state apart: 0 or 4
    uint32_t per_block;

    uint32_t record() const { return width + side; }
    // Copy a row, and its state unless `state` is null, to where the caller wants it.
    void give(const uint8_t *row, const uint8_t *own, uint8_t *to, uint8_t *state) const {
        std::memcpy(to, row, width);
        std::memset(to + width, 0, wide - width);
        if (state) std::memcpy(state, own, side);
    }
    static uint32_t fitting(uint32_t record, uint32_t block_bytes) {
        return std::min<uint32_t>((block_bytes - BLOCK_HEADER) / (record + 4), 65535);
    }
    uint32_t row(uint32_t at) const { return BLOCK_HEADER + 4 * per_block + at * width; }
    uint32_t state(uint32_t at) const { return row(per_block) + 4 * at; }
};

inline BlockHeader &header_of(uint8_t *block) { return *reinterpret_cast<BlockHeader *>(block); }
inline const BlockHeader &header_of(const uint8_t *block) {
    return *reinterpret_cast<const BlockHeader *>(block);
}
inline uint32_t *numbers_of(uint8_t *block) {
    return reinterpret_cast<uint32_t *>(block + BLOCK_HEADER);
}
inline const uint32_t *numbers_of(const uint8_t *block) {
    return reinterpret_cast<const uint32_t *>(block + BLOCK_HEADER);
}

inline uint32_t block_crc(const uint8_t *block, uint32_t bytes, const uint8_t *store) {
    uint32_t crc = crc32c(store, 16);
    crc = crc32c(block, 4, crc);
    return crc32c(block + 8, bytes - 8, crc);
}

// Position of a row in a block, or the block's count.
inline uint32_t find_row(const uint8_t *block, uint32_t row) {
    const uint32_t count = header_of(block).count, *numbers = numbers_of(block);
    uint32_t found = count;
    for (uint32_t at = count; at-- > 0;) found = numbers[at] == row ? at : found;
    return found;
}

// What is wrong with a block that was read from a place, or null.
inline const char *block_fault(const uint8_t *block, uint32_t bytes, const Identity &identity,
                               uint32_t number) {
    const BlockHeader &header = header_of(block);
    if (header.magic != BLOCK_MAGIC) return "has no block where one was written";
    if (header.crc != block_crc(block, bytes, identity.store)) return "has a damaged block";
    if (header.nonce != identity.nonce || header.segment != identity.segment ||
        header.block != number)
        return "has a block of another place";
    if (header.version != VERSION) return "has a block of another version";
    return nullptr;
}

inline void add_to_summary(std::vector<uint8_t> &summary, const uint8_t *block) {
    const BlockHeader &header = header_of(block);
    const Listed listed{header.block, header.table, header.count, header.epoch};
    const auto *bytes = reinterpret_cast<const uint8_t *>(&listed);
    summary.insert(summary.end(), bytes, bytes + sizeof listed);
    bytes = block + BLOCK_HEADER;
    summary.insert(summary.end(), bytes, bytes + 4 * header.count);
}

inline uint32_t summary_crc(const uint8_t *data, size_t bytes, const Identity &identity) {
    uint32_t crc = crc32c(identity.store, 16);
    crc = crc32c(&identity.nonce, 8, crc);
    crc = crc32c(&identity.segment, 8, crc);
    return crc32c(data, bytes, crc);
}

inline uint32_t page_crc(const void *page, size_t bytes, size_t field) {
    const auto *at = static_cast<const uint8_t *>(page);
    const uint32_t zero = 0;
    uint32_t crc = crc32c(at, field);
    crc = crc32c(&zero, 4, crc);
    return crc32c(at + field + 4, bytes - field - 4, crc);
}

}  // namespace tables
