"""The pins of a board's DRAM and its clocks, as the generated controller has them."""

import re

from amaranth import ClockDomain, Signal
from amaranth.build import Subsignal

# Pins of the chips by their names in LiteDRAM; some boards tie the last two.
_OUTPUTS = {"a": "a", "ba": "ba", "ras_n": "ras", "cas_n": "cas", "we_n": "we", "cke": "clk_en",
            "odt": "odt", "dm": "dm", "cs_n": "cs", "reset_n": "rst"}


def core_pins(platform, resource: str, domain: ClockDomain) -> dict:
    """Arguments of the controller's instance on a board.

    The controller makes the card's clock, from which that of the DRAM differs by a factor alone.

    Parameters
    ----------
    platform
    resource : str
        Name of the DRAM's pins there.
    domain : ClockDomain
        Of the card, which is driven.
    """
    pads = platform.request(resource, 0, dir={
        each.name: "-" for each in platform.lookup(resource, 0).ios if isinstance(each, Subsignal)})
    button = Signal()
    if platform.default_rst:
        button = platform.request(platform.default_rst).i
    outputs = {f"o_ddram_{name}": getattr(pads, pin).io
               for name, pin in _OUTPUTS.items() if hasattr(pads, pin)}
    # A differential pair is known by its first pin; the other follows.
    return {**outputs, "o_ddram_clk_p": pads.clk.p, "io_ddram_dqs_p": pads.dqs.p,
            "io_ddram_dq": pads.dq.io,
            "i_clk": platform.request(platform.default_clk).i, "i_rst": button,
            "o_user_clk": domain.clk, "o_user_rst": domain.rst}


def without_idle_terminations(constraints: str, resource: str) -> str:
    """Constraints in which only the pins that the DRAM drives as well are terminated."""
    driven_by_card = re.compile(rf'IOBUF PORT "{resource}_0__(?!dqs?__).*')
    return driven_by_card.sub(
        lambda line: re.sub(r"(TERMINATION|DIFFRESISTOR)=\w+ ?", "", line[0]), constraints)
