// Runs streams through one component: payloads in, with idle cycles before each, and payloads out,
// with cycles without `ready` before each.

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

// Resets the component, sends all payloads and accepts `out_counts` of them; ends then, or after
// `limit` cycles. Reports the cycle of each transfer, and the first cycle in which each output was
// valid. Returns the number of an output plus 1 if its payload changed or vanished while stalled,
// else 0.
PUBLIC int hotrow_stream_run(void *handle, const uint32_t *setting, uint64_t limit,
                             const uint64_t *in_counts, const uint32_t *const *in,
                             const uint32_t *const *gaps, uint64_t *const *in_cycles,
                             uint64_t *sent, const uint64_t *out_counts, uint32_t *const *out,
                             const uint32_t *const *pauses, uint64_t *const *out_cycles,
                             uint64_t *const *valid_cycles, uint64_t *received) {
  Unit &unit = *static_cast<Unit *>(handle);
  Vunit &top = *unit.top;
  uint32_t *inputs[INPUTS] = {&top.i0_payload[0], &top.i1_payload[0], &top.i2_payload[0],
                              &top.i3_payload[0]};
  CData *in_valid[INPUTS] = {&top.i0_valid, &top.i1_valid, &top.i2_valid, &top.i3_valid};
  CData *in_ready[INPUTS] = {&top.i0_ready, &top.i1_ready, &top.i2_ready, &top.i3_ready};
  uint32_t *outputs[OUTPUTS] = {&top.o0_payload[0], &top.o1_payload[0]};
  CData *out_valid[OUTPUTS] = {&top.o0_valid, &top.o1_valid};
  CData *out_ready[OUTPUTS] = {&top.o0_ready, &top.o1_ready};

  std::memcpy(&top.setting[0], setting, 4 * 4);
  top.clk = 0;
  top.rst = 1;
  for (auto *valid : in_valid) *valid = 0;
  for (auto *ready : out_ready) *ready = 0;
  unit.edge();
  unit.edge();
  top.rst = 0;
  for (int settle = 0; settle < 8; ++settle) unit.edge();

  uint64_t idle[INPUTS] = {}, stalled[OUTPUTS] = {};
  uint32_t held[OUTPUTS][WORDS];
  bool holds[OUTPUTS] = {};
  for (int i = 0; i < INPUTS; ++i) sent[i] = 0;
  for (int o = 0; o < OUTPUTS; ++o) received[o] = 0;
  auto done = [&] {
    for (int i = 0; i < INPUTS; ++i)
      if (sent[i] < in_counts[i]) return false;
    for (int o = 0; o < OUTPUTS; ++o)
      if (received[o] < out_counts[o]) return false;
    return true;
  };
  const uint64_t start = unit.cycle;
  while (!done() && unit.cycle - start < limit) {
    for (int i = 0; i < INPUTS; ++i) {
      *in_valid[i] = sent[i] < in_counts[i] && idle[i] >= gaps[i][sent[i]];
      if (*in_valid[i]) std::memcpy(inputs[i], in[i] + WORDS * sent[i], 4 * WORDS);
      else std::memset(inputs[i], 0xFF, 4 * WORDS);
    }
    for (int o = 0; o < OUTPUTS; ++o)
      *out_ready[o] = received[o] < out_counts[o] && stalled[o] >= pauses[o][received[o]];
    top.eval();
    for (int i = 0; i < INPUTS; ++i) {
      if (*in_valid[i] && *in_ready[i]) {
        in_cycles[i][sent[i]++] = unit.cycle - start;
        idle[i] = 0;
      } else if (!*in_valid[i]) {
        ++idle[i];
      }
    }
    for (int o = 0; o < OUTPUTS; ++o) {
      if (holds[o] && (!*out_valid[o] || std::memcmp(held[o], outputs[o], sizeof held[o])))
        return o + 1;
      if (*out_valid[o] && !holds[o] && received[o] < out_counts[o])
        valid_cycles[o][received[o]] = unit.cycle - start;
      holds[o] = *out_valid[o] && !*out_ready[o];
      std::memcpy(held[o], outputs[o], sizeof held[o]);
      if (*out_valid[o] && *out_ready[o]) {
        std::memcpy(out[o] + WORDS * received[o], outputs[o], 4 * WORDS);
        out_cycles[o][received[o]++] = unit.cycle - start;
        stalled[o] = 0;
      } else if (!*out_ready[o]) {
        ++stalled[o];
      }
    }
    unit.edge();
  }
  return 0;
}
