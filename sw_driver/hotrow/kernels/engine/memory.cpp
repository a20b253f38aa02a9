#include "memory.hpp"

#include <algorithm>
#include <cstring>

#include "outcome.hpp"

namespace hotrow::engine {

// The array that begins at the address or before it.
Memory::Arrays::const_iterator Memory::at(uint64_t address) const {
    const auto next = arrays_.upper_bound(address);
    return next == arrays_.begin() ? arrays_.end() : std::prev(next);
}

Memory::Span Memory::around(uint64_t address) const {
    const auto found = at(address);
    if (found == arrays_.end() || address - found->first >= found->second.size)
        return {nullptr, 0, 0, false};
    return {found->second.data, found->first, found->second.size, found->second.writable};
}

uint8_t *Memory::view(uint64_t address, uint64_t size, bool write) const {
    const auto found = at(address);
    if (found == arrays_.end()) return nullptr;
    const auto &[start, array] = *found;
    const uint64_t offset = address - start;
    if (offset > array.size || size > array.size - offset || (write && !array.writable))
        return nullptr;
    return array.data + offset;
}

void Memory::read(uint64_t address, uint64_t size, std::vector<uint8_t> &octets,
                  std::vector<uint8_t> &faults) const {
    const uint64_t words = (size + bus_bytes_ - 1) / bus_bytes_, end = address + words * bus_bytes_;
    octets.assign(words * bus_bytes_, 0);
    faults.assign(words, FAULT_DECERR);
    for (const auto &[start, array] : arrays_) {
        const uint64_t first = std::max(start, address), last = std::min(start + array.size, end);
        if (first >= last) continue;
        std::memcpy(octets.data() + (first - address), array.data + (first - start), last - first);
        std::fill(faults.begin() + (first - address) / bus_bytes_,
                  faults.begin() + (last - address + bus_bytes_ - 1) / bus_bytes_, 0);
    }
}

uint8_t Memory::write(uint64_t address, const void *octets, uint64_t size) const {
    const uint8_t *from = static_cast<const uint8_t *>(octets);
    if (uint8_t *here = view(address, size, true)) {
        std::memcpy(here, from, size);
        return 0;
    }
    uint8_t worst = 0;
    for (uint64_t done = 0; done < size;) {
        const uint64_t here = address + done;
        const uint64_t bytes = std::min(bus_bytes_ - here % bus_bytes_, size - done);
        worst = std::max(worst, write_word(here, from + done, bytes));
        done += bytes;
    }
    return worst;
}

uint8_t Memory::write_word(uint64_t address, const uint8_t *octets, uint64_t size) const {
    for (uint64_t byte = 0; byte < size; ++byte) {
        const auto found = at(address + byte);
        if (found == arrays_.end() || address + byte - found->first >= found->second.size)
            return FAULT_DECERR;
        if (!found->second.writable) return FAULT_SLVERR;
    }
    for (uint64_t byte = 0; byte < size; ++byte) *view(address + byte, 1, true) = octets[byte];
    return 0;
}

}  // namespace hotrow::engine
