// AXI4 read channels (AR, R) of the memory model.
#pragma once

#include "port.hpp"

namespace hotrow {

// Outputs of the master; a ctypes structure.
struct ReadInputs {
  uint64_t araddr;
  uint32_t arid;
  uint8_t arvalid, arlen, arsize, arburst, rready;
};

// Outputs of the memory; a ctypes structure. Data is POISON with a fault and while not valid.
struct ReadOutputs {
  uint32_t rid;
  uint8_t arready, rvalid, rlast, rresp;
  uint8_t rdata[64];
};

class ReadPort : public Port {
 public:
  ReadPort(MemoryMap& map, uint32_t bus_bytes, const Behaviour& behaviour)
      : Port(map, bus_bytes, behaviour) { reset(); }

  // Drop all bursts in flight. Statistics, faults and violations stay.
  void reset() {
    bursts_.clear();
    current_ = -1;
    refused_ = Address{};
    outputs_ = ReadOutputs{};
    std::memset(outputs_.rdata, POISON, sizeof outputs_.rdata);
  }

  // See memory_model.hpp for when to call this.
  const ReadOutputs& tick(const ReadInputs& in) {
    Address request{in.araddr, in.arid, in.arvalid, in.arlen, in.arsize, in.arburst};
    check_held(request, outputs_.arready);
    if (in.arvalid && outputs_.arready) accept(request);
    if (outputs_.rvalid && in.rready) {
      ++statistics_.beats;
      statistics_.last_beat = statistics_.cycles;
      outputs_.rvalid = outputs_.rlast = outputs_.rresp = 0;
      std::memset(outputs_.rdata, POISON, bus_bytes_);
    }
    let_dram_serve();
    const uint64_t cycle = ++statistics_.cycles;
    if (!outputs_.rvalid && !silent(cycle) && !random_.chance(behaviour_.stall_data))
      present(cycle);
    outputs_.arready = room(bursts_.size()) && !refuses(cycle) &&
                       !random_.chance(behaviour_.stall_address);
    return outputs_;
  }

  const ReadOutputs& outputs() const { return outputs_; }
  bool idle() const { return bursts_.empty() && !outputs_.rvalid; }

 private:
  struct Burst {
    uint32_t id;
    Timing timing;
    uint32_t next;  // beat
    std::vector<uint8_t> responses, data;
    uint64_t due() const { return timing.due(next); }
  };

  // Reads the memory here, at the earliest moment that AXI allows, to expose a master that reads
  // before the response to its write.
  void accept(const Address& request) {
    check_burst(request);
    Burst burst{request.id, schedule(request, false), 0, {}, {}};
    const uint32_t beats = request.length + 1u;
    burst.responses.resize(beats);
    burst.data.resize(size_t(beats) * bus_bytes_);
    for (uint32_t beat = 0; beat < beats; ++beat, ++requested_beats_) {
      const uint64_t address = aligned(request.address) + uint64_t(beat) * bus_bytes_;
      uint8_t* data = &burst.data[size_t(beat) * bus_bytes_];
      uint8_t response = injected(requested_beats_, address);
      if (response == OKAY) response = map_.read(address, bus_bytes_, data);
      if (response != OKAY) std::memset(data, POISON, bus_bytes_);
      burst.responses[beat] = response;
    }
    std::memset(burst.data.data(), POISON, request.address % bus_bytes_);  // lanes below the start
    bursts_.push_back(std::move(burst));
    count_request(bursts_.size());
  }

  void present(uint64_t cycle) {
    if (current_ < 0 || behaviour_.interleave) current_ = pick(bursts_, cycle);
    if (current_ < 0 || bursts_[current_].due() > cycle) return;
    Burst& burst = bursts_[current_];
    outputs_.rvalid = 1;
    outputs_.rid = burst.id;
    outputs_.rresp = burst.responses[burst.next];
    std::memcpy(outputs_.rdata, &burst.data[size_t(burst.next) * bus_bytes_], bus_bytes_);
    outputs_.rlast = ++burst.next == burst.responses.size();
    if (!outputs_.rlast) return;
    bursts_.erase(bursts_.begin() + current_);
    current_ = -1;
  }

  std::deque<Burst> bursts_;  // in the order of their requests
  int current_ = -1;          // the burst in transfer
  uint64_t requested_beats_ = 0;
  ReadOutputs outputs_;
};

}  // namespace hotrow
