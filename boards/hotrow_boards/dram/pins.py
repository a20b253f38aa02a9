"""The pins of a board's DRAM and clocks as ports of the generated controller."""

import re

from amaranth import ClockDomain, Instance, Module, Signal
from amaranth.build import Subsignal

from .controller import Dram

# (name in LiteDRAM, in the platform); a board has some of them.
_OUTPUTS = (("a", "a"), ("ba", "ba"), ("ras_n", "ras"), ("cas_n", "cas"), ("we_n", "we"),
            ("cke", "clk_en"), ("odt", "odt"), ("dm", "dm"), ("dm", "dqm"), ("cs_n", "cs"),
            ("reset_n", "rst"))


def core_pins(m: Module, platform, dram: Dram, domain: ClockDomain) -> dict:
    """Arguments of the controller's instance on a board.

    Parameters
    ----------
    m : Module
        Receives the driver of an SDR DRAM's clock, which has the frequency of the card's.
    platform
    dram : Dram
    domain : ClockDomain
        Domain of the card. A controller of DDR3 drives it, at half the frequency of the DRAM.
    """
    pads = platform.request(dram.pins, 0, dir={
        each.name: "-" for each in platform.lookup(dram.pins, 0).ios
        if isinstance(each, Subsignal)})
    prefix = "ddram" if dram.drives_clock else "sdram"
    pins = {f"o_{prefix}_{name}": getattr(pads, pin).io
            for name, pin in _OUTPUTS if hasattr(pads, pin)}
    pins[f"io_{prefix}_dq"] = pads.dq.io
    if not dram.drives_clock:
        # Timing: its rising edge is half a cycle after the pins change.
        m.submodules.dram_clock = Instance(
            "ODDRX1F", i_D0=0, i_D1=1, i_SCLK=domain.clk, i_RST=0, o_Q=pads.clk.io)
        return {**pins, "i_clk": domain.clk, "i_rst": 0}
    reset = Signal()
    if platform.default_rst:
        reset = platform.request(platform.default_rst).i
    # nextpnr derives the second pin of a differential pair from the first.
    return {**pins, "o_ddram_clk_p": pads.clk.p, "io_ddram_dqs_p": pads.dqs.p,
            "i_clk": platform.request(platform.default_clk).i, "i_rst": reset,
            "o_user_clk": domain.clk, "o_user_rst": domain.rst}


def without_idle_terminations(constraints: str, resource: str) -> str:
    """Constraints with termination only on the pins that the DRAM drives, dq and dqs."""
    card_outputs = re.compile(rf'IOBUF PORT "{resource}_0__(?!dqs?__).*')
    return card_outputs.sub(
        lambda line: re.sub(r"(TERMINATION|DIFFRESISTOR)=\w+ ?", "", line[0]), constraints)
