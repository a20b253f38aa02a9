// A Verilated card with a serial line, for ctypes: bytes in, cycles, bytes out.
//
// The other end of the line is here: a UART whose rate the caller sets, as the host's.
#include <cstdint>
#include <deque>

#include "Vcard.h"
#include "verilated.h"

namespace {

constexpr int RESET_CYCLES = 4;
constexpr int STOP_BIT = 9;
constexpr int PAUSE_BITS = 3;  // after which a line is at rest

}  // namespace

class Board {
 public:
  Board() : model_(&context_, "card") {
    model_.rx = 1;
    model_.rst = 1;
    for (int i = 0; i < RESET_CYCLES; ++i) cycle();
    model_.rst = 0;
  }
  ~Board() { model_.final(); }

  void set_rate(double cycles_per_bit) { cycles_per_bit_ = cycles_per_bit; }
  void send(const uint8_t* octets, uint32_t count) {
    to_card_.insert(to_card_.end(), octets, octets + count);
  }
  uint32_t unsent() const { return to_card_.size() + (sending_bit_ >= 0); }
  uint64_t cycles() const { return cycles_; }

  // Run some cycles, fewer when bytes have come and no more follow them; those, at most `room`.
  uint32_t run(uint64_t count, uint8_t* received, uint32_t room) {
    uint32_t came = 0;
    while (count-- && came < room) {
      drive();
      cycle();
      if (sample()) received[came++] = octet_;
      if (came && taking_bit_ < 0 && cycles_ > look_at_ + PAUSE_BITS * cycles_per_bit_) break;
    }
    return came;
  }

 private:
  void cycle() {
    model_.clk = 1;
    model_.eval();
    model_.clk = 0;
    model_.eval();
    ++cycles_;
  }

  // The level of the card's `rx`.
  void drive() {
    if (sending_bit_ < 0) {
      if (to_card_.empty()) return;
      sending_ = (uint32_t(to_card_.front()) << 1) | 1u << STOP_BIT;
      to_card_.pop_front();
      sending_bit_ = 0;
      bit_ends_ = cycles_ + cycles_per_bit_;
    } else if (cycles_ >= bit_ends_) {
      bit_ends_ += cycles_per_bit_;
      if (++sending_bit_ > STOP_BIT) {
        sending_bit_ = -1;
        return drive();
      }
    }
    model_.rx = sending_ >> sending_bit_ & 1;
  }

  // Look at the card's `tx`; whether a byte is complete.
  bool sample() {
    const bool level = model_.tx;
    if (taking_bit_ < 0) {
      if (!level && was_) {
        taking_bit_ = 0;
        look_at_ = cycles_ + cycles_per_bit_ / 2;
      }
      was_ = level;
      return false;
    }
    was_ = level;
    if (cycles_ < look_at_) return false;
    look_at_ += cycles_per_bit_;
    if (taking_bit_ == 0) octet_ = 0;
    else if (taking_bit_ < STOP_BIT) octet_ |= level << (taking_bit_ - 1);
    if (++taking_bit_ <= STOP_BIT) return false;
    taking_bit_ = -1;
    return level;  // without a stop bit it was none
  }

  VerilatedContext context_;
  Vcard model_;
  std::deque<uint8_t> to_card_;
  double cycles_per_bit_ = 4, bit_ends_ = 0, look_at_ = 0;
  uint32_t sending_ = 0;
  int sending_bit_ = -1, taking_bit_ = -1;
  uint8_t octet_ = 0;
  bool was_ = true;
  uint64_t cycles_ = 0;
};

#define API extern "C" __attribute__((visibility("default")))

API Board* hotrow_board_open() { return new Board; }
API void hotrow_board_close(Board* board) { delete board; }
API void hotrow_board_rate(Board* board, double cycles_per_bit) {
  board->set_rate(cycles_per_bit);
}
API void hotrow_board_send(Board* board, const uint8_t* octets, uint32_t count) {
  board->send(octets, count);
}
API uint32_t hotrow_board_unsent(const Board* board) { return board->unsent(); }
API uint64_t hotrow_board_cycles(const Board* board) { return board->cycles(); }
API uint32_t hotrow_board_run(Board* board, uint64_t count, uint8_t* received, uint32_t room) {
  return board->run(count, received, room);
}
