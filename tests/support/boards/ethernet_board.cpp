// A Verilated card with RGMII pins, for ctypes: Ethernet frames in, cycles, frames out.
//
// The harness contains the PHY: it clocks a gigabit line and transfers a byte per cycle, half of it
// at each edge. Frames include preamble and checksum.
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "Vcard.h"
#include "verilated.h"

namespace {

constexpr int RESET_CYCLES = 16;
constexpr int GAP_BYTES = 12;        // between frames
constexpr int LINK_STATUS = 0b1101;  // in the gap: up, 1000 Mb/s, full duplex

}  // namespace

class Board {
 public:
  explicit Board(double line_cycles) : line_cycles_(line_cycles), model_(&context_, "card") {
    model_.rst = 1;
    for (int i = 0; i < RESET_CYCLES; ++i) cycle();
    model_.rst = 0;
  }
  ~Board() { model_.final(); }

  void set_rate(double line_cycles) { line_cycles_ = line_cycles; }
  void send(const uint8_t* octets, uint32_t count) {
    to_card_.emplace_back(octets, octets + count);
  }
  uint32_t unsent() const { return to_card_.size(); }
  uint64_t cycles() const { return cycles_; }

  // Run up to `count` cycles, until the card has sent a frame; returns its bytes, or 0 if they
  // exceed `room`.
  uint32_t run(uint64_t count, uint8_t* received, uint32_t room) {
    while (count-- && from_card_.empty()) cycle();
    if (from_card_.empty()) return 0;
    const std::vector<uint8_t> frame = std::move(from_card_.front());
    from_card_.pop_front();
    if (frame.size() > room) return 0;
    std::memcpy(received, frame.data(), frame.size());
    return frame.size();
  }

 private:
  void cycle() {
    for (int edge = 1; edge >= 0; --edge) {
      for (phase_ += line_cycles_; phase_ >= 1; phase_ -= 1) line_edge();
      model_.clk = edge;
      model_.eval();
    }
    ++cycles_;
  }

  void line_edge() {
    const bool rising = !model_.rx_clk;
    if (rising) next_byte();
    model_.rx_ctl = rx_valid_;
    model_.rx_data = rising ? rx_byte_ & 15 : rx_byte_ >> 4;
    model_.rx_clk = rising;
    model_.eval();
    if (rising) {
      tx_valid_ = model_.tx_ctl;
      tx_low_ = model_.tx_data & 15;
    } else if (tx_valid_) {
      frame_.push_back(tx_low_ | (model_.tx_data & 15) << 4);
    } else if (!frame_.empty()) {
      from_card_.push_back(std::move(frame_));
      frame_.clear();
    }
  }

  void next_byte() {
    rx_valid_ = false;
    rx_byte_ = LINK_STATUS | LINK_STATUS << 4;
    if (gap_) {
      --gap_;
    } else if (!to_card_.empty()) {
      rx_valid_ = true;
      rx_byte_ = to_card_.front()[at_++];
      if (at_ == to_card_.front().size()) {
        to_card_.pop_front();
        at_ = 0;
        gap_ = GAP_BYTES;
      }
    }
  }

  double line_cycles_;  // half cycles of the line per half cycle of the card
  VerilatedContext context_;
  Vcard model_;
  std::deque<std::vector<uint8_t>> to_card_, from_card_;
  std::vector<uint8_t> frame_;
  size_t at_ = 0;
  int gap_ = 0;
  double phase_ = 0;
  uint8_t rx_byte_ = 0, tx_low_ = 0;
  bool rx_valid_ = false, tx_valid_ = false;
  uint64_t cycles_ = 0;
};

#include "board_api.hpp"
