// The regions that the host registers, and items of arrays in them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "outcome.hpp"

namespace hotrow::engine {

constexpr int OFFSET_WIDTH = HOTROW_OFFSET_WIDTH;  // low bits of a packed address
constexpr uint64_t OFFSET_MASK = (uint64_t{1} << OFFSET_WIDTH) - 1;

struct Region {
    uint64_t base, size;
    bool writable;
};

class Regions {
public:
    explicit Regions(uint32_t handles) : regions_(handles), known_(handles) {}

    const Region *find(uint64_t handle) const {
        return handle < regions_.size() && known_[handle] ? &regions_[handle] : nullptr;
    }
    void set(uint32_t handle, const Region &region) {
        regions_[handle] = region;
        known_[handle] = 1;
    }
    void remove(uint32_t handle) { known_[handle] = 0; }

    // Check an access to a packed address; `address` receives the byte address.
    Status check(uint64_t packed, uint64_t size, bool write, uint64_t &address) const {
        const Region *const region = find(packed >> OFFSET_WIDTH);
        const uint64_t offset = packed & OFFSET_MASK;
        address = (region ? region->base : 0) + offset;
        if (!region || offset + size > region->size) return Status::REGION;
        return write && !region->writable ? Status::READ_ONLY : Status::OK;
    }

private:
    std::vector<Region> regions_;
    std::vector<uint8_t> known_;
};

// Items of `size` bytes at a stride from a packed address.
class Items {
public:
    Items() = default;
    Items(const Regions &regions, const Memory &memory, uint64_t packed, uint64_t stride,
          uint64_t size, bool write, uint64_t alignment = 1)
        : memory_(&memory), region_(regions.find(packed >> OFFSET_WIDTH)),
          handle_(packed & ~OFFSET_MASK), offset_(packed & OFFSET_MASK), stride_(stride),
          size_(size), alignment_(alignment - 1), write_(write) {
        if (!region_) return;
        const Memory::Span array = memory.around(region_->base + offset_);
        if (write && !array.writable) return;
        array_ = array.data;
        start_ = array.address;
        last_ = array.size < size ? 0 : array.size - size;
        if (array.size < size) array_ = nullptr;
    }

    // The items 0 .. count - 1, where all of them are accepted and lie in one array.
    struct Direct {
        uint8_t *data = nullptr;
        uint64_t stride = 0, count = 0;

        uint8_t *at(uint64_t number) const { return data + number * stride; }
    };
    Direct direct() const {
        if (!region_ || !array_ || (write_ && !region_->writable)) return {};
        const uint64_t here = address(0) - start_;
        if (offset_ + size_ > region_->size || here > last_ || (address(0) | stride_) & alignment_)
            return {};
        const uint64_t room = std::min(region_->size - size_ - offset_, last_ - here);
        return {array_ + here, stride_, stride_ ? room / stride_ + 1 : ~uint64_t{0}};
    }

    // OK, REGION, READ_ONLY or MISALIGNED.
    Status check(uint64_t number) const {
        const uint64_t offset = offset_ + number * stride_;
        if (!region_ || offset + size_ > region_->size) return Status::REGION;
        if (write_ && !region_->writable) return Status::READ_ONLY;
        return (region_->base + offset) & alignment_ ? Status::MISALIGNED : Status::OK;
    }
    uint64_t packed(uint64_t number) const {
        return handle_ | ((offset_ + number * stride_) & OFFSET_MASK);
    }

    // The bytes of an accepted item, or null unless one array holds them all.
    uint8_t *at(uint64_t number) const {
        const uint64_t here = address(number) - start_;
        if (array_ && here <= last_) return array_ + here;
        return memory_->view(address(number), size_, write_);
    }
    // The bytes of an accepted item for reading, whether or not the command may write them.
    const uint8_t *readable(uint64_t number) const {
        const uint8_t *const here = at(number);
        return here || !write_ ? here : memory_->view(address(number), size_);
    }
    // Write an accepted item; return 0 or the fault.
    uint8_t write(uint64_t number, const uint8_t *octets) const {
        return memory_->write(address(number), octets, size_);
    }
    uint64_t size() const { return size_; }

private:
    uint64_t address(uint64_t number) const { return region_->base + offset_ + number * stride_; }

    const Memory *memory_ = nullptr;
    const Region *region_ = nullptr;
    uint64_t handle_ = 0, offset_ = 0, stride_ = 0, size_ = 0, alignment_ = 0;
    bool write_ = false;
    uint8_t *array_ = nullptr;  // the array that has item 0, unless it is not writable
    uint64_t start_ = 0, last_ = 0;  // its address, and the last offset of an item in it
};

}  // namespace hotrow::engine
