// Runs streams through one component: payloads in, with idle cycles before each, and out, deaf
// cycles before each.

#include <cstdint>
#include <cstring>
#include <memory>

#include "Vunit.h"

namespace {

constexpr int WORDS = 20;  // of 32 bits in a payload, as in stream_unit.py
constexpr int INPUTS = 4, OUTPUTS = 2;

struct Unit {
  VerilatedContext context;
  std::unique_ptr<Vunit> top = std::make_unique<Vunit>(&context);
  uint64_t cycle = 0;

  void edge() {
    top->clk = 1;
    top->eval();
    top->clk = 0;
    top->eval();
    ++cycle;
  }
};

}  // namespace

#define PUBLIC extern "C" __attribute__((visibility("default")))

PUBLIC void *hotrow_stream_open() { return new Unit; }

PUBLIC void hotrow_stream_close(void *unit) { delete static_cast<Unit *>(unit); }

// Resets the component, sends all payloads and takes `taken_counts` of them; ends then, or after
// `limit` cycles. Tells the cycle of each transfer. Returns the number of a sink plus 1 where a
// payload changed or vanished before it was taken, else 0.
PUBLIC int hotrow_stream_run(void *handle, const uint32_t *setting, uint64_t limit,
                             const uint64_t *given_counts, const uint32_t *const *given,
                             const uint32_t *const *gaps, uint64_t *const *given_at,
                             uint64_t *sent, const uint64_t *taken_counts,
                             uint32_t *const *taken, const uint32_t *const *pauses,
                             uint64_t *const *taken_at, uint64_t *came) {
  Unit &unit = *static_cast<Unit *>(handle);
  Vunit &top = *unit.top;
  uint32_t *inputs[INPUTS] = {&top.i0_payload[0], &top.i1_payload[0], &top.i2_payload[0],
                                &top.i3_payload[0]};
  CData *offers[INPUTS] = {&top.i0_valid, &top.i1_valid, &top.i2_valid, &top.i3_valid};
  CData *accepts[INPUTS] = {&top.i0_ready, &top.i1_ready, &top.i2_ready, &top.i3_ready};
  uint32_t *outputs[OUTPUTS] = {&top.o0_payload[0], &top.o1_payload[0]};
  CData *comes[OUTPUTS] = {&top.o0_valid, &top.o1_valid};
  CData *takes[OUTPUTS] = {&top.o0_ready, &top.o1_ready};

  std::memcpy(&top.setting[0], setting, 4 * 4);
  top.clk = 0;
  top.rst = 1;
  for (auto *offer : offers) *offer = 0;
  for (auto *take : takes) *take = 0;
  unit.edge();
  unit.edge();
  top.rst = 0;
  for (int settle = 0; settle < 8; ++settle) unit.edge();

  uint64_t waited[INPUTS] = {}, deaf[OUTPUTS] = {};
  uint32_t held[OUTPUTS][WORDS];
  bool holds[OUTPUTS] = {};
  for (int i = 0; i < INPUTS; ++i) sent[i] = 0;
  for (int o = 0; o < OUTPUTS; ++o) came[o] = 0;
  auto over = [&] {
    for (int i = 0; i < INPUTS; ++i)
      if (sent[i] < given_counts[i]) return false;
    for (int o = 0; o < OUTPUTS; ++o)
      if (came[o] < taken_counts[o]) return false;
    return true;
  };
  const uint64_t began = unit.cycle;
  while (!over() && unit.cycle - began < limit) {
    for (int i = 0; i < INPUTS; ++i) {
      *offers[i] = sent[i] < given_counts[i] && waited[i] >= gaps[i][sent[i]];
      if (*offers[i]) std::memcpy(inputs[i], given[i] + WORDS * sent[i], 4 * WORDS);
      else std::memset(inputs[i], 0xFF, 4 * WORDS);
    }
    for (int o = 0; o < OUTPUTS; ++o)
      *takes[o] = came[o] < taken_counts[o] && deaf[o] >= pauses[o][came[o]];
    top.eval();
    for (int i = 0; i < INPUTS; ++i) {
      if (*offers[i] && *accepts[i]) {
        given_at[i][sent[i]++] = unit.cycle - began;
        waited[i] = 0;
      } else if (!*offers[i]) {
        ++waited[i];
      }
    }
    for (int o = 0; o < OUTPUTS; ++o) {
      if (holds[o] && (!*comes[o] || std::memcmp(held[o], outputs[o], sizeof held[o])))
        return o + 1;
      holds[o] = *comes[o] && !*takes[o];
      std::memcpy(held[o], outputs[o], sizeof held[o]);
      if (*comes[o] && *takes[o]) {
        std::memcpy(taken[o] + WORDS * came[o], outputs[o], 4 * WORDS);
        taken_at[o][came[o]++] = unit.cycle - began;
        deaf[o] = 0;
      } else if (!*takes[o]) {
        ++deaf[o];
      }
    }
    unit.edge();
  }
  return 0;
}
