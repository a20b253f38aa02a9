// Zeroed memory that begins on a cache line, in large pages where the kernel has them.

#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace hotrow::engine {

class AlignedMemory {
public:
    explicit AlignedMemory(size_t bytes) : bytes_(bytes ? bytes : 1) {
        void *mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<uint8_t *>(mapped);
#ifdef MADV_HUGEPAGE
        madvise(mapped, bytes_, MADV_HUGEPAGE);
#endif
    }
    ~AlignedMemory() { munmap(data_, bytes_); }
    AlignedMemory(const AlignedMemory &) = delete;
    AlignedMemory &operator=(const AlignedMemory &) = delete;

    uint8_t *data() const { return data_; }

private:
    size_t bytes_;
    uint8_t *data_;
};

}  // namespace hotrow::engine
