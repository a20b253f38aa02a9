// The Verilated LiteDRAM controller with the model of its PHY and chips: clock, initialisation, and
// AXI4 ports, one per row port of the accelerator and one for the host.
//
// The build defines HOTROW_BUS_BYTES, HOTROW_ROW_PORTS and HOTROW_LITEDRAM_BYTES.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>

#include "Vlitedram.h"
#include "memory_model.hpp"
#include "verilated.h"

namespace hotrow {

// The pins user_port_NAME_* of a port: outputs of a master, and outputs of the controller.
struct CorePort {
  void (*drive_read)(Vlitedram&, const ReadInputs&);
  void (*drive_write)(Vlitedram&, const WriteInputs&);
  void (*sample_read)(const Vlitedram&, ReadOutputs&);
  void (*sample_write)(const Vlitedram&, WriteOutputs&);
};

#define HOTROW_CORE_PORT(NAME)                                                     \
  CorePort {                                                                       \
    [](Vlitedram& m, const ReadInputs& in) {                                       \
      m.user_port_##NAME##_araddr = in.araddr;                                     \
      m.user_port_##NAME##_arid = in.arid;                                         \
      m.user_port_##NAME##_arvalid = in.arvalid;                                   \
      m.user_port_##NAME##_arlen = in.arlen;                                       \
      m.user_port_##NAME##_arsize = in.arsize;                                     \
      m.user_port_##NAME##_arburst = in.arburst;                                   \
      m.user_port_##NAME##_rready = in.rready;                                     \
    },                                                                             \
    [](Vlitedram& m, const WriteInputs& in) {                                      \
      m.user_port_##NAME##_awaddr = in.awaddr;                                     \
      m.user_port_##NAME##_awid = in.awid;                                         \
      m.user_port_##NAME##_awvalid = in.awvalid;                                   \
      m.user_port_##NAME##_awlen = in.awlen;                                       \
      m.user_port_##NAME##_awsize = in.awsize;                                     \
      m.user_port_##NAME##_awburst = in.awburst;                                   \
      m.user_port_##NAME##_wvalid = in.wvalid;                                     \
      m.user_port_##NAME##_wstrb = in.wstrb;                                       \
      m.user_port_##NAME##_wlast = in.wlast;                                       \
      std::memcpy(&m.user_port_##NAME##_wdata, in.wdata, HOTROW_BUS_BYTES);        \
      m.user_port_##NAME##_bready = in.bready;                                     \
    },                                                                             \
    [](const Vlitedram& m, ReadOutputs& out) {                                     \
      out.arready = m.user_port_##NAME##_arready;                                  \
      out.rid = m.user_port_##NAME##_rid;                                          \
      out.rvalid = m.user_port_##NAME##_rvalid;                                    \
      out.rlast = m.user_port_##NAME##_rlast;                                      \
      out.rresp = m.user_port_##NAME##_rresp;                                      \
      std::memcpy(out.rdata, &m.user_port_##NAME##_rdata, HOTROW_BUS_BYTES);       \
    },                                                                             \
    [](const Vlitedram& m, WriteOutputs& out) {                                    \
      out.awready = m.user_port_##NAME##_awready;                                  \
      out.wready = m.user_port_##NAME##_wready;                                    \
      out.bid = m.user_port_##NAME##_bid;                                          \
      out.bvalid = m.user_port_##NAME##_bvalid;                                    \
      out.bresp = m.user_port_##NAME##_bresp;                                      \
    }                                                                              \
  }

#define HOTROW_ROW_PORT(N) HOTROW_CORE_PORT(row##N),
constexpr CorePort CORE_PORTS[] = {
    HOTROW_EACH(HOTROW_ROW_PORTS, HOTROW_ROW_PORT) HOTROW_CORE_PORT(host),
};
constexpr size_t HOST_PORT = HOTROW_ROW_PORTS;

// Its outputs depend on registers only, so it follows the order of memory_model.hpp: inputs of all
// ports, a clock cycle, outputs of all ports.
class Controller {
 public:
  Controller() : core_(power_up()) {}

  // Power up, and run the initialisation that LiteX generates for this DRAM, including its waits.
  void start();

  void cycle() {
    core_->eval();
    core_->clk = 1;
    core_->eval();
    core_->clk = 0;
  }

  Vlitedram& core() { return *core_; }

  // Registers, over Wishbone; byte addresses.
  void write(uint32_t address, uint32_t value) { access(address, true, value); }
  uint32_t read(uint32_t address) { return access(address, false, 0); }

 private:
  static constexpr int MOST_REGISTER_CYCLES = 1000;  // an access takes about four

  std::unique_ptr<Vlitedram> power_up() {
    return std::make_unique<Vlitedram>(&context_, "litedram");
  }

  uint32_t access(uint32_t address, bool write, uint32_t value) {
    Vlitedram& core = *core_;
    core.wb_ctrl_adr = address / 4;
    core.wb_ctrl_dat_w = value;
    core.wb_ctrl_we = write;
    core.wb_ctrl_sel = 0xF;
    core.wb_ctrl_cyc = core.wb_ctrl_stb = 1;
    for (int i = 0; i < MOST_REGISTER_CYCLES; ++i) {
      core.eval();
      const bool done = core.wb_ctrl_ack;
      const uint32_t seen = core.wb_ctrl_dat_r;
      cycle();
      if (!done) continue;
      core.wb_ctrl_cyc = core.wb_ctrl_stb = 0;
      return seen;
    }
    throw std::runtime_error("LiteDRAM's registers do not answer");
  }

  VerilatedContext context_;
  std::unique_ptr<Vlitedram> core_;
};

}  // namespace hotrow

// LiteX's generated code calls functions without an argument for the controller: this one.
namespace { hotrow::Controller* being_initialised; }
void csr_write_simple(unsigned long value, unsigned long address) {
  being_initialised->write(uint32_t(address), uint32_t(value));
}
unsigned long csr_read_simple(unsigned long address) {
  return being_initialised->read(uint32_t(address));
}
void cdelay(int cycles) {
  while (cycles-- > 0) being_initialised->cycle();
}
#include "generated/csr.h"
#include "generated/sdram_phy.h"

static_assert(SDRAM_PHY_SUPPORTED_MEMORY == HOTROW_LITEDRAM_BYTES,
              "the size of the DRAM differs from the requested one");

inline void hotrow::Controller::start() {
  being_initialised = this;
  core_.reset();
  core_ = power_up();
  cycle();
  init_sequence();
  sdram_dfii_control_write(DFII_CONTROL_SEL);  // the controller drives the DRAM from here
  ddrctrl_init_done_write(1);
  cdelay(2);  // until the ports are open
}
