// `operator new` that fails from some allocation on, for the whole process (LD_PRELOAD), and
// `malloc` after it in a thread that Python did not start.

#include <atomic>
#include <cstdlib>
#include <new>

#include <unistd.h>

extern "C" void *__libc_malloc(std::size_t size);

namespace {

std::atomic<bool> armed{false};
std::atomic<long> left{0}, failed{0};
thread_local bool starved __attribute__((tls_model("initial-exec"))) = false;

void *taken(std::size_t size, std::size_t alignment) {
    if (armed.load() && left.fetch_sub(1) <= 0) {
        failed.fetch_add(1);
        starved = gettid() != getpid();
        throw std::bad_alloc();
    }
    void *found = nullptr;
    if (posix_memalign(&found, alignment < sizeof(void *) ? sizeof(void *) : alignment, size))
        throw std::bad_alloc();
    return found;
}

}  // namespace

extern "C" void fail_after(long allocations) {
    left = allocations;
    failed = 0;
    armed = true;
}
extern "C" long fail_never() {
    armed = false;
    return failed;
}

extern "C" void *malloc(std::size_t size) {
    return starved && armed.load() ? nullptr : __libc_malloc(size);
}

void *operator new(std::size_t size) { return taken(size, 16); }
void *operator new[](std::size_t size) { return taken(size, 16); }
void *operator new(std::size_t size, std::align_val_t alignment) {
    return taken(size, static_cast<std::size_t>(alignment));
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
