// Rows that were never logged: drawn from a seed, or in files that are never written.

#pragma once

#include "files.hpp"
#include "format.hpp"

#include <vector>

namespace tables {

enum Element : int32_t { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2 };

inline uint32_t bytes_of(int32_t element) { return element == FLOAT32 ? 4 : 2; }

// A part of a table in a file: rows one after the other from an offset on.
struct Extent {
    File file;
    uint64_t first, rows;  // of the table
    uint64_t offset, row_bytes;
    int32_t element;       // of the file; -1: bytes of a row as they are
    int64_t states;        // offset of fp32 state apart, or -1
};

struct Base {
    enum Origin : int32_t { SEED = 0, BLOCKS = 1, EXTENTS = 2 } origin = SEED;
    uint64_t seed = 0;
    float bound = 0, initial_state = 0;
    int64_t dim = 0, columns = 0;  // elements, and elements of state after them
    int32_t element = FLOAT32;
    std::vector<Extent> extents;   // by first row
    File file;                     // BLOCKS
    Identity identity{};

    const Extent &extent(uint64_t row) const {
        size_t at = 0;
        while (at + 1 < extents.size() && extents[at + 1].first <= row) ++at;
        return extents[at];
    }
    // A row as the seed draws it, of `width` bytes.
    void draw(uint64_t row, uint8_t *to, uint32_t width) const;
    // A row of a file in the form of the table.
    void convert(const Extent &extent, const uint8_t *from, uint8_t *to, uint32_t width) const;

  private:
    void finish(uint8_t *to, uint32_t width) const;
};

}  // namespace tables
