"""A board's DRAM beside the host's memory, for a card whose bus reaches the host."""

from amaranth import Module, Mux, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import Config
from hotrow_rtl.export.interfaces import buses
from hotrow_rtl.export.pcie_card import HOST, CardMemory, between_masters
from hotrow_rtl.memory.axi import AXI4Read

from .address_router import ReadRouter, WriteRouter
from .controller import Controller
from .core import DramCore
from .memory import DramMemory, dram_bus

MODULE = "hotrow_memory"
_STATES = "dram_ready", "dram_failed"


class SecondMemory(wiring.Component):
    """Serve the upper half of the masters' addresses from a DRAM, the lower half from the host.

    The DRAM begins at the first address of the upper half. Bursts to it wait until it has been
    brought up. If it failed, or where it ends, they get DECERR.

    Parameters
    ----------
    controller : Controller
    reads, writes : sequence of AXI4Read, of AXI4Write
        Signature of each master.

    Attributes
    ----------
    read_0, ... : In(AXI4Read), write_0, ... : In(AXI4Write)
        The masters.
    host_read_0, ... : Out(AXI4Read), host_write_0, ... : Out(AXI4Write)
        Their bursts to the host, whose highest address bit is 0.
    dram_ready, dram_failed : Out(1), dram : Out(DramBus)
        See `DramMemory`.

    Timing
    ------
    See `ReadRouter`, `WriteRouter` and `DramMemory`.
    """

    def __init__(self, controller: Controller, reads, writes):
        self.controller = controller
        self.masters = {**{f"read_{n}": each for n, each in enumerate(reads)},
                        **{f"write_{n}": each for n, each in enumerate(writes)}}
        least = min(each.address_width for each in self.masters.values()) - 1
        if controller.dram.memory_bytes > 1 << least:
            raise ValueError(f"half of the addresses, {1 << least} bytes, must hold the DRAM, "
                             f"which has {controller.dram.memory_bytes}")
        self.reads, self.writes = list(reads), list(writes)
        super().__init__({
            **{name: In(each) for name, each in self.masters.items()},
            **{f"{HOST}{name}": Out(each) for name, each in self.masters.items()},
            "dram_ready": Out(1), "dram_failed": Out(1), "dram": Out(dram_bus(controller)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = DramMemory(
            self.controller, self.reads, [(each, False) for each in self.writes])
        connect(m, memory.dram, flipped(self.dram))
        m.d.comb += [memory.marks.ready.eq(1), self.dram_ready.eq(memory.ready),
                     self.dram_failed.eq(memory.failed)]
        settled = memory.ready | memory.failed
        for name, each in self.masters.items():
            kind, channel = (ReadRouter, "ar") if isinstance(each, AXI4Read) else (
                WriteRouter, "aw")
            m.submodules[f"{name}_router"] = router = kind(each)
            connect(m, router.master, flipped(getattr(self, name)))
            connect(m, router.low, flipped(getattr(self, f"{HOST}{name}")))
            port, high = getattr(memory, name), router.high
            valid, ready, address = (f"{channel}{signal}" for signal in ("valid", "ready", "addr"))
            for signal, member in each.members.items():
                value, inner = getattr(high, signal), getattr(port, signal)
                if signal == valid:
                    value = value & settled
                elif signal == address:  # beyond the memory
                    value = Mux(memory.failed, ~0, value)
                if signal == ready:
                    m.d.comb += value.eq(inner & settled)
                else:
                    m.d.comb += inner.eq(value) if member.flow is Out else value.eq(inner)
        return m


class SimulatedMemory(wiring.Component):
    """A `SecondMemory` with the simulated controller of its DRAM.

    Parameters
    ----------
    controller : Controller
        Whose Verilog includes a model of the chips.
    reads, writes : sequence of AXI4Read, of AXI4Write
        See `SecondMemory`.
    """

    def __init__(self, controller: Controller, reads, writes):
        self.memory = memory = SecondMemory(controller, reads, writes)
        super().__init__({name: member for name, member in memory.signature.members.items()
                          if name != "dram"})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = self.memory
        m.submodules.dram = dram = DramCore(memory.controller)
        connect(m, card=memory.dram, dram=dram.bus)
        for name in self.signature.members:
            if name in _STATES:
                m.d.comb += getattr(self, name).eq(getattr(memory, name))
            else:
                connect(m, getattr(memory, name), flipped(getattr(self, name)))
        return m


def second_memory(config: Config, controller: Controller, simulated: bool = False) -> CardMemory:
    """The memory for `card_files`; its pins are `dram_ready`, `dram_failed` and, unless
    `simulated`, those of the `DramBus`."""
    kind = SimulatedMemory if simulated else SecondMemory
    bus = dram_bus(controller)
    pins = () if simulated else [
        ("output" if member.flow is Out else "input", len(Value.cast(value)), "_".join(
            ("dram", *path))) for path, member, value in bus.flatten(bus.create())]
    text = between_masters(lambda reads, writes: kind(controller, reads, writes), MODULE,
                           buses(config), ("", HOST))
    return CardMemory(MODULE, text + controller.verilog * simulated,
                      (*(("output", 1, name) for name in _STATES), *pins))
