// AXI4 write channels (AW, W, B) of the memory model.
#pragma once

#include "port.hpp"

namespace hotrow {

// Outputs of the master; a ctypes structure.
struct WriteInputs {
  uint64_t awaddr, wstrb;
  uint32_t awid;
  uint8_t awvalid, awlen, awsize, awburst, wvalid, wlast, bready;
  uint8_t wdata[64];
};

// Outputs of the memory; a ctypes structure.
struct WriteOutputs {
  uint32_t bid;
  uint8_t awready, wready, bvalid, bresp;
};

// A port that checks the data channel of a master.
class WriteChecks : public Port {
 protected:
  using Port::Port;

  // A valid W beat must not change until it is accepted.
  void check_beat_held(const WriteInputs& in, bool ready) {
    const WriteInputs& was = refused_beat_;
    if (was.wvalid && (!in.wvalid || in.wlast != was.wlast || in.wstrb != was.wstrb ||
                       std::memcmp(in.wdata, was.wdata, bus_bytes_) != 0))
      violation("W beat changed before it was accepted", statistics_.beats);
    refused_beat_ = in;
    refused_beat_.wvalid = in.wvalid && !ready;
  }

  WriteInputs refused_beat_{};  // W channel in the previous cycle, valid if it was not accepted
};

class WritePort : public WriteChecks {
 public:
  WritePort(MemoryMap& map, uint32_t bus_bytes, const Behaviour& behaviour)
      : WriteChecks(map, bus_bytes, behaviour) { reset(); }

  // Drop all bursts in flight. Statistics, faults and violations stay.
  void reset() {
    requests_.clear();
    payloads_.clear();
    filling_ = Payload{};
    bursts_.clear();
    refused_ = Address{};
    refused_beat_ = {};
    outputs_ = WriteOutputs{};
  }

  // See memory_model.hpp for when to call this.
  const WriteOutputs& tick(const WriteInputs& in) {
    Address request{in.awaddr, in.awid, in.awvalid, in.awlen, in.awsize, in.awburst};
    check_held(request, outputs_.awready);
    check_beat_held(in, outputs_.wready);
    if (in.awvalid && outputs_.awready) {
      check_burst(request);
      requests_.push_back(request);
      count_request(requests_.size() + bursts_.size());
    }
    if (in.wvalid && outputs_.wready) accept(in);
    if (!requests_.empty() && !payloads_.empty()) complete();
    if (outputs_.bvalid && in.bready) outputs_.bvalid = outputs_.bresp = 0;

    let_dram_serve();
    const uint64_t cycle = ++statistics_.cycles;
    if (!outputs_.bvalid && !silent(cycle) && !random_.chance(behaviour_.stall_response))
      respond(cycle);
    outputs_.awready = room(requests_.size() + bursts_.size()) && !refuses(cycle) &&
                       !random_.chance(behaviour_.stall_address);
    outputs_.wready = !refuses(cycle) && !random_.chance(behaviour_.stall_data);
    return outputs_;
  }

  const WriteOutputs& outputs() const { return outputs_; }
  bool idle() const {
    return requests_.empty() && payloads_.empty() && filling_.strobes.empty() &&
           bursts_.empty() && !outputs_.bvalid;
  }

 private:
  struct Payload {
    std::vector<uint64_t> strobes;
    std::vector<uint8_t> data;
  };
  struct Burst {
    uint32_t id;
    Timing timing;
    uint64_t address, first_beat;
    Payload payload;
    uint64_t due() const { return timing.all_due(); }
  };

  // A beat may precede its address; its length is then checked later.
  void accept(const WriteInputs& in) {
    filling_.strobes.push_back(in.wstrb);
    filling_.data.insert(filling_.data.end(), in.wdata, in.wdata + bus_bytes_);
    statistics_.last_beat = statistics_.cycles;
    ++statistics_.beats;
    const bool known = payloads_.size() < requests_.size();
    const bool full =
        known && filling_.strobes.size() == requests_[payloads_.size()].length + 1u;
    if (full && !in.wlast) violation("wlast missing on the last beat", statistics_.beats - 1);
    if (!full && !in.wlast) return;
    payloads_.push_back(std::move(filling_));
    filling_ = Payload{};
  }

  void complete() {
    const Address request = requests_.front();
    Burst burst{request.id, schedule(request, true), request.address, paired_beats_,
                std::move(payloads_.front())};
    requests_.pop_front();
    payloads_.pop_front();
    if (burst.payload.strobes.size() != request.length + 1u)
      violation("wlast not on the last beat of the burst", request.address);
    if (burst.payload.strobes[0] & ((uint64_t(1) << request.address % bus_bytes_) - 1))
      violation("strobe below the first byte of the burst", request.address);
    paired_beats_ += burst.payload.strobes.size();
    bursts_.push_back(std::move(burst));
  }

  // Writes the memory here, at the latest moment that AXI allows, to expose a master that relies on
  // its write before the response.
  void respond(uint64_t cycle) {
    const int index = pick(bursts_, cycle);
    if (index < 0) return;
    Burst& burst = bursts_[index];
    uint8_t worst = OKAY;
    for (size_t beat = 0; beat < burst.payload.strobes.size(); ++beat) {
      const uint64_t address = aligned(burst.address) + beat * bus_bytes_;
      uint8_t response = injected(burst.first_beat + beat, address);
      if (response == OKAY)
        response = map_.write(address, bus_bytes_, &burst.payload.data[beat * bus_bytes_],
                              burst.payload.strobes[beat]);
      worst = std::max(worst, response);
    }
    outputs_.bvalid = 1;
    outputs_.bid = burst.id;
    outputs_.bresp = worst;
    bursts_.erase(bursts_.begin() + index);
  }

  std::deque<Address> requests_;  // without complete data
  std::deque<Payload> payloads_;  // without an address
  Payload filling_;
  std::deque<Burst> bursts_;  // without a response
  uint64_t paired_beats_ = 0;
  WriteOutputs outputs_;
};

}  // namespace hotrow
