// CRC-32C (Castagnoli), by the processor's instruction where it has one.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

namespace tables {

constexpr std::array<uint32_t, 256> crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
        table[byte] = value;
    }
    return table;
}

// The CRC of bytes that follow those of `before`; 0 before the first.
inline uint32_t crc32c(const void *data, size_t size, uint32_t before = 0) {
    const auto *at = static_cast<const uint8_t *>(data);
    uint32_t crc = ~before;
#ifdef __SSE4_2__
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        std::memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = static_cast<uint32_t>(wide);
#endif
    static constexpr std::array<uint32_t, 256> TABLE = crc_table();
    for (; size; --size) crc = crc >> 8 ^ TABLE[(crc ^ *at++) & 255];
    return ~crc;
}

}  // namespace tables
