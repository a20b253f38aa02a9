#if defined(__x86_64__)
#define HOTROW_AVX2
#define HOTROW_ISA avx2
#define HOTROW_TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#include "lookup_passes_body.hpp"
#endif
