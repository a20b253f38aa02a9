"""A card that is reached over a link: accelerator, memory and the link's end, wired."""

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import Config
from hotrow_rtl.register_block import REGISTER_ADDRESS_WIDTH

from .block_memory import BlockMemory
from .core import Core
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
    memory_bytes : int
        Of block RAM, a power of two of at least 16 KB; its first byte has address 0.
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
    """

    def __init__(self, config: Config, memory_bytes, clock_khz, peer_bytes=0):
        least = 64 << BLOCK_LOG2
        if memory_bytes < least or memory_bytes & (memory_bytes - 1):
            raise ValueError(f"memory_bytes must be a power of two of at least {least}, not "
                             f"{memory_bytes}")
        self.config, self.memory_bytes, self.clock_khz = config, memory_bytes, clock_khz
        self.peer_bytes = peer_bytes
        super().__init__({
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
                "block_log2": BLOCK_LOG2, "clock_khz": self.clock_khz}, self.peer_bytes)
        readers = [link.read_bus, core.list_bus,
                   *(getattr(core, f"row_read_bus_{n}") for n in range(config.row_ports))]
        writers = [link.write_bus,  # the host knows what it wrote itself
                   *(getattr(core, f"row_write_bus_{n}") for n in range(config.row_ports)),
                   *(getattr(core, f"result_bus_{n}") for n in range(config.result_ports))]
        m.submodules.memory = memory = BlockMemory(
            self.memory_bytes, BLOCK_LOG2, [bus.signature for bus in readers],
            [(bus.signature, bus is not link.write_bus) for bus in writers])
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
    """

    rx: In(1, init=1)
    tx: Out(1, init=1)

    def __init__(self, config: Config, memory_bytes, clock_khz):
        self.card = Card(config, memory_bytes, clock_khz)
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.port = port = UartPort()
        connect(m, port=port.o, card=card.i)
        connect(m, card=card.o, port=port.i)
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
    config, memory_bytes, clock_khz
        As of `Card`.
    silence_ms : int

    Members
    -------
    pins : Out(rgmii_pins)
        As of `EthernetCore`.
    """

    pins: Out(rgmii_pins)

    def __init__(self, config: Config, memory_bytes, clock_khz, silence_ms=SILENCE_MS):
        self.card = Card(config, memory_bytes, clock_khz, PEER_BYTES)
        self.silence_cycles = silence_ms * clock_khz
        super().__init__()

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
        m.d.comb += [
            card.peer.eq(port.peer), port.host.eq(card.host),
            card.overrun.eq(port.overrun),
            silence.heard.eq(card.heard), card.replaceable.eq(silence.long),
        ]
        return m
