#include "base.hpp"

#include "../mixed.hpp"

namespace tables {

namespace {

void store(uint8_t *to, float value, int32_t element) {
    if (element == FLOAT32) {
        std::memcpy(to, &value, 4);
    } else if (element == FLOAT16) {
        const auto half = static_cast<_Float16>(value);
        std::memcpy(to, &half, 2);
    } else {
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        uint16_t half = 0x7fc0;
        if ((bits & 0x7fffffff) <= 0x7f800000)
            half = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        std::memcpy(to, &half, 2);
    }
}

}  // namespace

void Base::draw(uint64_t row, uint8_t *to) const {
    const uint64_t start = mixed(row ^ mixed(seed));
    const uint32_t size = bytes_of(element);
    for (int64_t column = 0; column < dim; ++column) {
        const uint64_t word = mixed(start + static_cast<uint64_t>(column + 1) *
                                    0x9E3779B97F4A7C15u);
        const float unit = static_cast<float>(word >> 40) * 0x1p-23f - 1.0f;
        store(to + size * column, unit * bound, element);
    }
    for (int64_t column = dim; column < dim + columns; ++column)
        store(to + size * column, initial_state, element);
}

}  // namespace tables
