// The hash of ids and of initial values.

#pragma once

#include <cstdint>

// A permutation of the 64-bit numbers: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", 2014), as `hotrow.ids.initial.mixed`.
inline uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}
