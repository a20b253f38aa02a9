// A Verilated component whose pins are two vectors, clocked one cycle at a time.
#include <cstdint>
#include <cstring>
#include "Vpins.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace {
constexpr int WORDS = 128;
struct Pins {
  VerilatedContext context;
  Vpins top{&context};
};
}  // namespace

#define PUBLIC extern "C" __attribute__((visibility("default")))

PUBLIC void *hotrow_pins_open() { return new Pins; }
PUBLIC void hotrow_pins_close(void *pins) { delete static_cast<Pins *>(pins); }

// The outputs follow from the inputs of the same cycle; then the clock rises.
PUBLIC void hotrow_pins_step(void *handle, uint32_t reset, const uint32_t *inputs, uint32_t *outputs) {
  Vpins &top = static_cast<Pins *>(handle)->top;
  top.rst = reset;
  for (int word = 0; word < WORDS; word++) top.inputs[word] = inputs[word];
  top.clk = 0;
  top.eval();
  for (int word = 0; word < WORDS; word++) outputs[word] = top.outputs[word];
  top.clk = 1;
  top.eval();
}
