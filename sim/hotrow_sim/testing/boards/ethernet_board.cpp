// A Verilated card with the pins of RGMII, for ctypes: Ethernet frames in, cycles, frames out.
//
// The PHY is here: it clocks the line, a gigabit one, and gives a byte in each of its cycles, half
// of it at either edge. Frames are told with preamble and checksum.
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "Vcard.h"
#include "verilated.h"

namespace {

constexpr int RESET_CYCLES = 16;
constexpr int GAP_BYTES = 12;      // between frames
constexpr int LINK_STATUS = 0b1101;  // in the gap: up, 1000 Mb/s, both ways at once

}  // namespace

class Board {
 public:
  explicit Board(double line_cycles) : line_cycles_(line_cycles), model_(&context_, "card") {
    model_.rst = 1;
    for (int i = 0; i < RESET_CYCLES; ++i) cycle();
    model_.rst = 0;
  }
  ~Board() { model_.final(); }

  void send(const uint8_t* octets, uint32_t count) { to_card_.emplace_back(octets, octets + count); }
  uint32_t unsent() const { return to_card_.size(); }
  uint64_t cycles() const { return cycles_; }

  // Run some cycles, fewer when a frame has come; its bytes, if they find room.
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
    model_.rx_ctl = giving_;
    model_.rx_data = rising ? given_ & 15 : given_ >> 4;
    model_.rx_clk = rising;
    model_.eval();
    if (rising) {
      taking_ = model_.tx_ctl;
      taken_ = model_.tx_data & 15;
    } else if (taking_) {
      frame_.push_back(taken_ | (model_.tx_data & 15) << 4);
    } else if (!frame_.empty()) {
      from_card_.push_back(std::move(frame_));
      frame_.clear();
    }
  }

  void next_byte() {
    giving_ = false;
    given_ = LINK_STATUS | LINK_STATUS << 4;
    if (gap_) {
      --gap_;
    } else if (!to_card_.empty()) {
      giving_ = true;
      given_ = to_card_.front()[at_++];
      if (at_ == to_card_.front().size()) {
        to_card_.pop_front();
        at_ = 0;
        gap_ = GAP_BYTES;
      }
    }
  }

  const double line_cycles_;  // of the line's clock in one of the card's
  VerilatedContext context_;
  Vcard model_;
  std::deque<std::vector<uint8_t>> to_card_, from_card_;
  std::vector<uint8_t> frame_;
  size_t at_ = 0;
  int gap_ = 0;
  double phase_ = 0;
  uint8_t given_ = 0, taken_ = 0;
  bool giving_ = false, taking_ = false;
  uint64_t cycles_ = 0;
};

#define API extern "C" __attribute__((visibility("default")))

API Board* hotrow_board_open(double line_cycles) { return new Board(line_cycles); }
API void hotrow_board_close(Board* board) { delete board; }
API void hotrow_board_send(Board* board, const uint8_t* octets, uint32_t count) {
  board->send(octets, count);
}
API uint32_t hotrow_board_unsent(const Board* board) { return board->unsent(); }
API uint64_t hotrow_board_cycles(const Board* board) { return board->cycles(); }
API uint32_t hotrow_board_run(Board* board, uint64_t count, uint8_t* received, uint32_t room) {
  return board->run(count, received, room);
}
