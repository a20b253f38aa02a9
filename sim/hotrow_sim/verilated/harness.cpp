// The Verilated accelerator with its clock, its memory and a register master, for ctypes.
//
// One call simulates many cycles without Python.
#include <memory>

#include "memory_ports.hpp"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif
#if VM_COVERAGE
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "verilated_cov.h"
#endif

using namespace hotrow;

namespace {

constexpr int RESET_CYCLES = 4;
constexpr int MOST_REGISTER_CYCLES = 10000;  // an access takes about ten

struct Model {
  VerilatedContext context;
  Vhotrow top{&context, "hotrow"};

  ~Model() {
    top.final();
#if VM_COVERAGE
    if (const char* folder = std::getenv("HOTROW_COVERAGE")) {
      const auto path = std::string(folder) + "/" + std::to_string(getpid()) + "-" +
                        std::to_string(reinterpret_cast<uintptr_t>(this));
      context.coveragep()->write(path);
      std::rename(path.c_str(), (path + ".dat").c_str());  // the reader sees whole files only
    }
#endif
  }
};

#if VM_COVERAGE
// The counts of a model are large, so all devices of a process share few models, each after a reset.
std::vector<std::unique_ptr<Model>> unused;

std::unique_ptr<Model> make_model() {
  if (unused.empty()) return std::make_unique<Model>();
  auto model = std::move(unused.back());
  unused.pop_back();
  return model;
}
#else
std::unique_ptr<Model> make_model() { return std::make_unique<Model>(); }
#endif

}  // namespace

// One accelerator. Its clock advances only in calls of this interface.
class Device {
 public:
  Device(const Behaviour* behaviours, const DramTiming* dram)
      : map(dram),
        ports({map, behaviours}),
        owned_(make_model()),
        context_(owned_->context),
        model_(owned_->top) {
    reset();
  }

  ~Device() {
    trace(nullptr);
#if VM_COVERAGE
    unused.push_back(std::move(owned_));
#endif
  }

  // Pulse the reset input and reset the memory ports.
  void reset() {
    ports.reset();
    ports.drive(model_);
    model_.s_axil_awvalid = model_.s_axil_wvalid = model_.s_axil_arvalid = 0;
    model_.s_axil_bready = model_.s_axil_rready = 0;
    model_.s_axil_awprot = model_.s_axil_arprot = 0;
    model_.s_axil_wstrb = 0xF;
    model_.rst = 1;
    settle();
    for (int i = 0; i < RESET_CYCLES; ++i) {
      rise();
      settle();
    }
    model_.rst = 0;
    settle();
    cycles = 0;
  }

  // One clock cycle, as memory_model.hpp describes it.
  void cycle() {
    ports.sample(model_);
    rise();
    ports.tick();
    ports.drive(model_);
    settle();
    ++cycles;
  }


  // Returns the AXI4-Lite response, or -1 without one.
  int write_register(uint32_t offset, uint32_t value) {
    model_.s_axil_awaddr = offset;
    model_.s_axil_wdata = value;
    model_.s_axil_awvalid = model_.s_axil_wvalid = model_.s_axil_bready = 1;
    settle();
    for (int i = 0; i < MOST_REGISTER_CYCLES; ++i) {
      const bool address_ready = model_.s_axil_awready, data_ready = model_.s_axil_wready;
      const bool done = model_.s_axil_bvalid;
      const int response = model_.s_axil_bresp;
      cycle();
      if (address_ready) model_.s_axil_awvalid = 0;
      if (data_ready) model_.s_axil_wvalid = 0;
      if (done) model_.s_axil_bready = 0;
      settle();
      if (done) return response;
    }
    return -1;
  }

  int read_register(uint32_t offset, uint32_t* value) {
    model_.s_axil_araddr = offset;
    model_.s_axil_arvalid = model_.s_axil_rready = 1;
    settle();
    for (int i = 0; i < MOST_REGISTER_CYCLES; ++i) {
      const bool address_ready = model_.s_axil_arready, done = model_.s_axil_rvalid;
      const int response = model_.s_axil_rresp;
      *value = model_.s_axil_rdata;
      cycle();
      if (address_ready) model_.s_axil_arvalid = 0;
      if (done) model_.s_axil_rready = 0;
      settle();
      if (done) return response;
    }
    return -1;
  }

