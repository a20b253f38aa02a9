"""A card with a link to its host: accelerator, memory and link endpoint, wired."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import Config
from hotrow_rtl.host.register_block import REGISTER_ADDRESS_WIDTH

from .block_memory import BlockMemory
from .core import Core
from .dram.controller import Controller
from .dram.memory import DramMemory, dram_bus
from .ethernet.core import EthernetCore, rgmii_pins
from .ethernet.idle_timer import IdleTimer
from .ethernet.layouts import PEER_BYTES
from .ethernet.port import UdpPort
from .link.endpoint import LinkEndpoint
from .link.layouts import frame_byte
from .uart.port import UartPort

WINDOW = 4  # outstanding requests; each needs space for its frame and its reply
BLOCK_LOG2 = 8  # log2 of the bytes per bit of the written-block bitmap
IDLE_MS = 1000  # less than the time that the driver waits for a card to accept it


class Card(wiring.Component):
    """Accelerator, memory and link endpoint, with a stream of frames each way.

    Parameters
    ----------
    config : Config
    memory : int or Controller
        Bytes of block RAM, a power of two of at least 16 KB, or the controller of a DRAM. The
        memory begins at address 0.
    clock_khz : int
        Clock that the card reports to its host.
    peer_bytes : int
        See `LinkEndpoint`.

    Attributes
    ----------
    i : In(stream(frame_byte)), o : Out(stream(frame_byte))
    peer : In(8 * peer_bytes), host : Out(8 * peer_bytes)
    replaceable, overrun : In(1)
    good, bad, host_active : Out(1)
        See `LinkEndpoint`.
    dram : Out(DramBus)
        To the controller of the DRAM; only if `memory` is a controller.
    """

    def __init__(self, config: Config, memory, clock_khz, peer_bytes=0):
        self.config, self.memory, self.clock_khz = config, memory, clock_khz
        self.peer_bytes = peer_bytes
        if isinstance(memory, Controller):
            dram = memory.dram
            self.memory_bytes, self.block_log2 = dram.memory_bytes, dram.block_log2
        else:
            self.memory_bytes, self.block_log2 = memory, BLOCK_LOG2
        least = 64 << self.block_log2
        if self.memory_bytes < least or self.memory_bytes & (self.memory_bytes - 1):
            raise ValueError(f"memory must be a power of two of at least {least} bytes, not "
                             f"{self.memory_bytes}")
        super().__init__({
            **dram_port(memory),
            "i": In(stream.Signature(frame_byte)),
            "o": Out(stream.Signature(frame_byte)),
            "peer": In(8 * peer_bytes),
            "host": Out(8 * peer_bytes),
            "replaceable": In(1),
            "overrun": In(1),
            "good": Out(1),
            "bad": Out(1),
            "host_active": Out(1),
        })

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
        connect(m, line=flipped(self.i), link=link.i)
        connect(m, link=link.o, line=flipped(self.o))
        m.d.comb += [
            link.peer.eq(self.peer),
            self.host.eq(link.host),
            link.replaceable.eq(self.replaceable),
            link.overrun.eq(self.overrun),
            self.host_active.eq(link.host_active),
            self.good.eq(link.good),
            self.bad.eq(link.bad),
        ]
        return m


class UartCard(wiring.Component):
    """A `Card` on a serial line; the last host to bind replaces the one before.

    Parameters
    ----------
    config, memory, clock_khz
        See `Card`.

    Attributes
    ----------
    rx : In(1), tx : Out(1)
    dram : Out(DramBus)
        See `Card`.
    """

    def __init__(self, config: Config, memory, clock_khz):
        self.card = Card(config, memory, clock_khz)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), **dram_port(memory)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.port = port = UartPort()
        connect(m, port=port.o, card=card.i)
        connect(m, card=card.o, port=port.i)
        if "dram" in self.signature.members:
            connect(m, card.dram, flipped(self.dram))
        m.d.comb += [
            port.rx.eq(self.rx), self.tx.eq(port.tx),
            port.good.eq(card.good), port.bad.eq(card.bad),
            card.replaceable.eq(1),
        ]
        return m


class UdpCard(wiring.Component):
    """A `Card` on Ethernet that replies only to the bound host.

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
    dram : Out(DramBus)
        See `Card`.
    """

    def __init__(self, config: Config, memory, clock_khz, idle_ms=IDLE_MS):
        self.card = Card(config, memory, clock_khz, PEER_BYTES)
        self.idle_cycles = idle_ms * clock_khz
        super().__init__({"pins": Out(rgmii_pins), **dram_port(memory)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.port = port = UdpPort(WINDOW)
        m.submodules.ethernet = ethernet = EthernetCore()
        m.submodules.idle_timer = idle_timer = IdleTimer(self.idle_cycles)
        connect(m, ethernet=ethernet.received, port=port.received)
        connect(m, port=port.sent, ethernet=ethernet.sent)
        connect(m, port=port.o, card=card.i)
        connect(m, card=card.o, port=port.i)
        connect(m, ethernet=ethernet.pins, line=flipped(self.pins))
        if "dram" in self.signature.members:
            connect(m, card.dram, flipped(self.dram))
        m.d.comb += [
            card.peer.eq(port.peer), port.host.eq(card.host),
            card.overrun.eq(port.overrun),
            idle_timer.restart.eq(card.host_active), card.replaceable.eq(idle_timer.expired),
        ]
        return m


def dram_port(memory) -> dict:
    """Signature member `dram` of a card whose memory is a controller, else none."""
    return {"dram": Out(dram_bus(memory))} if isinstance(memory, Controller) else {}
