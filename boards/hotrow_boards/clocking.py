"""Clock and reset of a design on an ECP5 board: the board's oscillator through a PLL."""

from amaranth import Elaboratable, Instance, Module, Signal

_VCO_MHZ = 400, 800  # range of the PLL's oscillator
_LEAST_COMPARED_MHZ = 10  # lowest frequency of the phase detector
_LARGEST_DIVIDER = 128


def pll_dividers(input_mhz: int, output_mhz: int) -> tuple[int, int, int]:
    """Input, feedback and output dividers of a PLL.

    Source: Lattice FPGA-TN-02200 (ECP5 sysCLOCK PLL) and FPGA-DS-02012 (its limits).

    Raises
    ------
    ValueError
        If no dividers give that clock.
    """
    for input_divider in range(1, min(_LARGEST_DIVIDER, input_mhz // _LEAST_COMPARED_MHZ) + 1):
        feedback, rest = divmod(output_mhz * input_divider, input_mhz)
        if rest or not 1 <= feedback <= _LARGEST_DIVIDER:
            continue
        for output_divider in range(_LARGEST_DIVIDER, 0, -1):
            if _VCO_MHZ[0] <= output_mhz * output_divider <= _VCO_MHZ[1]:
                return input_divider, feedback, output_divider
    raise ValueError(f"a PLL makes no {output_mhz} MHz of {input_mhz} MHz")


class PllClock(Elaboratable):
    """Drive a domain from a PLL, and hold all flip-flops at their initial values until it locks.

    The reset uses the FPGA's dedicated network (SGSR): routed as a signal to thousands of
    flip-flops, it would take many wires.

    Parameters
    ----------
    domain : ClockDomain
        Domain without a reset.
    mhz : int
        Frequency of the domain.
    """

    def __init__(self, domain, mhz):
        self.domain, self.mhz = domain, mhz

    def elaborate(self, platform):
        m = Module()
        input_mhz = round(platform.default_clk_frequency / 1e6)
        input_divider, feedback, output_divider = pll_dividers(input_mhz, self.mhz)
        button = Signal()
        if platform.default_rst:
            m.d.comb += button.eq(platform.request(platform.default_rst).i)
        locked = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=input_divider, p_CLKFB_DIV=feedback, p_CLKOP_DIV=output_divider,
            p_CLKOP_CPHASE=output_divider // 2, p_CLKOP_FPHASE=0, p_CLKOP_ENABLE="ENABLED",
            p_OUTDIVIDER_MUXA="DIVA", p_FEEDBK_PATH="CLKOP", p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED", p_STDBY_ENABLE="DISABLED", p_DPHASE_SOURCE="DISABLED",
            i_CLKI=platform.request(platform.default_clk).i, i_CLKFB=self.domain.clk,
            i_RST=0, i_STDBY=0, i_PHASESEL0=0, i_PHASESEL1=0, i_PHASEDIR=0, i_PHASESTEP=0,
            i_PHASELOADREG=0, i_PLLWAKESYNC=0, i_ENCLKOP=0,
            o_CLKOP=self.domain.clk, o_LOCK=locked)
        m.submodules.reset = Instance("SGSR", i_CLK=self.domain.clk, i_GSR=locked & ~button)
        return m
