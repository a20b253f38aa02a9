// The memory model's ports, wired to the pins of the Verilated accelerator.
//
// The build defines HOTROW_BUS_BYTES, HOTROW_ROW_PORTS and HOTROW_RESULT_PORTS, all that the ports of
// two configurations differ in.
#pragma once

#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "Vhotrow.h"
#include "memory_model.hpp"

namespace hotrow {

// The pins m_axi_NAME_* of a port: what the accelerator drives, and what the memory drives.
#define HOTROW_READ_PINS(NAME)                                            \
  struct Read_##NAME {                                                    \
    using Port = ReadPort;                                                \
    using Inputs = ReadInputs;                                            \
    static void sample(const Vhotrow& m, ReadInputs& in) {                \
      in.araddr = m.m_axi_##NAME##_araddr;                                \
      in.arid = m.m_axi_##NAME##_arid;                                    \
      in.arvalid = m.m_axi_##NAME##_arvalid;                              \
      in.arlen = m.m_axi_##NAME##_arlen;                                  \
      in.arsize = m.m_axi_##NAME##_arsize;                                \
      in.arburst = m.m_axi_##NAME##_arburst;                              \
      in.rready = m.m_axi_##NAME##_rready;                                \
    }                                                                     \
    static void drive(Vhotrow& m, const ReadOutputs& out) {               \
      m.m_axi_##NAME##_arready = out.arready;                             \
      m.m_axi_##NAME##_rid = out.rid;                                     \
      m.m_axi_##NAME##_rvalid = out.rvalid;                               \
      m.m_axi_##NAME##_rlast = out.rlast;                                 \
      m.m_axi_##NAME##_rresp = out.rresp;                                 \
      std::memcpy(&m.m_axi_##NAME##_rdata, out.rdata, HOTROW_BUS_BYTES);  \
    }                                                                     \
  };

#define HOTROW_WRITE_PINS(NAME)                                           \
  struct Write_##NAME {                                                   \
    using Port = WritePort;                                               \
    using Inputs = WriteInputs;                                           \
    static void sample(const Vhotrow& m, WriteInputs& in) {               \
      in.awaddr = m.m_axi_##NAME##_awaddr;                                \
      in.awid = m.m_axi_##NAME##_awid;                                    \
      in.awvalid = m.m_axi_##NAME##_awvalid;                              \
      in.awlen = m.m_axi_##NAME##_awlen;                                  \
      in.awsize = m.m_axi_##NAME##_awsize;                                \
      in.awburst = m.m_axi_##NAME##_awburst;                              \
      in.wvalid = m.m_axi_##NAME##_wvalid;                                \
      in.wstrb = m.m_axi_##NAME##_wstrb;                                  \
      in.wlast = m.m_axi_##NAME##_wlast;                                  \
      std::memcpy(in.wdata, &m.m_axi_##NAME##_wdata, HOTROW_BUS_BYTES);   \
      in.bready = m.m_axi_##NAME##_bready;                                \
    }                                                                     \
    static void drive(Vhotrow& m, const WriteOutputs& out) {              \
      m.m_axi_##NAME##_awready = out.awready;                             \
      m.m_axi_##NAME##_wready = out.wready;                               \
      m.m_axi_##NAME##_bid = out.bid;                                     \
      m.m_axi_##NAME##_bvalid = out.bvalid;                               \
      m.m_axi_##NAME##_bresp = out.bresp;                                 \
    }                                                                     \
  };

HOTROW_READ_PINS(list)
HOTROW_READ_PINS(row0)
HOTROW_WRITE_PINS(row0)
#if HOTROW_ROW_PORTS >= 2
HOTROW_READ_PINS(row1)
HOTROW_WRITE_PINS(row1)
#endif
#if HOTROW_ROW_PORTS >= 4
HOTROW_READ_PINS(row2)
HOTROW_WRITE_PINS(row2)
HOTROW_READ_PINS(row3)
HOTROW_WRITE_PINS(row3)
#endif
#if HOTROW_ROW_PORTS == 8
HOTROW_READ_PINS(row4)
HOTROW_WRITE_PINS(row4)
HOTROW_READ_PINS(row5)
HOTROW_WRITE_PINS(row5)
HOTROW_READ_PINS(row6)
HOTROW_WRITE_PINS(row6)
HOTROW_READ_PINS(row7)
HOTROW_WRITE_PINS(row7)
#endif
HOTROW_WRITE_PINS(result0)
#if HOTROW_RESULT_PORTS >= 2
HOTROW_WRITE_PINS(result1)
#endif
#if HOTROW_RESULT_PORTS == 4
HOTROW_WRITE_PINS(result2)
HOTROW_WRITE_PINS(result3)
#endif

// A port of the memory and the pins to which it belongs.
template <typename Pins>
struct Attached {
  explicit Attached(std::pair<MemoryMap*, const Behaviour*> with)
      : port(*with.first, HOTROW_BUS_BYTES, *with.second) {}
  typename Pins::Port port;
  typename Pins::Inputs inputs{};
};

// All ports, in the order of their numbers in the C interface.
class MemoryPorts {
 public:
  MemoryPorts(MemoryMap& map, const Behaviour* behaviours)
      : MemoryPorts(map, behaviours, std::make_index_sequence<COUNT>()) {}

  void sample(const Vhotrow& model) {
    each([&](auto pins, auto& at) { pins.sample(model, at.inputs); });
  }
  void tick() {
    each([](auto, auto& at) { at.port.tick(at.inputs); });
  }
  void drive(Vhotrow& model) {
    each([&](auto pins, auto& at) { pins.drive(model, at.port.outputs()); });
  }
  void reset() {
    each([](auto, auto& at) { at.port.reset(); });
  }
  Port& operator[](size_t number) {
    return *std::apply([](auto&... at) { return std::array<Port*, COUNT>{&at.port...}; },
                       attached_)[number];
  }

 private:
  template <typename... Pins>
  struct List {
    using Attachments = std::tuple<Attached<Pins>...>;
    template <typename Action>
    static void each(Attachments& attached, Action&& action) {
      std::apply([&](Attached<Pins>&... at) { (action(Pins{}, at), ...); }, attached);
    }
  };
  using All = List<Read_list, Read_row0, Write_row0
#if HOTROW_ROW_PORTS >= 2
                   , Read_row1, Write_row1
#endif
#if HOTROW_ROW_PORTS >= 4
                   , Read_row2, Write_row2, Read_row3, Write_row3
#endif
#if HOTROW_ROW_PORTS == 8
                   , Read_row4, Write_row4, Read_row5, Write_row5
                   , Read_row6, Write_row6, Read_row7, Write_row7
#endif
                   , Write_result0
#if HOTROW_RESULT_PORTS >= 2
                   , Write_result1
#endif
#if HOTROW_RESULT_PORTS == 4
                   , Write_result2, Write_result3
#endif
                   >;
  static constexpr size_t COUNT = std::tuple_size_v<All::Attachments>;

  template <size_t... Number>
  MemoryPorts(MemoryMap& map, const Behaviour* behaviours, std::index_sequence<Number...>)
      : attached_(std::pair(&map, behaviours + Number)...) {}

  template <typename Action>
  void each(Action&& action) { All::each(attached_, action); }

  All::Attachments attached_;
};

}  // namespace hotrow
