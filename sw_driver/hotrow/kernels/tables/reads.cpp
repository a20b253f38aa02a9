#include "reads.hpp"

#include "../threads.hpp"

#include <system_error>

#include <sys/mman.h>
#include <sys/syscall.h>

namespace tables {

Hook hook = nullptr;

Reads::Reads(uint32_t bytes, bool ring)
    : bytes_((bytes + 4095) / 4096 * 4096), buffers_(pages(size_t{bytes_} * DEPTH)) {
    if (ring && set_up()) {
        threads_.emplace_back([this] { serve_ring(); });
        return;
    }
    for (unsigned number = 0; number < THREADS; ++number) {
        try {
            threads_.emplace_back([this, number] { serve_thread(number); });
        } catch (const std::system_error &) {
            if (!number) throw;
            break;
        }
    }
}

Reads::~Reads() {
    {
        std::lock_guard<std::mutex> hold(lock_);
        ending_ = true;
    }
    more_.notify_all();
    for (auto &thread : threads_) thread.join();
    if (entries_) munmap(entries_, about_.sq_entries * sizeof(io_uring_sqe));
    if (queue_) munmap(queue_, queue_bytes_);
    if (ring_ >= 0) ::close(ring_);
}

void Reads::submit(const std::vector<Request *> &requests) {
    {
        std::lock_guard<std::mutex> hold(lock_);
        waiting_.insert(waiting_.end(), requests.begin(), requests.end());
    }
    ring() ? more_.notify_one() : more_.notify_all();
}

bool Reads::set_up() {
    const long made = syscall(SYS_io_uring_setup, DEPTH, &about_);
    if (made < 0) return false;
    ring_ = static_cast<int>(made);
    queue_bytes_ = std::max(about_.sq_off.array + about_.sq_entries * sizeof(uint32_t),
                            about_.cq_off.cqes + about_.cq_entries * sizeof(io_uring_cqe));
    void *queue = MAP_FAILED, *entries = MAP_FAILED;
    if (about_.features & IORING_FEAT_SINGLE_MMAP) {
        queue = mmap(nullptr, queue_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                     ring_, IORING_OFF_SQ_RING);
        entries = mmap(nullptr, about_.sq_entries * sizeof(io_uring_sqe), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, ring_, IORING_OFF_SQES);
    }
    if (queue != MAP_FAILED) queue_ = static_cast<uint8_t *>(queue);
    if (entries != MAP_FAILED) entries_ = static_cast<io_uring_sqe *>(entries);
    if (queue_ && entries_) return true;
    if (queue_) munmap(queue_, queue_bytes_);
    if (entries_) munmap(entries_, about_.sq_entries * sizeof(io_uring_sqe));
    queue_ = nullptr, entries_ = nullptr;
    ::close(ring_);
    ring_ = -1;
    return false;
}

void Reads::serve_ring() noexcept {
    take_exception_memory();
    const auto word = [this](uint32_t offset) {
        return reinterpret_cast<std::atomic<uint32_t> *>(queue_ + offset);
    };
    auto *tail = word(about_.sq_off.tail), *head = word(about_.cq_off.head);
    auto *end = word(about_.cq_off.tail);
    auto *order = reinterpret_cast<uint32_t *>(queue_ + about_.sq_off.array);
    const auto *done = reinterpret_cast<io_uring_cqe *>(queue_ + about_.cq_off.cqes);
    const uint32_t mask = about_.sq_entries - 1, done_mask = about_.cq_entries - 1;
    Request *flying[DEPTH];
    uint32_t free[DEPTH], frees = DEPTH, unsent = 0;
    for (uint32_t slot = 0; slot < DEPTH; ++slot) free[slot] = slot;
    for (;;) {
        uint32_t at = tail->load(std::memory_order_relaxed);
        {
            std::unique_lock<std::mutex> hold(lock_);
            more_.wait(hold, [&] { return ending_ || frees < DEPTH || !waiting_.empty(); });
            if (waiting_.empty() && frees == DEPTH) return;
            for (; frees && !waiting_.empty(); ++at, ++unsent) {
                Request *request = waiting_.front();
                waiting_.pop_front();
                const uint32_t slot = free[--frees];
                flying[slot] = request;
                io_uring_sqe &entry = entries_[at & mask];
                std::memset(&entry, 0, sizeof entry);
                entry.opcode = IORING_OP_READ;
                entry.fd = request->file->fd();
                entry.off = request->offset;
                entry.addr = reinterpret_cast<uintptr_t>(buffers_.get() + size_t{slot} * bytes_);
                entry.len = request->bytes;
                entry.user_data = slot;
                order[at & mask] = at & mask;
            }
        }
        tail->store(at, std::memory_order_release);
        const auto begin = Clock::now();
        const uint32_t out = DEPTH - frees;
        const long sent = syscall(SYS_io_uring_enter, ring_, unsent, std::min(DEPTH - frees, 8u),
                                  IORING_ENTER_GETEVENTS, nullptr, 0);
        if (sent > 0) unsent -= static_cast<uint32_t>(sent);
        uint32_t from = head->load(std::memory_order_relaxed);
        const uint32_t until = end->load(std::memory_order_acquire);
        for (; from != until; ++from) {
            const io_uring_cqe entry = done[from & done_mask];
            const auto slot = static_cast<uint32_t>(entry.user_data);
            finish(*flying[slot], buffers_.get() + size_t{slot} * bytes_, entry.res);
            free[frees++] = slot;
        }
        head->store(from, std::memory_order_release);
        count(out, begin);
    }
}

void Reads::serve_thread(unsigned number) noexcept {
    take_exception_memory();
    uint8_t *buffer = buffers_.get() + size_t{number} * bytes_;
    for (;;) {
        Request *request;
        {
            std::unique_lock<std::mutex> hold(lock_);
            more_.wait(hold, [&] { return ending_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            request = waiting_.front();
            waiting_.pop_front();
        }
        const auto begin = Clock::now();
        finish(*request, buffer, -EAGAIN);
        count(1, begin);
    }
}

// A read that did not give all its bytes is done by this thread, which shows the reason.
void Reads::finish(Request &request, uint8_t *data, int32_t result) noexcept {
    if (result == static_cast<int64_t>(request.bytes))
        return request.complete(data, request.bytes, nullptr);
    try {
        const size_t got = request.file->read(data, request.bytes, request.offset);
        request.complete(data, got, nullptr);
    } catch (const Failure &failure) {
        request.complete(data, 0, failure.message.c_str());
    } catch (...) {
        request.complete(data, 0, "not enough memory");
    }
}

}  // namespace tables
