#include "workers.hpp"

#include "../threads.hpp"

#include <exception>
#include <new>

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

// Where a thread cannot start, the destructor ends those that did.
Workers::Workers(int threads) : Workers() {
    for (int thread = 1; thread < threads; ++thread) threads_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        closing_ = true;
    }
    wake_.notify_all();
    for (std::thread &thread : threads_) thread.join();
}

void Workers::run(int parts, const std::function<void(int)> &work) {
    if (parts == 1 || threads_.empty()) {
        for (int part = 0; part < parts; ++part) work(part);
        return;
    }
    work_ = &work;
    done_.store(0, std::memory_order_relaxed);
    failed_.store(false, std::memory_order_relaxed);
    const uint64_t turn = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    state_.store(turn << 32 | static_cast<uint64_t>(parts) << 16);
    if (asleep_.load()) {
        { const std::lock_guard<std::mutex> guard(lock_); }  // none is about to sleep
        wake_.notify_all();
    }
    take();
    for (int spins = 0; done_.load(std::memory_order_acquire) != parts; ++spins)
        spins < SPIN ? pause() : std::this_thread::yield();
    if (failed_.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

void Workers::take() {
    uint64_t state = state_.load();
    while (has_part(state))
        if (state_.compare_exchange_weak(state, state + 1)) {
            try {
                (*work_)(static_cast<int>(state & 0xFFFF));
            } catch (const std::exception &) {
                failed_.store(true, std::memory_order_relaxed);  // the others use what `run` has
            }
            done_.fetch_add(1, std::memory_order_release);
            state = state_.load();
        }
}

void Workers::serve() {
    if (!take_exception_memory()) return;  // the others do the work
    use_default_rounding();
    while (true) {
        for (int spins = 0; spins < SPIN && !has_part(state_.load(std::memory_order_relaxed)); ++spins)
            pause();
        if (!has_part(state_.load())) {
            std::unique_lock<std::mutex> guard(lock_);
            asleep_.fetch_add(1);
            wake_.wait(guard, [&] { return closing_ || has_part(state_.load()); });
            asleep_.fetch_sub(1);
            if (closing_) return;
        }
        take();
    }
}

}  // namespace hotrow::engine
