// AXI4 write channels (AW, W, B) of the memory model.
#pragma once

#include "port.hpp"

namespace hotrow {

// What the master drives. Plain data, shared with ctypes.
struct WriteInputs {
  uint64_t awaddr, wstrb;
  uint32_t awid;
  uint8_t awvalid, awlen, awsize, awburst, wvalid, wlast, bready;
  uint8_t wdata[64];
};

// What the memory drives.
struct WriteOutputs {
  uint32_t bid;
  uint8_t awready, wready, bvalid, bresp;
};

class WritePort : public Port {
 public:
  WritePort(MemoryMap& map, uint32_t bus_bytes, const Behaviour& behaviour)
      : Port(map, bus_bytes, behaviour) { reset(); }

  // As after a reset of the device: nothing in flight. Statistics, faults and violations stay.
  void reset() {
    requests_.clear();
    payloads_.clear();
    filling_ = Payload{};
    bursts_.clear();
    refused_ = Address{};
    refused_beat_ = Beat{};
    outputs_ = WriteOutputs{};
  }

  // See memory_model.hpp for when to call this.
  const WriteOutputs& tick(const WriteInputs& in) {
    Address request{in.awaddr, in.awid, in.awvalid, in.awlen, in.awsize, in.awburst};
    check_held(request, outputs_.awready);
    check_beat_held(in);
    if (in.awvalid && outputs_.awready) {
      check_burst(request);
      requests_.push_back(request);
      count_request(requests_.size() + bursts_.size());
    }
    if (in.wvalid && outputs_.wready) take(in);
    if (!requests_.empty() && !payloads_.empty()) complete();
    if (outputs_.bvalid && in.bready) outputs_.bvalid = outputs_.bresp = 0;

    let_dram_serve();
    const uint64_t cycle = ++statistics_.cycles;
    if (!outputs_.bvalid && !silent(cycle) && !random_.chance(behaviour_.stall_response))
      answer(cycle);
    outputs_.awready = room(requests_.size() + bursts_.size()) && !deaf(cycle) &&
                       !random_.chance(behaviour_.stall_address);
    outputs_.wready = !deaf(cycle) && !random_.chance(behaviour_.stall_data);
    return outputs_;
  }

  const WriteOutputs& outputs() const { return outputs_; }
  bool idle() const {
    return requests_.empty() && payloads_.empty() && filling_.strobes.empty() &&
           bursts_.empty() && !outputs_.bvalid;
  }

 private:
  struct Beat {
    uint8_t valid = 0, last = 0, data[64] = {};
    uint64_t strobe = 0;
  };
  struct Payload {
    std::vector<uint64_t> strobes;
    std::vector<uint8_t> data;
  };
  struct Burst {
    uint32_t id;
    Way way;
    uint64_t address, first_beat;
    Payload payload;
    uint64_t due() const { return way.all_due(); }
  };

  void check_beat_held(const WriteInputs& in) {
    const Beat& was = refused_beat_;
    if (was.valid && (!in.wvalid || in.wlast != was.last || in.wstrb != was.strobe ||
                         std::memcmp(in.wdata, was.data, bus_bytes_) != 0))
      violation("W beat changed before it was taken", statistics_.beats);
    refused_beat_.valid = in.wvalid && !outputs_.wready;
    refused_beat_.last = in.wlast;
    refused_beat_.strobe = in.wstrb;
    std::memcpy(refused_beat_.data, in.wdata, bus_bytes_);
  }

  // A beat may come before its address; then only its length is checked later.
  void take(const WriteInputs& in) {
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
    Burst burst{request.id, way(request, true), request.address, paired_beats_,
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

  // Memory is written here, the latest moment that AXI allows: a master that counts on its write
  // before the answer is caught.
  void answer(uint64_t cycle) {
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

  std::deque<Address> requests_;  // whose data is not complete
  std::deque<Payload> payloads_;  // whose address has not come
  Payload filling_;
  std::deque<Burst> bursts_;  // waiting for their time to be answered
  uint64_t paired_beats_ = 0;
  Beat refused_beat_;
  WriteOutputs outputs_;
};

}  // namespace hotrow
