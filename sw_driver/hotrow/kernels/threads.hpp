// What a thread of the library takes before it works.

#pragma once

#include <cstdlib>

#include <cxxabi.h>

// Take what exceptions of this thread need: where memory has run out at its first one, glibc ends
// the process. False if there is no memory for it.
inline bool take_exception_memory() noexcept {
    void *volatile room = std::malloc(4096);
    std::free(room);
    if (!room) return false;
    [[maybe_unused]] void *volatile globals = abi::__cxa_get_globals();
    return true;
}
