"""Verilog of a card with its link, without a board: the design that simulated boards run."""

from amaranth import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect
from hotrow_rtl.config import Config
from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.emit.verilog import emit

from .card import IDLE_MS, UartCard, UdpCard
from .dram.controller import Controller
from .dram.core import DramCore
from .ethernet.core import ethernet_verilog
from .ethernet.station import Rgmii, Station

CARD_MODULE = "hotrow_card"


class SimulatedCard(wiring.Component):
    """A `UartCard` with the simulated controller of its DRAM.

    Parameters
    ----------
    config : Config
    controller : Controller
    clock_khz : int
        See `Card`.

    Attributes
    ----------
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
    """Verilog of a module `hotrow_card` with the pins clk, rst, rx and tx.

    Parameters
    ----------
    config : Config
    memory : int or Controller
        Bytes of block RAM, or a controller whose Verilog includes a model of the chips.
    clock_khz : int
        See `Card`.
    """
    simulated = isinstance(memory, Controller)
    return (_emit(SimulatedCard if simulated else UartCard, config, memory, clock_khz)
            + (memory.verilog if simulated else ""))


def emit_udp_card(config: Config, memory_bytes: int, clock_khz: int, station: Station,
                  idle_ms: int = IDLE_MS) -> str:
    """Verilog of a module `hotrow_card` with clk, rst and the RGMII pins, named `pins__rx_clk` etc.

    The text does not define the ECP5 primitives that LiteEth instantiates.

    Parameters
    ----------
    config : Config
    memory_bytes : int
        Bytes of block RAM.
    clock_khz : int
        See `Card`.
    station : Station
        Addresses of the card.
    idle_ms : int
        See `UdpCard`.

    Raises
    ------
    ValueError
        See `ethernet_verilog`.
    """
    ethernet = ethernet_verilog(station, Rgmii(), clock_khz)
    return _emit(UdpCard, config, memory_bytes, clock_khz, idle_ms) + ethernet


def _emit(kind, config, *parameters):
    card = kind(config, *parameters)
    pins = [Value.cast(pin) for _, _, pin in card.signature.flatten(card)]
    return to_verilog(card, CARD_MODULE, pins) + emit(config)
