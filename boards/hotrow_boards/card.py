"""A card that is reached over a link: accelerator, memory and the link's end, wired."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import Config
from hotrow_rtl.host.register_block import REGISTER_ADDRESS_WIDTH

from .block_memory import BlockMemory
from .core import Core
from .dram.controller import Controller
from .dram.memory import DramMemory, bus_of
from .ethernet.core import EthernetCore, rgmii_pins
from .ethernet.layouts import PEER_BYTES
from .ethernet.port import UdpPort
from .ethernet.silence import Silence
from .link.endpoint import LinkEndpoint
from .link.layouts import frame_byte
from .uart.port import UartPort

WINDOW = 4  # requests at a time: each needs room for its frame and its answer
BLOCK_LOG2 = 8  # bytes in which writes are told
SILENCE_MS = 1000  # shorter than the driver waits for a card that it opens


class Card(wiring.Component):
    """Frames in and out; everything else is inside.

    Parameters
    ----------
    config : Config
    memory : int or Controller
        Bytes of block RAM, a power of two of at least 16 KB, or the controller of a DRAM; the
        first byte has address 0.
    clock_khz : int
        That the card tells its host.
    peer_bytes : int
        As of `LinkEndpoint`.

    Members
    -------
    i : In(stream(frame_byte)), o : Out(stream(frame_byte))
    peer : In(8 * peer_bytes), host : Out(8 * peer_bytes)
    replaceable, overrun : In(1)
    good, bad, heard : Out(1)
        As of `LinkEndpoint`.
    dram : Out(DramBus)
        To the controller, if there is one.
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
            "heard": Out(1),
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
        writers = [link.write_bus,  # the host knows what it wrote itself
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
            self.heard.eq(link.heard),
            self.good.eq(link.good),
            self.bad.eq(link.bad),
        ]
        return m


class UartCard(wiring.Component):
    """A `Card` on a serial line, where the host that came last is the one that counts.

    Parameters
    ----------
    As of `Card`.

    Members
    -------
    rx : In(1), tx : Out(1)
    dram : Out(DramBus)
        As of `Card`.
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
    """A `Card` in a network, which answers only the host that bound it; another one may bind when
    that has been silent for `silence_ms`. The text of `ethernet_verilog` must come with it.

    Parameters
    ----------
    config, memory, clock_khz
        As of `Card`.
    silence_ms : int

    Members
    -------
    pins : Out(rgmii_pins)
        As of `EthernetCore`.
    dram : Out(DramBus)
        As of `Card`.
    """

    def __init__(self, config: Config, memory, clock_khz, silence_ms=SILENCE_MS):
        self.card = Card(config, memory, clock_khz, PEER_BYTES)
        self.silence_cycles = silence_ms * clock_khz
        super().__init__({"pins": Out(rgmii_pins), **dram_port(memory)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.port = port = UdpPort(WINDOW)
        m.submodules.ethernet = ethernet = EthernetCore()
        m.submodules.silence = silence = Silence(self.silence_cycles)
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
            silence.heard.eq(card.heard), card.replaceable.eq(silence.long),
        ]
        return m


def dram_port(memory) -> dict:
    """The member `dram` of a card whose memory has a controller, else nothing."""
    return {"dram": Out(bus_of(memory))} if isinstance(memory, Controller) else {}
