#include "base.hpp"

namespace tables {

namespace {

// The finalizer of SplitMix64, as hotrow.ids.mixed.
uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

float load(const uint8_t *from, int32_t element) {
    float value;
    if (element == FLOAT32) {
        std::memcpy(&value, from, 4);
    } else if (element == FLOAT16) {
        _Float16 half;
        std::memcpy(&half, from, 2);
        value = static_cast<float>(half);
    } else {
        uint16_t half;
        std::memcpy(&half, from, 2);
        const uint32_t bits = uint32_t{half} << 16;
        std::memcpy(&value, &bits, 4);
    }
    return value;
}

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

void Base::draw(uint64_t row, uint8_t *to, uint32_t width) const {
    const uint64_t start = mixed(row ^ mixed(seed));
    const uint32_t size = bytes_of(element);
    for (int64_t column = 0; column < dim; ++column) {
        const uint64_t word = mixed(start + static_cast<uint64_t>(column + 1) *
                                    0x9E3779B97F4A7C15u);
        const float unit = static_cast<float>(word >> 40) * 0x1p-23f - 1.0f;
        store(to + size * column, unit * bound, element);
    }
    finish(to, width);
}

void Base::convert(const Extent &extent, const uint8_t *from, uint8_t *to, uint32_t width) const {
    if (extent.element < 0) {
        std::memcpy(to, from, width);
        return;
    }
    if (extent.element == element) {
        std::memcpy(to, from, static_cast<size_t>(dim) * bytes_of(element));
    } else {
        const uint32_t size = bytes_of(element), other = bytes_of(extent.element);
        for (int64_t column = 0; column < dim; ++column)
            store(to + size * column, load(from + other * column, extent.element), element);
    }
    finish(to, width);
}

// State per element of a row that has not trained, and zeros after it.
void Base::finish(uint8_t *to, uint32_t width) const {
    const uint32_t size = bytes_of(element);
    uint32_t at = static_cast<uint32_t>(dim) * size;
    for (int64_t column = 0; column < columns; ++column, at += size)
        store(to + at, initial_state, element);
    std::memset(to + at, 0, width - at);
}

}  // namespace tables
