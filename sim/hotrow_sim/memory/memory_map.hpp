// Which device addresses exist, and the host memory behind each of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "dram.hpp"

namespace hotrow {

enum Response : uint8_t { OKAY = 0, SLVERR = 2, DECERR = 3 };

constexpr uint8_t POISON = 0xA5;  // read where nothing is mapped, and with every fault

// Ranges of device addresses, each backed by host memory that its owner keeps alive until unmapped.
// Shared by all ports of a model. Addresses outside every range answer DECERR and touch nothing.
class MemoryMap {
 public:
  MemoryMap() = default;
  explicit MemoryMap(const DramTiming* timing)
      : dram(timing ? std::make_unique<Dram>(*timing) : nullptr) {}

  const std::unique_ptr<Dram> dram;  // none if memory is ideal: it serves everything at once

  // False, and nothing changes, if the range is empty, wraps or overlaps another.
  bool map(uint64_t base, uint64_t size, uint8_t* host, bool writable) {
    if (size == 0 || base + (size - 1) < base) return false;
    auto above = ranges_.lower_bound(base);
    if (above != ranges_.end() && above->first - base < size) return false;
    if (above != ranges_.begin()) {
      auto below = std::prev(above);
      if (base - below->first < below->second.size) return false;
    }
    ranges_[base] = Range{base, size, host, writable};
    recent_ = nullptr;
    return true;
  }

  // False if no range starts at `base`.
  bool unmap(uint64_t base) {
    recent_ = nullptr;
    return ranges_.erase(base) != 0;
  }

  // Copy `size` bytes; unmapped ones are POISON. DECERR if none of them is mapped: a bus word may
  // stick out of a range whose ends are finer than the bus.
  Response read(uint64_t address, uint32_t size, uint8_t* to) {
    Range* range = find(address);
    if (range && range->size - (address - range->base) >= size) {
      std::memcpy(to, range->host + (address - range->base), size);
      return OKAY;
    }
    bool any = false;
    for (uint32_t i = 0; i < size; ++i) {
      range = find(address + i);
      to[i] = range ? range->host[address + i - range->base] : POISON;
      any |= range != nullptr;
    }
    return any ? OKAY : DECERR;
  }

  // Write those of up to 64 bytes whose strobe bit is set: all, or none if one may not be written.
  Response write(uint64_t address, uint32_t size, const uint8_t* from, uint64_t strobe) {
    const uint64_t full = ~uint64_t(0) >> (64 - size);
    Range* range = find(address);
    if ((strobe & full) == full && range && range->writable &&
        range->size - (address - range->base) >= size) {
      std::memcpy(range->host + (address - range->base), from, size);
      return OKAY;
    }
    for (uint32_t i = 0; i < size; ++i) {
      if (!(strobe >> i & 1)) continue;
      range = find(address + i);
      if (!range) return DECERR;
      if (!range->writable) return SLVERR;
    }
    for (uint32_t i = 0; i < size; ++i) {
      if (!(strobe >> i & 1)) continue;
      range = find(address + i);
      range->host[address + i - range->base] = from[i];
    }
    return OKAY;
  }

 private:
  struct Range {
    uint64_t base, size;
    uint8_t* host;
    bool writable;
  };

  Range* find(uint64_t address) {
    if (recent_ && address - recent_->base < recent_->size) return recent_;
    auto above = ranges_.upper_bound(address);
    if (above == ranges_.begin()) return nullptr;
    Range* range = &std::prev(above)->second;
    return address - range->base < range->size ? recent_ = range : nullptr;
  }

  std::map<uint64_t, Range> ranges_;
  Range* recent_ = nullptr;  // successive beats mostly fall into one range
};

}  // namespace hotrow
