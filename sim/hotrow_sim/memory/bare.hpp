// A bare master, which only issues requests: the upper bound of a memory for the same requests.
#pragma once

#include <vector>

#include "memory_model.hpp"

namespace hotrow {

// Bursts of one port, in order; a ctypes structure.
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
  uint64_t requested = 0, ended = 0;

  void cycle(uint32_t outstanding, uint8_t size) {
    ReadInputs in{};
    in.arvalid = requested < bursts.count && requested - ended < outstanding;
    if (in.arvalid) {
      in.araddr = bursts.address[requested];
      in.arlen = bursts.beats[requested] - 1;
      in.arid = requested % outstanding;
    }
    in.arsize = size, in.arburst = 1, in.rready = 1;
    const ReadOutputs& out = port.outputs();
    const bool fire = in.arvalid && out.arready, last = out.rvalid && out.rlast;
    port.tick(in);
    requested += fire;
    ended += last;
  }
};

// Requests its nth burst once n reads have ended; all strobes are 0.
template <typename Port>
struct Writer {
  Port& port;
  const BareBursts bursts;
  uint64_t requested = 0, filled = 0, ended = 0;
  uint32_t beat = 0;

  void cycle(uint64_t reads_ended, uint32_t outstanding, uint8_t size) {
    WriteInputs in{};
    in.awvalid = requested < std::min(bursts.count, reads_ended) && requested - ended < outstanding;
    if (in.awvalid) in.awaddr = bursts.address[requested], in.awlen = bursts.beats[requested] - 1;
    in.awsize = size, in.awburst = 1, in.bready = 1;
    in.wvalid = filled < requested;
    in.wlast = in.wvalid && beat + 1 == bursts.beats[filled];
    const WriteOutputs& out = port.outputs();
    const bool fire = in.awvalid && out.awready, data_fire = in.wvalid && out.wready;
    const bool answered = out.bvalid;
    port.tick(in);
    requested += fire;
    ended += answered;
    if (data_fire) {
      beat = in.wlast ? 0 : beat + 1;
      filled += in.wlast;
    }
  }
};

}  // namespace bare

// Cycles from the first request to the last response, or 0 after `most` cycles. Calls `served`
// after all ports have their inputs of a cycle.
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
