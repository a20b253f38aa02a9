"""Verilog of a card with its link, without a board."""

from amaranth.back import verilog
from hotrow_rtl.config import Config
from hotrow_rtl.emit import VerilogPlatform, emit
from hotrow_rtl.kept_objects import kept_objects
from hotrow_rtl.verilog_text import wake_at_time_zero

from .card import UartCard

CARD_MODULE = "hotrow_card"


def emit_uart_card(config: Config, memory_bytes: int, clock_khz: int) -> str:
    """Verilog of a module `hotrow_card` with the pins clk, rst, rx and tx, core and memory inside.

    Parameters
    ----------
    As of `UartCard`.
    """
    with kept_objects():
        card = UartCard(config, memory_bytes, clock_khz)
        text = verilog.convert(card, name=CARD_MODULE, platform=VerilogPlatform(),
                               ports=[card.rx, card.tx], emit_src=False, strip_internal_attrs=True)
    return wake_at_time_zero(text) + emit(config)
