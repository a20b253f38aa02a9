#include "base.hpp"

#include "../mixed.hpp"

#include <cmath>

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

float load(const uint8_t *from, int32_t element) {
    float value;
    if (element == FLOAT32) {
        std::memcpy(&value, from, 4);
    } else if (element == FLOAT16 || element == FLOAT8_E5M2) {  // the latter is the former's half
        const uint16_t bits = element == FLOAT16 ? static_cast<uint16_t>(from[0] | from[1] << 8)
                                                 : static_cast<uint16_t>(from[0] << 8);
        _Float16 half;
        std::memcpy(&half, &bits, 2);
        value = static_cast<float>(half);
    } else if (element == FLOAT8_E4M3) {  // no infinity; of NaN one each sign
        const int exponent = from[0] >> 3 & 15, rest = from[0] & 7;
        const uint32_t nan = 0x7ff00000;  // as PyTorch has it
        value = exponent ? std::ldexp(static_cast<float>(8 + rest), exponent - 10)
                         : std::ldexp(static_cast<float>(rest), -9);
        if (exponent == 15 && rest == 7) std::memcpy(&value, &nan, 4);
        value = std::copysign(value, from[0] & 128 ? -1.0f : 1.0f);
    } else {
        const uint32_t bits = uint32_t{from[0]} << 16 | uint32_t{from[1]} << 24;
        std::memcpy(&value, &bits, 4);
    }
    return value;
}

}  // namespace

void Base::draw(uint64_t row, uint8_t *to) const {
    const uint64_t start = mixed(whole(row) ^ mixed(seed));
    const uint32_t size = bytes_of(element);
    for (int64_t column = 0; column < dim; ++column) {
        const uint64_t word = mixed(start + static_cast<uint64_t>(column + 1) *
                                    0x9E3779B97F4A7C15u);
        const float unit = static_cast<float>(word >> 40) * 0x1p-23f - 1.0f;
        store(to + size * column, unit * bound, element);
    }
    start_state(dim, to);
}

void Base::convert(const uint8_t *row, uint8_t *to) const {
    const uint32_t size = bytes_of(element), given = bytes_of(from);
    if (element == from) {
        std::memcpy(to, row, used());
    } else {
        for (int64_t column = 0; column < dim; ++column)
            store(to + size * column, load(row + given * column, from), element);
    }
    start_state(dim + from_columns, to);
}

void Base::start_state(int64_t column, uint8_t *to) const {
    for (; column < dim + columns; ++column)
        store(to + bytes_of(element) * column, initial_state, element);
}

}  // namespace tables