  // Run until a register differs from `value`, for about `most` cycles. Returns 1 if it differs, 0
  // at the limit, -1 if the registers do not respond.
  int wait(uint32_t offset, uint32_t value, uint64_t most, uint32_t interval) {
    for (const uint64_t end = cycles + most; cycles < end;) {
      uint32_t seen;
      if (read_register(offset, &seen) < 0) return -1;
      if (seen != value) return 1;
      for (uint32_t i = 0; i < interval; ++i) cycle();
    }
    return 0;
  }

  // Record all signals to a file; a null path ends the recording. Returns 0 if the build cannot.
  int trace(const char* path) {
#if VM_TRACE
    if (vcd_) vcd_->close();
    vcd_.reset();
    if (path) {
      context_.traceEverOn(true);
      vcd_ = std::make_unique<VerilatedVcdC>();
      model_.trace(vcd_.get(), 99);
      vcd_->open(path);
    }
    return 1;
#else
    return path == nullptr;
#endif
  }

  // Verilator renames this pin, as some C++ compilers reserve its name.
  bool interrupt() const { return model_.__SYM__interrupt; }

  MemoryMap map;
  MemoryPorts ports;
  uint64_t cycles = 0;  // since reset

 private:

  void rise() {
    model_.clk = 1;
    evaluate();
  }

  // Evaluate the logic with the clock low.
  void settle() {
    model_.clk = 0;
    evaluate();
  }

  void evaluate() {
    model_.eval();
#if VM_TRACE
    if (vcd_) vcd_->dump(context_.time());
    context_.timeInc(1);
#endif
  }

  std::unique_ptr<Model> owned_;
  VerilatedContext& context_;
  Vhotrow& model_;
#if VM_TRACE
  std::unique_ptr<VerilatedVcdC> vcd_;
#endif
};

#define API extern "C" __attribute__((visibility("default")))

API Device* hotrow_open(const Behaviour* behaviours, const DramTiming* dram) {
  return new Device(behaviours, dram);
}
API void hotrow_close(Device* device) { delete device; }
API void hotrow_reset(Device* device) { device->reset(); }
API int hotrow_map(Device* device, uint64_t base, uint64_t size, uint8_t* host, int writable) {
  return device->map.map(base, size, host, writable != 0);
}
API int hotrow_unmap(Device* device, uint64_t base) {
  return device->map.unmap(base);
}
API int hotrow_read_register(Device* device, uint32_t offset, uint32_t* value) {
  return device->read_register(offset, value);
}
API int hotrow_write_register(Device* device, uint32_t offset, uint32_t value) {
  return device->write_register(offset, value);
}
API int hotrow_wait(Device* device, uint32_t offset, uint32_t value, uint64_t most,
                    uint32_t interval) {
  return device->wait(offset, value, most, interval);
}
API void hotrow_run(Device* device, uint64_t cycles) {
  while (cycles--) device->cycle();
}
API uint64_t hotrow_cycles(const Device* device) { return device->cycles; }
API int hotrow_interrupt(const Device* device) { return device->interrupt(); }
API int hotrow_trace(Device* device, const char* path) { return device->trace(path); }
API void hotrow_fail_range(Device* device, int port, uint64_t base, uint64_t size,
                           uint8_t response) {
  device->ports[port].fail_range(base, size, response);
}
API void hotrow_fail_beat(Device* device, int port, uint64_t index, uint8_t response) {
  device->ports[port].fail_beat(index, response);
}
API void hotrow_silence(Device* device, int port, uint64_t first, uint64_t end, int accept) {
  device->ports[port].silence(first, end, accept != 0);
}
API void hotrow_statistics(Device* device, int port, Statistics* to) {
  *to = device->ports[port].statistics();
}
API const char* hotrow_violation(Device* device, int port, uint32_t index) {
  const auto& all = device->ports[port].violations();
  return index < all.size() ? all[index].c_str() : nullptr;
}
