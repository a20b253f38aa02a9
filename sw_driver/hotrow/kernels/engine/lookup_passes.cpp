#include "lookup_passes.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hotrow::engine {

namespace portable {
const Passes &passes_of(const Directory &);
}
namespace avx2 {
const Passes &passes_of(const Directory &);
}

const Passes &passes_for(const Directory &directory) {
#if defined(__x86_64__)
    // HOTROW_ISA=portable is for tests.
    const char *named = std::getenv("HOTROW_ISA");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
        !(named && !std::strcmp(named, "portable")))
        return avx2::passes_of(directory);
#endif
    return portable::passes_of(directory);
}

void PlanPass::bypass(uint32_t position, uint64_t hash) {
    const bool known = bypassed.has(hash);
    const uint32_t listed_before = bypassed.listed;
    const uint32_t index = bypassed.add(hash, beat(position));
    if (bypassed.listed != listed_before) listed.push_back({position, NO_SLOT, directory.keys.row_of(hash)});
    if (!known) bypassed_by[hash & (bypassed_by.size() - 1)] = planned;
    bypasses.push_back({position, index});
}

// A row that was bypassed by a batch that is not retired may be read only after that batch. An entry
// with the stamp of this batch was bypassed by another row, and its earlier stamp is lost.
void PlanPass::wait(uint64_t hash) {
    const int64_t by = std::min(bypassed_by[hash & (bypassed_by.size() - 1)], planned - 1);
    if (by > retired) wait_for = std::max(wait_for, by);
}

}  // namespace hotrow::engine
