// AXI4 ports of the controller with the interface of the memory model: the same checks and
// statistics, with responses and timing of the controller.
//
//     every cycle: tick(inputs) of every port; Controller::cycle(); served() of every port
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "controller.hpp"

namespace hotrow {

class LiteDramRead : public Port {
 public:
  LiteDramRead(MemoryMap& map, Controller& controller, size_t number)
      : Port(map, HOTROW_BUS_BYTES, Behaviour{}), controller_(controller),
        pins_(CORE_PORTS[number]) { served(); }

  void tick(const ReadInputs& in) {
    const Address request{in.araddr, in.arid, in.arvalid, in.arlen, in.arsize, in.arburst};
    check_held(request, outputs_.arready);
    if (in.arvalid && outputs_.arready) {
      check_burst(request);
      if (request.address >= HOTROW_LITEDRAM_BYTES)
        violation("address outside the DRAM", request.address);
      count_request(++in_flight_);
    }
    if (outputs_.rvalid && in.rready) {
      ++statistics_.beats;
      statistics_.last_beat = statistics_.cycles;
      in_flight_ -= outputs_.rlast;
    }
    ++statistics_.cycles;
    pins_.drive_read(controller_.core(), in);
  }
  void served() { pins_.sample_read(controller_.core(), outputs_); }
  void reset() {
    in_flight_ = 0;
    refused_ = {};
    served();
  }
  const ReadOutputs& outputs() const { return outputs_; }

 private:
  Controller& controller_;
  const CorePort& pins_;
  size_t in_flight_ = 0;
  ReadOutputs outputs_{};
};

class LiteDramWrite : public WriteChecks {
 public:
  using Burst = std::pair<uint64_t, uint32_t>;  // address, beats

  LiteDramWrite(MemoryMap& map, Controller& controller, size_t number)
      : WriteChecks(map, HOTROW_BUS_BYTES, Behaviour{}), controller_(controller),
        pins_(CORE_PORTS[number]) { served(); }

  void tick(const WriteInputs& in) {
    const Address request{in.awaddr, in.awid, in.awvalid, in.awlen, in.awsize, in.awburst};
    check_held(request, outputs_.awready);
    check_beat_held(in, outputs_.wready);
    if (in.awvalid && outputs_.awready) {
      check_burst(request);
      if (request.address >= HOTROW_LITEDRAM_BYTES)
        violation("address outside the DRAM", request.address);
      in_flight_.push_back({aligned(request.address), request.length + 1u});
      lengths_.push_back(request.length + 1u);
      count_request(in_flight_.size());
    }
    if (in.wvalid && outputs_.wready) accept(in);
    if (outputs_.bvalid && in.bready) {
      written_.push_back(in_flight_.front());
      in_flight_.pop_front();
    }
    ++statistics_.cycles;
    pins_.drive_write(controller_.core(), in);
  }
  void served() { pins_.sample_write(controller_.core(), outputs_); }
  void reset() {
    in_flight_.clear(), lengths_.clear(), received_.clear(), written_.clear();
    filled_ = 0;
    refused_ = {};
    refused_beat_ = {};
    served();
  }
  const WriteOutputs& outputs() const { return outputs_; }

  // Bursts with a response since the last call.
  std::vector<Burst> take_written() { return std::exchange(written_, {}); }

 private:
  // A beat may precede its address: lengths are compared once both are known.
  void accept(const WriteInputs& in) {
    ++statistics_.beats;
    statistics_.last_beat = statistics_.cycles;
    ++filled_;
    if (in.wlast) received_.push_back(std::exchange(filled_, 0));
    for (; !received_.empty() && !lengths_.empty(); received_.pop_front(), lengths_.pop_front())
      if (received_.front() != lengths_.front())
        violation("wlast not on the last beat of the burst", statistics_.beats - 1);
  }

  Controller& controller_;
  const CorePort& pins_;
  std::deque<Burst> in_flight_;           // in the order of LiteDRAM's responses
  std::deque<uint32_t> lengths_, received_;  // of addresses and of data without a partner
  uint32_t filled_ = 0;
  std::vector<Burst> written_;
  WriteOutputs outputs_{};
};

}  // namespace hotrow
