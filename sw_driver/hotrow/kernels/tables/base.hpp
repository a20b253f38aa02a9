// Rows that were never logged: drawn from a seed, or in files that are only read.

#pragma once

#include "files.hpp"
#include "format.hpp"

#include <algorithm>
#include <deque>

namespace tables {

enum Element : int32_t { FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2 };  // 8: of files

inline uint32_t bytes_of(int32_t element) {
    return element == FLOAT32 ? 4 : element < FLOAT8_E4M3 ? 2 : 1;
}

struct BaseFile {
    File file;
    uint64_t first, rows, offset;  // its rows from `first` on, the byte where they begin
    uint64_t state;                // byte where their state apart begins; 0 without
};

struct Base {
    uint64_t seed = 0;
    float bound = 0, initial_state = 0;
    int64_t dim = 0, columns = 0;  // columns: numbers of state that follow the elements
    int32_t element = FLOAT32;
    std::deque<BaseFile> files;    // ascending; without any, rows are drawn
    int32_t from = FLOAT32;        // element of the files
    uint32_t from_bytes = 0;       // from row to row of a file
    int64_t from_columns = 0;      // numbers of state that follow the elements in a file
    uint64_t first = 0, step = 1;  // row r is row first + step x r of the table that is described

    uint64_t whole(uint64_t row) const {
        const uint64_t found = first + row * step;  // of rows that pad a part: the last one's
        return files.empty() ? found : std::min(found, files.back().first + files.back().rows - 1);
    }
    uint32_t used() const { return static_cast<uint32_t>(dim + from_columns) * bytes_of(from); }
    // Bytes of a request that holds any row.
    uint32_t span() const { return files.empty() ? 0 : (used() + PAGE - 1) / PAGE * PAGE + PAGE; }
    const BaseFile &file_of(uint64_t row) const {  // by its whole row
        size_t at = 0;
        while (row - files[at].first >= files[at].rows) ++at;
        return files[at];
    }
    // A row as the seed draws it: the bits of hotrow.ids.initial_rows, rounded to the element.
    void draw(uint64_t row, uint8_t *to) const;
    // A row of a file as the table has it.
    void convert(const uint8_t *row, uint8_t *to) const;

  private:
    void start_state(int64_t column, uint8_t *to) const;
};

}  // namespace tables
