// Sends operands through one floating-point unit, with pauses at either end that a seed decides.

#include <cstdint>
#include <memory>

#include "Vunit.h"

namespace {

class Random {
public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}

  // True in about three of four cases.
  bool mostly() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 32 & 3) != 0;
  }

private:
  uint64_t state_;
};

}  // namespace

// Returns how many results came before `limit` cycles had passed without one; seed 0 never pauses.
extern "C" __attribute__((visibility("default"))) uint64_t hotrow_float_run(
    const uint32_t *a, const uint32_t *b, const uint32_t *c, uint64_t count, uint64_t limit,
    uint64_t seed, uint32_t *results, uint32_t *cycles) {
  auto context = std::make_unique<VerilatedContext>();
  auto unit = std::make_unique<Vunit>(context.get());
  Random random(seed);
  auto edge = [&] {
    unit->clk = 1;
    unit->eval();
    unit->clk = 0;
    unit->eval();
  };
  unit->clk = 0;
  unit->rst = 1;
  unit->given = unit->taken = 0;
  edge();
  edge();
  unit->rst = 0;

  uint64_t sent = 0, came = 0, last = 0;
  bool waiting = false;
  auto sent_at = std::make_unique<uint64_t[]>(count);
  for (uint64_t cycle = 0; came < count && cycle - last < limit; ++cycle) {
    // What was offered stays.
    unit->given = sent < count && (unit->given || !seed || random.mostly());
    unit->taken = !seed || random.mostly();
    if (unit->given) {
      unit->a = a[sent];
      unit->b = b[sent];
      unit->c = c[sent];
    }
    unit->eval();
    const bool gone = unit->given && unit->ready;
    if (unit->done && !waiting)
      cycles[came] = static_cast<uint32_t>(cycle - sent_at[came]);
    waiting = unit->done && !unit->taken && unit->waits;
    if (unit->done && !waiting) {
      results[came++] = unit->result;
      last = cycle;
    }
    if (gone)
      sent_at[sent++] = cycle;
    edge();
    if (gone)
      unit->given = 0;
  }
  unit->final();
  return came;
}
