// The Verilated card with its bridge, with its clock and a root complex, for ctypes.
#include "root_complex.hpp"
#include "Vhotrow_card.h"
#include "verilated.h"

using namespace hotrow;

namespace {

constexpr int RESET_CYCLES = 4;
constexpr int MOST_REGISTER_CYCLES = 100000;
constexpr uint32_t DWORDS = sizeof(Vhotrow_card::sink_dat) / 4;  // of a beat

}  // namespace

// One card. Its clock advances only in calls of this interface.
class Card {
 public:
  Card(uint32_t latency, uint32_t spread, uint64_t seed) : root(latency, spread, seed) { reset(); }
  ~Card() { top_.final(); }

  // Pulse the reset input and drop all packets.
  void reset() {
    root.reset();
    sent_.clear();
    received_.clear();
    taken_ = 0;
    top_.id = CARD;
    top_.max_request_size = top_.max_payload_size = MAX_PAYLOAD;
    top_.source_valid = 0;
    top_.rst = 1;
    for (int i = 0; i < RESET_CYCLES; ++i) cycle();
    top_.rst = 0;
    interrupts = 0;
  }

  void cycle() {
    if (received_.empty()) {
      if (auto packet = root.send(cycles)) received_ = std::move(*packet);
    }
    drive();
    top_.sink_ready = 1;
    top_.bus_master = root.mastering();
    top_.clk = 0;
    top_.eval();
    if (top_.sink_valid && !top_.rst) accept();
    const bool done = top_.source_valid && top_.source_ready;
    const bool line = top_.__SYM__interrupt;
    if (line && !line_) ++interrupts;
    line_ = line;
    top_.clk = 1;
    top_.eval();
    ++cycles;
    if (done && (taken_ += DWORDS) >= received_.size()) received_.clear(), taken_ = 0;
  }

  int write_register(uint32_t offset, uint32_t value) {
    root.request_write(offset, value);
    return 0;
  }

  // Returns the status of the completion, or -1 without one.
  int read_register(uint32_t offset, uint32_t* value) {
    root.request_read(offset);
    for (int i = 0; i < MOST_REGISTER_CYCLES && !root.answer(); ++i) cycle();
    if (!root.answer()) return -1;
    *value = root.answer()->value;
    return root.answer()->status;
  }

  RootComplex root;
  uint64_t cycles = 0, interrupts = 0;  // rising edges of the interrupt

 private:
  void drive() {
    auto* data = reinterpret_cast<uint32_t*>(&top_.source_dat);
    const size_t left = received_.size() - taken_;
    top_.source_valid = left != 0;
    top_.source_last = left <= DWORDS;
    top_.source_be = 0;
    for (uint32_t i = 0; i < DWORDS; ++i) {
      data[i] = i < left ? received_[taken_ + i] : 0;
      if (i < left) top_.source_be |= 0xFu << 4 * i;
    }
  }

  void accept() {
    const auto* data = reinterpret_cast<const uint32_t*>(&top_.sink_dat);
    for (uint32_t i = 0; i < DWORDS; ++i)
      if (top_.sink_be >> 4 * i & 1) sent_.push_back(data[i]);
    if (!top_.sink_last) return;
    root.receive(sent_, cycles);
    sent_.clear();
  }

  VerilatedContext context_;
  Vhotrow_card top_{&context_, "hotrow_card"};
  Packet sent_, received_;
  size_t taken_ = 0;
  bool line_ = false;
};

#define API extern "C" __attribute__((visibility("default")))

API Card* hotrow_card_open(uint32_t latency, uint32_t spread, uint64_t seed) {
  return new Card(latency, spread, seed);
}
API void hotrow_card_close(Card* card) { delete card; }
API void hotrow_card_reset(Card* card) { card->reset(); }
API void hotrow_card_run(Card* card, uint64_t cycles) {
  while (cycles--) card->cycle();
}
API uint64_t hotrow_card_cycles(const Card* card) { return card->cycles; }
API uint64_t hotrow_card_interrupts(const Card* card) { return card->interrupts; }
API void hotrow_card_master(Card* card, int on) {
  card->root.master(on != 0, card->cycles);
}
API int hotrow_card_map(Card* card, uint64_t base, uint64_t size, uint8_t* host, int writable) {
  return card->root.map.map(base, size, host, writable != 0);
}
API int hotrow_card_map_remote(Card* card, uint64_t base, uint64_t size, RemoteRead read,
                               RemoteWrite write, int writable) {
  return card->root.map.map(base, size, read, write, writable != 0);
}
API int hotrow_card_unmap(Card* card, uint64_t base) { return card->root.map.unmap(base); }
API int hotrow_card_read(Card* card, uint32_t offset, uint32_t* value) {
  return card->read_register(offset, value);
}
API int hotrow_card_write(Card* card, uint32_t offset, uint32_t value) {
  return card->write_register(offset, value);
}
API const char* hotrow_card_violation(const Card* card, uint32_t number) {
  const auto& found = card->root.violations;
  return number < found.size() ? found[number].c_str() : nullptr;
}
