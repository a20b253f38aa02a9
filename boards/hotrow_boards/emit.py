"""Verilog of a card with its link, without a board."""

from amaranth import Module, Value
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect
from hotrow_rtl.config import Config
from hotrow_rtl.emit.gc_pause import kept_objects
from hotrow_rtl.emit.verilog import VerilogPlatform, emit
from hotrow_rtl.emit.verilog_passes import wake_at_time_zero

from .card import SILENCE_MS, UartCard, UdpCard
from .dram.controller import Controller
from .dram.core import DramCore
from .ethernet.core import ethernet_verilog
from .ethernet.station import Rgmii, Station

CARD_MODULE = "hotrow_card"


class SimulatedCard(wiring.Component):
    """A `UartCard` and what answers its `DramBus` in a simulation.

    Parameters
    ----------
    As of `UartCard`, with a controller.

    Members
    -------
    rx : In(1), tx : Out(1)
    """

    rx: In(1, init=1)
    tx: Out(1, init=1)

    def __init__(self, config: Config, controller: Controller, clock_khz):
        self.card, self.controller = UartCard(config, controller, clock_khz), controller
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.card = card = self.card
        m.submodules.dram = dram = DramCore(self.controller)
        connect(m, card=card.dram, dram=dram.bus)
        m.d.comb += [card.rx.eq(self.rx), self.tx.eq(card.tx)]
        return m


def emit_uart_card(config: Config, memory: int | Controller, clock_khz: int) -> str:
    """Verilog of a module `hotrow_card` with the pins clk, rst, rx and tx, core and memory inside.

    Parameters
    ----------
    As of `UartCard`. A controller is one with a model of its chips inside.
    """
    simulated = isinstance(memory, Controller)
    return (_emit(SimulatedCard if simulated else UartCard, config, memory, clock_khz)
            + (memory.verilog if simulated else ""))


def emit_udp_card(config: Config, memory_bytes: int, clock_khz: int, station: Station,
                  silence_ms: int = SILENCE_MS) -> str:
    """Verilog of a module `hotrow_card` with clk, rst and the pins of RGMII, all else inside.

    The pins are named `pins__rx_clk` and so on. What LiteEth uses of the ECP5's own cells is not
    part of it.

    Parameters
    ----------
    station : Station
    config, memory_bytes, clock_khz, silence_ms
        As of `UdpCard`.

    Raises
    ------
    ValueError
        As `ethernet_verilog`.
    """
    ethernet = ethernet_verilog(station, Rgmii(), clock_khz)
    return _emit(UdpCard, config, memory_bytes, clock_khz, silence_ms) + ethernet


def _emit(kind, config, *parameters):
    with kept_objects():
        card = kind(config, *parameters)
        pins = [Value.cast(pin) for _, _, pin in card.signature.flatten(card)]
        text = verilog.convert(card, name=CARD_MODULE, platform=VerilogPlatform(),
                               ports=pins, emit_src=False, strip_internal_attrs=True)
    return wake_at_time_zero(text) + emit(config)
