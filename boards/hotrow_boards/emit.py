"""Verilog of a card with its link, without a board."""

from amaranth import Module
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect
from hotrow_rtl.config import Config
from hotrow_rtl.emit import VerilogPlatform, emit
from hotrow_rtl.kept_objects import kept_objects
from hotrow_rtl.verilog_text import wake_at_time_zero

from .card import UartCard
from .dram.controller import Controller
from .dram.core import DramCore

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
    with kept_objects():
        card = (SimulatedCard if simulated else UartCard)(config, memory, clock_khz)
        text = verilog.convert(card, name=CARD_MODULE, platform=VerilogPlatform(),
                               ports=[card.rx, card.tx], emit_src=False, strip_internal_attrs=True)
    return wake_at_time_zero(text) + emit(config) + (memory.verilog if simulated else "")
