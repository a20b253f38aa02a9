// Rows that were never logged: drawn from a seed.

#pragma once

#include "files.hpp"
#include "format.hpp"

namespace tables {

enum Element : int32_t { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2 };

inline uint32_t bytes_of(int32_t element) { return element == FLOAT32 ? 4 : 2; }

struct Base {
    uint64_t seed = 0;
    float bound = 0, initial_state = 0;
    int64_t dim = 0, columns = 0;  // columns: numbers of state that follow the elements
    int32_t element = FLOAT32;

    // A row as the seed draws it: the bits of hotrow.ids.initial_rows, rounded to the element.
    void draw(uint64_t row, uint8_t *to) const;
};

}  // namespace tables
