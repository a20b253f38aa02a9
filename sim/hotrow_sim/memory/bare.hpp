// A master that does nothing but ask: the ceiling of what a memory gives for the same requests.
#pragma once

#include <vector>

#include "memory_model.hpp"

namespace hotrow {

// Bursts of one port, in order. Plain data, shared with ctypes.
struct BareBursts {
  const uint64_t* address;
  const uint32_t* beats;
  uint64_t count;
};

namespace bare {

template <typename Port>
struct Reader {
  Port& port;
  const BareBursts bursts;
  uint64_t asked = 0, ended = 0;

  void cycle(uint32_t outstanding, uint8_t size) {
    ReadInputs in{};
    in.arvalid = asked < bursts.count && asked - ended < outstanding;
    if (in.arvalid) {
      in.araddr = bursts.address[asked];
      in.arlen = bursts.beats[asked] - 1;
      in.arid = asked % outstanding;
    }
    in.arsize = size, in.arburst = 1, in.rready = 1;
    const ReadOutputs& out = port.outputs();
    const bool taken = in.arvalid && out.arready, last = out.rvalid && out.rlast;
    port.tick(in);
    asked += taken;
    ended += last;
  }
};

// Its nth burst is asked for once n reads have ended; no byte is written.
template <typename Port>
struct Writer {
  Port& port;
  const BareBursts bursts;
  uint64_t asked = 0, filled = 0, ended = 0;
  uint32_t beat = 0;

  void cycle(uint64_t reads_ended, uint32_t outstanding, uint8_t size) {
    WriteInputs in{};
    in.awvalid = asked < bursts.count && asked < reads_ended && asked - ended < outstanding;
    if (in.awvalid) in.awaddr = bursts.address[asked], in.awlen = bursts.beats[asked] - 1;
    in.awsize = size, in.awburst = 1, in.bready = 1;
    in.wvalid = filled < asked;
    in.wlast = in.wvalid && beat + 1 == bursts.beats[filled];
    const WriteOutputs& out = port.outputs();
    const bool taken = in.awvalid && out.awready, put = in.wvalid && out.wready;
    const bool answered = out.bvalid;
    port.tick(in);
    asked += taken;
    ended += answered;
    if (put) {
      beat = in.wlast ? 0 : beat + 1;
      filled += in.wlast;
    }
  }
};

}  // namespace bare

// Cycles from the first request to the last answer, 0 if `most` do not suffice. `served` is called
// once all ports have been given their inputs of a cycle.
template <typename Reads, typename Writes, typename Served>
uint64_t bare_requests(Reads* const* read_ports, Writes* const* write_ports, uint32_t ports,
                       const BareBursts* reads, const BareBursts* writes, uint32_t outstanding,
                       uint64_t most, Served&& served) {
  std::vector<bare::Reader<Reads>> readers;
  std::vector<bare::Writer<Writes>> writers;
  for (uint32_t i = 0; i < ports; ++i) {
    readers.push_back({*read_ports[i], reads[i]});
    writers.push_back({*write_ports[i], writes[i]});
  }
  for (uint64_t cycle = 1; cycle <= most; ++cycle) {
    bool over = true;
    for (uint32_t i = 0; i < ports; ++i) {
      const uint8_t size = read_ports[i]->beat_size();
      const uint64_t read = readers[i].ended == reads[i].count ? ~uint64_t(0) : readers[i].ended;
      readers[i].cycle(outstanding, size);
      writers[i].cycle(read, outstanding, size);
      over = over && readers[i].ended == reads[i].count && writers[i].ended == writes[i].count;
    }
    served();
    if (over) return cycle;
  }
  return 0;
}

}  // namespace hotrow
