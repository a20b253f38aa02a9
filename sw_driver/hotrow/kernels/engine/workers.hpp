// Threads that share the work of one command queue.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hotrow::engine {

// Let this thread round to nearest even and keep subnormal numbers.
void use_default_rounding();

class Workers {
public:
    // `threads` includes the caller of `run`.
    explicit Workers(int threads);
    ~Workers();

    int threads() const { return static_cast<int>(threads_.size()) + 1; }

    // Call work(part) once for each part, in any order; return when all are done, whether or not
    // every thread has come. One caller at a time. Throws std::bad_alloc if a part throws.
    void run(int parts, const std::function<void(int)> &work);

private:
    Workers() = default;

    static constexpr int SPIN = 1 << 12;  // looks for work before a thread sleeps

    void serve();
    void take();
    // Whether a part of the run is left: its parts and the next one are in the lowest 16-bit words.
    static bool has_part(uint64_t state) { return (state & 0xFFFF) < (state >> 16 & 0xFFFF); }

    std::vector<std::thread> threads_;
    std::mutex lock_;
    std::condition_variable wake_;
    std::atomic<uint64_t> state_{0};  // number of the run, parts, next part
    std::atomic<int> done_{0}, asleep_{0};
    const std::function<void(int)> *work_ = nullptr;  // stays while a part of it is not done
    std::atomic<bool> failed_{false};                 // a part of the run threw
    bool closing_ = false;                            // under lock_
};

}  // namespace hotrow::engine
