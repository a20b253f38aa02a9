// Reads at great depth: io_uring by raw system calls, or threads where it is refused.

#pragma once

#include "files.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <linux/io_uring.h>

namespace tables {

struct Request {
    const File *file;
    uint64_t offset;
    uint32_t bytes;
    // What the bytes are for; `wrong` is null, or the reason why they could not be read.
    virtual void complete(const uint8_t *data, size_t bytes, const char *wrong) noexcept = 0;

  protected:
    ~Request() = default;
};

class Reads {
  public:
    static constexpr unsigned DEPTH = 128, THREADS = 32;

    // Reads of at most `bytes` bytes; with `ring`, by io_uring if the system allows it.
    Reads(uint32_t bytes, bool ring);
    ~Reads();
    Reads(const Reads &) = delete;

    bool ring() const { return ring_ >= 0; }
    uint64_t memory() const { return uint64_t{bytes_} * (ring() ? DEPTH : THREADS); }
    void submit(const std::vector<Request *> &requests);

    std::atomic<uint64_t> nanoseconds{0};  // of all reads, one after the other

  private:
    using Clock = std::chrono::steady_clock;

    void count(uint64_t reads, Clock::time_point since) {
        nanoseconds += reads * static_cast<uint64_t>((Clock::now() - since).count());
    }
    bool set_up();
    void serve_ring() noexcept;
    void serve_thread(unsigned number) noexcept;
    static void finish(Request &request, uint8_t *data, int32_t result) noexcept;

    uint32_t bytes_;
    Memory buffers_;
    std::mutex lock_;
    std::condition_variable more_;
    std::deque<Request *> waiting_;
    bool ending_ = false;
    std::vector<std::thread> threads_;
    int ring_ = -1;
    uint8_t *queue_ = nullptr;
    io_uring_sqe *entries_ = nullptr;
    io_uring_params about_{};
    size_t queue_bytes_ = 0;
};

}  // namespace tables
