// C interface of the memory model, for ctypes. Handles are pointers, which the caller frees.
#include "bare.hpp"
#include "memory_model.hpp"

using namespace hotrow;

extern "C" {

MemoryMap* hotrow_map_create(const DramTiming* timing) { return new MemoryMap(timing); }
void hotrow_map_free(MemoryMap* map) { delete map; }
int hotrow_map_add(MemoryMap* map, uint64_t base, uint64_t size, uint8_t* host, int writable) {
  return map->map(base, size, host, writable != 0);
}
int hotrow_map_remove(MemoryMap* map, uint64_t base) { return map->unmap(base); }
void hotrow_map_dram(const MemoryMap* map, DramStatistics* to) { *to = map->dram->statistics(); }

uint64_t hotrow_bare(ReadPort* const* read_ports, WritePort* const* write_ports, uint32_t ports,
                     const BareBursts* reads, const BareBursts* writes, uint32_t outstanding,
                     uint64_t most_cycles) {
  return bare_requests(read_ports, write_ports, ports, reads, writes, outstanding, most_cycles,
                       [] {});
}

#define HOTROW_PORT(kind, Kind)                                                                 \
  Kind##Port* hotrow_##kind##_create(MemoryMap* map, uint32_t bus_bytes,                        \
                                     const Behaviour* behaviour) {                              \
    return new Kind##Port(*map, bus_bytes, *behaviour);                                         \
  }                                                                                             \
  void hotrow_##kind##_free(Kind##Port* port) { delete port; }                                  \
  void hotrow_##kind##_reset(Kind##Port* port, Kind##Outputs* outputs) {                        \
    port->reset();                                                                              \
    *outputs = port->outputs();                                                                 \
  }                                                                                             \
  void hotrow_##kind##_tick(Kind##Port* port, const Kind##Inputs* in, Kind##Outputs* outputs) { \
    *outputs = port->tick(*in);                                                                 \
  }                                                                                             \
  int hotrow_##kind##_idle(const Kind##Port* port) { return port->idle(); }                     \
  void hotrow_##kind##_statistics(const Kind##Port* port, Statistics* to) {                     \
    *to = port->statistics();                                                                   \
  }                                                                                             \
  const char* hotrow_##kind##_violation(const Kind##Port* port, uint32_t index) {               \
    const auto& all = port->violations();                                                       \
    return index < all.size() ? all[index].c_str() : nullptr;                                   \
  }                                                                                             \
  void hotrow_##kind##_fail_range(Kind##Port* port, uint64_t base, uint64_t size,               \
                                  uint8_t response) {                                           \
    port->fail_range(base, size, response);                                                     \
  }                                                                                             \
  void hotrow_##kind##_fail_beat(Kind##Port* port, uint64_t index, uint8_t response) {          \
    port->fail_beat(index, response);                                                           \
  }                                                                                             \
  void hotrow_##kind##_silence(Kind##Port* port, uint64_t first, uint64_t end, int accept) {    \
    port->silence(first, end, accept != 0);                                                     \
  }

HOTROW_PORT(read, Read)
HOTROW_PORT(write, Write)

}  // extern "C"
