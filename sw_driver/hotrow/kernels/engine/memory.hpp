// The host's arrays at device addresses, used in place.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace hotrow::engine {

class Memory {
public:
    explicit Memory(uint32_t bus_bytes) : bus_bytes_(bus_bytes) {}

    void map(uint64_t address, uint8_t *data, uint64_t size, bool writable) {
        arrays_[address] = {data, size, writable};
    }
    void unmap(uint64_t address) { arrays_.erase(address); }

    struct Span {
        uint8_t *data;
        uint64_t address, size;
        bool writable;
    };

    // The array that has the address; `data` is null if none has.
    Span around(uint64_t address) const;

    // The bytes, or null unless one array holds them all.
    uint8_t *view(uint64_t address, uint64_t size, bool write = false) const;

    // Read a list. `faults` has the fault of each bus word, or 0; bytes of a faulty word are 0.
    void read(uint64_t address, uint64_t size, std::vector<uint8_t> &octets,
              std::vector<uint8_t> &faults) const;

    // Write octets at any address; return 0 or the highest fault. A bus word is written as a whole,
    // or not at all if a byte of it may not be written.
    uint8_t write(uint64_t address, const void *octets, uint64_t size) const;

private:
    struct Array {
        uint8_t *data;
        uint64_t size;
        bool writable;
    };
    using Arrays = std::map<uint64_t, Array>;

    Arrays::const_iterator at(uint64_t address) const;
    uint8_t write_word(uint64_t address, const uint8_t *octets, uint64_t size) const;

    uint64_t bus_bytes_;
    Arrays arrays_;
};

}  // namespace hotrow::engine
