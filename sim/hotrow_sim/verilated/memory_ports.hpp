// The ports of the memory, connected to the pins of the Verilated accelerator.
//
// The build defines HOTROW_BUS_BYTES, HOTROW_ROW_PORTS and HOTROW_RESULT_PORTS.
#pragma once

#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "Vhotrow.h"
#include "memory_model.hpp"

namespace hotrow {

// Shared parts of all ports.
struct Parts {
  MemoryMap& map;
  const Behaviour* behaviours;
};

// A port of the memory model; `number` is its number in the C interface.
template <typename Model>
struct Modelled {
  using Port = Model;
  static Port make(const Parts& parts, size_t number) {
    return Port(parts.map, HOTROW_BUS_BYTES, parts.behaviours[number]);
  }
};


// The pins m_axi_NAME_* of a port: outputs of the accelerator, and outputs of the memory.
#define HOTROW_READ_PINS(NAME, KIND)                                      \
  struct Read_##NAME : KIND {                                             \
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

#define HOTROW_WRITE_PINS(NAME, KIND)                                     \
  struct Write_##NAME : KIND {                                            \
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

#define HOTROW_ROW_PINS(N)                     \
  HOTROW_READ_PINS(row##N, Modelled<ReadPort>) \
  HOTROW_WRITE_PINS(row##N, Modelled<WritePort>)
#define HOTROW_RESULT_PINS(N) HOTROW_WRITE_PINS(result##N, Modelled<WritePort>)
HOTROW_READ_PINS(list, Modelled<ReadPort>)
HOTROW_EACH(HOTROW_ROW_PORTS, HOTROW_ROW_PINS)
HOTROW_EACH(HOTROW_RESULT_PORTS, HOTROW_RESULT_PINS)

// A port of the memory and its pins.
template <typename Pins>
struct Attached {
  explicit Attached(std::pair<const Parts*, size_t> of)
      : port(Pins::make(*of.first, of.second)) {}
  typename Pins::Port port;
  typename Pins::Inputs inputs{};
};

// All ports, in the order of their numbers in the C interface.
class MemoryPorts {
 public:
  explicit MemoryPorts(const Parts& parts)
      : MemoryPorts(parts, std::make_index_sequence<COUNT>()) {}

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
#define HOTROW_ROW(N) , Read_row##N, Write_row##N
#define HOTROW_RESULT(N) , Write_result##N
  using All = List<Read_list HOTROW_EACH(HOTROW_ROW_PORTS, HOTROW_ROW)
                       HOTROW_EACH(HOTROW_RESULT_PORTS, HOTROW_RESULT)>;
  static constexpr size_t COUNT = std::tuple_size_v<All::Attachments>;

  template <size_t... Number>
  MemoryPorts(const Parts& parts, std::index_sequence<Number...>)
      : attached_(std::pair(&parts, Number)...) {}

  template <typename Action>
  void each(Action&& action) { All::each(attached_, action); }

  All::Attachments attached_;
};

}  // namespace hotrow
