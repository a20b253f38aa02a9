// A Verilated card with a serial line, for ctypes: bytes in, cycles, bytes out.
//
// The harness contains the UART of the host; the caller sets its rate.
#include <cstdint>
#include <deque>

#include "Vcard.h"
#include "verilated.h"

namespace {

constexpr int RESET_CYCLES = 4;
constexpr int STOP_BIT = 9;
constexpr int IDLE_BITS = 3;  // after a byte, until `run` returns

}  // namespace

class Board {
 public:
  explicit Board(double cycles_per_bit)
      : cycles_per_bit_(cycles_per_bit), model_(&context_, "card") {
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
  uint32_t unsent() const { return to_card_.size() + (tx_bit_ >= 0); }
  uint64_t cycles() const { return cycles_; }

  // Run up to `count` cycles, until received bytes end with an idle line; returns their number, at
  // most `room`.
  uint32_t run(uint64_t count, uint8_t* received, uint32_t room) {
    uint32_t bytes = 0;
    while (count-- && bytes < room) {
      drive();
      cycle();
      if (sample()) received[bytes++] = octet_;
      if (bytes && rx_bit_ < 0 && cycles_ > sample_at_ + IDLE_BITS * cycles_per_bit_) break;
    }
    return bytes;
  }

 private:
  void cycle() {
    model_.clk = 1;
    model_.eval();
    model_.clk = 0;
    model_.eval();
    ++cycles_;
  }

  // Drive the card's `rx`.
  void drive() {
    if (tx_bit_ < 0) {
      if (to_card_.empty()) return;
      tx_word_ = (uint32_t(to_card_.front()) << 1) | 1u << STOP_BIT;
      to_card_.pop_front();
      tx_bit_ = 0;
      bit_ends_ = cycles_ + cycles_per_bit_;
    } else if (cycles_ >= bit_ends_) {
      bit_ends_ += cycles_per_bit_;
      if (++tx_bit_ > STOP_BIT) {
        tx_bit_ = -1;
        return drive();
      }
    }
    model_.rx = tx_word_ >> tx_bit_ & 1;
  }

  // Sample the card's `tx`; returns whether a byte is complete.
  bool sample() {
    const bool level = model_.tx;
    if (rx_bit_ < 0) {
      if (!level && level_q_) {
        rx_bit_ = 0;
        sample_at_ = cycles_ + cycles_per_bit_ / 2;
      }
      level_q_ = level;
      return false;
    }
    level_q_ = level;
    if (cycles_ < sample_at_) return false;
    sample_at_ += cycles_per_bit_;
    if (rx_bit_ == 0) octet_ = 0;
    else if (rx_bit_ < STOP_BIT) octet_ |= level << (rx_bit_ - 1);
    if (++rx_bit_ <= STOP_BIT) return false;
    rx_bit_ = -1;
    return level;  // a byte without a stop bit is dropped
  }

  double cycles_per_bit_, bit_ends_ = 0, sample_at_ = 0;
  VerilatedContext context_;
  Vcard model_;
  std::deque<uint8_t> to_card_;
  uint32_t tx_word_ = 0;
  int tx_bit_ = -1, rx_bit_ = -1;
  uint8_t octet_ = 0;
  bool level_q_ = true;
  uint64_t cycles_ = 0;
};

#include "board_api.hpp"
