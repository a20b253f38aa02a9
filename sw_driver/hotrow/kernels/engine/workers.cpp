#include "workers.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hotrow::engine {

void use_default_rounding() {
#if defined(__x86_64__)
    _mm_setcsr(0x1F80);  // a thread inherits the modes of its creator
#endif
}

namespace {

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

Workers::Workers(int threads) {
    for (int thread = 1; thread < threads; ++thread) threads_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        closing_ = true;
        turn_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread &thread : threads_) thread.join();
}

void Workers::run(int parts, const std::function<void(int)> &work) {
    if (parts == 1 || threads_.empty()) {
        for (int part = 0; part < parts; ++part) work(part);
        return;
    }
    {
        const std::lock_guard<std::mutex> guard(lock_);
        parts_ = parts;
        work_ = &work;
        next_ = 0;
        active_ = static_cast<int>(threads_.size());
        turn_.fetch_add(1);
    }
    wake_.notify_all();
    take();
    for (int spins = 0; active_.load(std::memory_order_acquire); ++spins)
        spins < SPIN ? pause() : std::this_thread::yield();
}

void Workers::take() {
    for (int part = next_.fetch_add(1); part < parts_; part = next_.fetch_add(1)) (*work_)(part);
}

void Workers::serve() {
    use_default_rounding();
    uint64_t seen = 0;
    while (true) {
        for (int spins = 0; turn_.load(std::memory_order_acquire) == seen; ++spins) {
            if (spins < SPIN) {
                pause();
                continue;
            }
            std::unique_lock<std::mutex> guard(lock_);
            wake_.wait(guard, [&] { return turn_.load() != seen; });
        }
        ++seen;
        if (closing_) return;
        take();
        active_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace hotrow::engine
