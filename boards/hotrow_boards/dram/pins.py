"""The pins of a board's DRAM and clocks as ports of the generated controller."""

import re

from amaranth import ClockDomain, Signal
from amaranth.build import Subsignal

# LiteDRAM's names of the pins; some boards tie the last two.
_OUTPUTS = {"a": "a", "ba": "ba", "ras_n": "ras", "cas_n": "cas", "we_n": "we", "cke": "clk_en",
            "odt": "odt", "dm": "dm", "cs_n": "cs", "reset_n": "rst"}


def core_pins(platform, resource: str, domain: ClockDomain) -> dict:
    """Arguments of the controller's instance on a board.

    The controller generates the card's clock, at half the frequency of the DRAM.

    Parameters
    ----------
    platform
    resource : str
        Name of the platform's resource for the DRAM.
    domain : ClockDomain
        Domain of the card; the controller drives it.
    """
    pads = platform.request(resource, 0, dir={
        each.name: "-" for each in platform.lookup(resource, 0).ios if isinstance(each, Subsignal)})
    reset = Signal()
    if platform.default_rst:
        reset = platform.request(platform.default_rst).i
    outputs = {f"o_ddram_{name}": getattr(pads, pin).io
               for name, pin in _OUTPUTS.items() if hasattr(pads, pin)}
    # nextpnr derives the second pin of a differential pair from the first.
    return {**outputs, "o_ddram_clk_p": pads.clk.p, "io_ddram_dqs_p": pads.dqs.p,
            "io_ddram_dq": pads.dq.io,
            "i_clk": platform.request(platform.default_clk).i, "i_rst": reset,
            "o_user_clk": domain.clk, "o_user_rst": domain.rst}


def without_idle_terminations(constraints: str, resource: str) -> str:
    """Constraints with termination only on the pins that the DRAM drives, dq and dqs."""
    card_outputs = re.compile(rf'IOBUF PORT "{resource}_0__(?!dqs?__).*')
    return card_outputs.sub(
        lambda line: re.sub(r"(TERMINATION|DIFFRESISTOR)=\w+ ?", "", line[0]), constraints)
