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

    // Call work(part) once for each part, in any order; return when all are done. One caller at a
    // time.
    void run(int parts, const std::function<void(int)> &work);

private:
    static constexpr int SPIN = 1 << 12;  // looks for work before a thread sleeps

    void serve();
    void take();

    std::vector<std::thread> threads_;
    std::mutex lock_;
    std::condition_variable wake_;
    std::atomic<uint64_t> turn_{0};
    std::atomic<int> next_{0}, active_{0};
    int parts_ = 0;
    const std::function<void(int)> *work_ = nullptr;
    std::atomic<bool> closing_{false};
};

}  // namespace hotrow::engine
