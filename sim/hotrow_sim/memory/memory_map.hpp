// The device addresses that exist, and the host memory of each.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>

#include "dram.hpp"

namespace hotrow {

enum Response : uint8_t { OKAY = 0, SLVERR = 2, DECERR = 3 };

constexpr uint8_t POISON = 0xA5;  // read at unmapped addresses and with every fault

// Accesses to memory of another process; they return 0 if it refuses.
using RemoteRead = int (*)(uint64_t address, uint64_t size, uint8_t* to);
using RemoteWrite = int (*)(uint64_t address, uint64_t size, const uint8_t* from);

// Ranges of device addresses, each backed by host memory that its owner keeps alive until `unmap`,
// or by another process. All ports of a model share it. An access outside every range responds DECERR without effect.
class MemoryMap {
 public:
  MemoryMap() = default;
  explicit MemoryMap(const DramTiming* timing)
      : dram(timing ? std::make_unique<Dram>(*timing) : nullptr) {}

  const std::unique_ptr<Dram> dram;  // null for ideal memory, which serves all ports at once

  // Returns false without effect if the range is empty, wraps or overlaps another.
  bool map(uint64_t base, uint64_t size, uint8_t* host, bool writable) {
    return map(Range{base, size, host, writable});
  }
  bool map(uint64_t base, uint64_t size, RemoteRead read, RemoteWrite write, bool writable) {
    return map(Range{base, size, nullptr, writable, read, write});
  }

  // Returns false if no range starts at `base`.
  bool unmap(uint64_t base) {
    recent_ = nullptr;
    return ranges_.erase(base) != 0;
  }

  // Copy `size` bytes; unmapped ones are POISON. DECERR if none of them is mapped: the ends of a
  // range need not be bus words.
  Response read(uint64_t address, uint32_t size, uint8_t* to) {
    Range* range = find(address);
    if (range && range->size - (address - range->base) >= size)
      return range->load(address, size, to) ? OKAY : DECERR;
    bool any = false;
    for (uint32_t i = 0; i < size; ++i) {
      range = find(address + i);
      to[i] = POISON;
      any |= range != nullptr && range->load(address + i, 1, to + i);
    }
    return any ? OKAY : DECERR;
  }

  // Write the bytes with a strobe bit, of up to 64: all, or none if one of them may not be written.
  Response write(uint64_t address, uint32_t size, const uint8_t* from, uint64_t strobe) {
    const uint64_t full = ~uint64_t(0) >> (64 - size);
    Range* range = find(address);
    if ((strobe & full) == full && range && range->writable &&
        range->size - (address - range->base) >= size)
      return range->store(address, size, from) ? OKAY : DECERR;
    for (uint32_t i = 0; i < size; ++i) {
      if (!(strobe >> i & 1)) continue;
      range = find(address + i);
      if (!range) return DECERR;
      if (!range->writable) return SLVERR;
    }
    for (uint32_t i = 0; i < size; ++i) {
      if (strobe >> i & 1 && !find(address + i)->store(address + i, 1, from + i)) return DECERR;
    }
    return OKAY;
  }

 private:
  struct Range {
    uint64_t base, size;
    uint8_t* host;  // null for memory of another process
    bool writable;
    RemoteRead read = nullptr;
    RemoteWrite write = nullptr;

    bool load(uint64_t address, uint64_t count, uint8_t* to) const {
      if (!host) return read(address, count, to);
      std::memcpy(to, host + (address - base), count);
      return true;
    }
    bool store(uint64_t address, uint64_t count, const uint8_t* from) {
      if (!host) return write(address, count, from);
      std::memcpy(host + (address - base), from, count);
      return true;
    }
  };

  bool map(const Range& range) {
    const uint64_t base = range.base, size = range.size;
    if (size == 0 || base + (size - 1) < base) return false;
    auto above = ranges_.lower_bound(base);
    if (above != ranges_.end() && above->first - base < size) return false;
    if (above != ranges_.begin()) {
      auto below = std::prev(above);
      if (base - below->first < below->second.size) return false;
    }
    ranges_[base] = range;
    recent_ = nullptr;
    return true;
  }

  Range* find(uint64_t address) {
    if (recent_ && address - recent_->base < recent_->size) return recent_;
    auto above = ranges_.upper_bound(address);
    if (above == ranges_.begin()) return nullptr;
    Range* range = &std::prev(above)->second;
    return address - range->base < range->size ? recent_ = range : nullptr;
  }

  std::map<uint64_t, Range> ranges_;
  Range* recent_ = nullptr;  // most successive beats are in one range
};

}  // namespace hotrow
