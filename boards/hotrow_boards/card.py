"""Cards with a link to their host: accelerator, memory and link endpoint, wired."""

from amaranth import ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Out, connect, flipped
from hotrow_rtl.config import Config
from hotrow_rtl.emit.verilog import TOP_MODULE, flat_ports
from hotrow_rtl.host.register_block import REGISTER_ADDRESS_WIDTH
from hotrow_rtl.top import Top

from .block_memory import BlockMemory
from .dram.controller import Controller
from .dram.memory import DramMemory, dram_bus
from .ethernet.core import EthernetCore, rgmii_pins
from .ethernet.layouts import PEER_BYTES
from .ethernet.port import UdpPort
from .link.endpoint import LinkEndpoint
from .uart.port import UartPort

WINDOW = 4  # outstanding requests; each needs space for its frame and its reply
BLOCK_LOG2 = 8  # log2 of the bytes per bit of the written-block bitmap
IDLE_MS = 1000  # less than the time that the driver waits for a card to accept it


class IdleTimer(wiring.Component):
    """Assert `expired` when `restart` has been low for a number of cycles.

    Parameters
    ----------
    cycles : int
        Cycles until `expired`.

    Attributes
    ----------
    restart : In(1)
    expired : Out(1)
        High after reset.

    Timing
    ------
    `expired` falls in the cycle after `restart`, and rises `cycles` cycles later.
    """

    restart: In(1)
    expired: Out(1)

    def __init__(self, cycles):
        if cycles < 1:
            raise ValueError(f"cycles must be at least 1, not {cycles}")
        self.cycles = cycles
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        cycles_left = Signal(range(self.cycles + 1))
        m.d.comb += self.expired.eq(cycles_left == 0)
        with m.If(self.restart):
            m.d.sync += cycles_left.eq(self.cycles)
        with m.Elif(~self.expired):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        return m


class Core(Top):
    """`Top` as an instance; the design must include the Verilog that `emit` writes.

    Parameters, Attributes and Timing: see `Top`.
    """

    def elaborate(self, platform):
        m = Module()
        directions = ("i" if member.flow is Flow.In else "o"
                      for _, member, _ in self.signature.flatten(self))
        ports = zip(directions, flat_ports(self).items(), strict=True)
        m.submodules.core = Instance(
            TOP_MODULE, i_clk=ClockSignal(), i_rst=ResetSignal(allow_reset_less=True),
            **{f"{direction}_{name}": value for direction, (name, (value, _)) in ports})
        return m


class Card(wiring.Component):
    """Base of the cards; a subclass connects the link endpoint to its pins.

    Parameters
    ----------
    config : Config
    memory : int or Controller
        Bytes of block RAM, a power of two of at least 16 KB, or the controller of a DRAM. The
        memory begins at address 0.
    clock_khz : int
        Clock that the card reports to its host.
    pins : dict
        Signature members of the line.
    peer_bytes : int
        See `LinkEndpoint`.

    Attributes
    ----------
    dram : Out(DramBus)
        To the controller of the DRAM; only if `memory` is a controller.
    """

    def __init__(self, config: Config, memory, clock_khz, pins, peer_bytes=0):
        self.config, self.memory, self.clock_khz = config, memory, clock_khz
        self.peer_bytes = peer_bytes
        if isinstance(memory, Controller):
            dram = memory.dram
            self.memory_bytes, self.block_log2 = dram.memory_bytes, dram.block_log2
            pins = {**pins, "dram": Out(dram_bus(memory))}
        else:
            self.memory_bytes, self.block_log2 = memory, BLOCK_LOG2
        least = 64 << self.block_log2
        if self.memory_bytes < least or self.memory_bytes & (self.memory_bytes - 1):
            raise ValueError(f"memory must be a power of two of at least {least} bytes, not "
                             f"{self.memory_bytes}")
        super().__init__(pins)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.core = core = Core(config)
        m.submodules.link = link = LinkEndpoint(
            config.address_width, config.bus_bytes, REGISTER_ADDRESS_WIDTH, {
                "memory_base": 0, "memory_bytes": self.memory_bytes, "window": WINDOW,
                "block_log2": self.block_log2, "clock_khz": self.clock_khz}, self.peer_bytes)
        readers = [link.read_bus, core.list_bus,
                   *(getattr(core, f"row_read_bus_{n}") for n in range(config.row_ports))]
        writers = [link.write_bus,  # not in `marks`: the host knows its own writes
                   *(getattr(core, f"row_write_bus_{n}") for n in range(config.row_ports)),
                   *(getattr(core, f"result_bus_{n}") for n in range(config.result_ports))]
        reads = [bus.signature for bus in readers]
        writes = [(bus.signature, bus is not link.write_bus) for bus in writers]
        if isinstance(self.memory, Controller):
            m.submodules.memory = memory = DramMemory(self.memory, reads, writes)
            connect(m, memory.dram, flipped(self.dram))
            m.d.comb += [link.memory_ready.eq(memory.ready), link.memory_failed.eq(memory.failed)]
        else:
            m.submodules.memory = memory = BlockMemory(
                self.memory_bytes, self.block_log2, reads, writes)
        for number, bus in enumerate(readers):
            connect(m, bus, getattr(memory, f"read_{number}"))
        for number, bus in enumerate(writers):
            connect(m, bus, getattr(memory, f"write_{number}"))
        connect(m, memory=memory.marks, link=link.marks)
        connect(m, link=link.registers, core=core.registers)
        self.connect_line(m, link)
        return m

    def connect_line(self, m, link):
        """Connect the link endpoint to the pins, and drive `link.replaceable`."""
        raise NotImplementedError


class UartCard(Card):
    """A card on a serial line; the last host to bind replaces the one before.

    Parameters
    ----------
    config, memory, clock_khz
        See `Card`.

    Attributes
    ----------
    rx : In(1), tx : Out(1)
    """

    def __init__(self, config: Config, memory, clock_khz):
        super().__init__(config, memory, clock_khz, {"rx": In(1, init=1), "tx": Out(1, init=1)})

    def connect_line(self, m, link):
        m.submodules.port = port = UartPort()
        connect(m, port.frames, link.frames)
        m.d.comb += [port.rx.eq(self.rx), self.tx.eq(port.tx), link.replaceable.eq(1)]


class UdpCard(Card):
    """A card on Ethernet that replies only to the bound host.

    Another host may bind when the bound one has sent nothing for `idle_ms`. The design must include
    the text of `ethernet_verilog`.

    Parameters
    ----------
    config, memory, clock_khz
        See `Card`.
    idle_ms : int

    Attributes
    ----------
    pins : Out(rgmii_pins)
        See `EthernetCore`.
    """

    def __init__(self, config: Config, memory, clock_khz, idle_ms=IDLE_MS):
        self.idle_cycles = idle_ms * clock_khz
        super().__init__(config, memory, clock_khz, {"pins": Out(rgmii_pins)}, PEER_BYTES)

    def connect_line(self, m, link):
        m.submodules.port = port = UdpPort(WINDOW)
        m.submodules.ethernet = ethernet = EthernetCore()
        m.submodules.idle_timer = idle_timer = IdleTimer(self.idle_cycles)
        connect(m, port.frames, link.frames)
        connect(m, ethernet=ethernet.received, port=port.received)
        connect(m, port=port.sent, ethernet=ethernet.sent)
        connect(m, ethernet=ethernet.pins, line=flipped(self.pins))
        m.d.comb += [
            idle_timer.restart.eq(link.host_active), link.replaceable.eq(idle_timer.expired),
        ]
