"""LiteDRAM's generator for a simulation whose PHY must be levelled, as a program.

LiteDRAM's model of PHY and chips needs no levelling. This program adds the registers of the ECP5's
PHY, and its shape: two phases of four transfers. Reads of a byte lane are correct in a window of
delays at one bitslip; bursts are detected in that window and one step around it.

    python levelled_dram_generator.py WINDOWS --name NAME --output-dir DIR description.yml

WINDOWS is JSON: per lane [bitslip, first delay, delays], or null if no burst is detected.
"""

import json
import sys
from functools import partial

import yaml
from litedram import gen, modules
from litedram.common import (
    PhySettings,
    get_default_cl,
    get_default_cwl,
    get_sys_latency,
    get_sys_phase,
)
from litedram.phy import dfi, model
from litex.soc.interconnect.csr import CSR, AutoCSR, CSRStatus, CSRStorage
from litex.tools import litex_sim
from migen import Cat, If, Signal

PHASES, DELAYS, BITSLIPS = 2, 8, 4
TRANSFERS = 4  # in a phase


def ecp5_settings(memtype, data_width, clk_freq):
    """The settings of LiteDRAM's PHY for the ECP5."""
    period = 1 / (PHASES * clk_freq)
    cl, cwl = get_default_cl(memtype, period), get_default_cwl(memtype, period)
    read, write = get_sys_latency(PHASES, cl), get_sys_latency(PHASES, cwl)
    return PhySettings(
        phytype="ECP5DDRPHY", memtype=memtype, databits=data_width,
        dfi_databits=TRANSFERS * data_width, nranks=1, nphases=PHASES,
        rdphase=get_sys_phase(PHASES, read, cl), wrphase=get_sys_phase(PHASES, write, cwl),
        cl=cl, cwl=cwl, read_latency=read + 10, write_latency=write, read_leveling=True,
        bitslips=BITSLIPS, delays=DELAYS)


class LevelledModel(model.SDRAMPHYModel, AutoCSR):
    """The model with the registers of the ECP5's PHY."""

    def __init__(self, windows, **settings):
        super().__init__(**settings)
        inner, width = self.dfi, self.settings.databits
        lanes = width // 8
        self.dfi = outer = dfi.Interface(
            len(inner.p0.address), len(inner.p0.bank), self.settings.nranks,
            self.settings.dfi_databits, PHASES)
        self._dly_sel = CSRStorage(lanes)
        self._rdly_dq_rst = CSR()
        self._rdly_dq_inc = CSR()
        self._rdly_dq_bitslip_rst = CSR()
        self._rdly_dq_bitslip = CSR()
        self._burstdet_clr = CSR()
        self._burstdet_seen = CSRStatus(lanes)
        good = Signal(lanes)
        for lane in range(lanes):
            self._lane(lane, windows[lane], inner.p0.rddata_valid, good)
        for given, seen in zip(outer.phases, inner.phases, strict=True):
            for name in ("address", "bank", "cas_n", "cs_n", "ras_n", "we_n", "cke", "odt",
                         "reset_n", "act_n", "wrdata", "wrdata_en", "wrdata_mask", "rddata_en"):
                self.comb += getattr(seen, name).eq(getattr(given, name))
            wrong = Cat(*(~good[bit // 8 % lanes] for bit in range(len(seen.rddata))))
            # The model drives `rddata_valid` of phase 0 only.
            self.comb += [given.rddata.eq(seen.rddata ^ wrong),
                          given.rddata_valid.eq(inner.p0.rddata_valid)]

    def _lane(self, lane, window, reads, good):
        chosen, seen = self._dly_sel.storage[lane], self._burstdet_seen.status[lane]
        delay, slip = Signal(max=DELAYS), Signal(max=BITSLIPS)
        self.sync += [
            If(chosen & self._rdly_dq_inc.re, delay.eq(delay + 1)),
            If(chosen & self._rdly_dq_rst.re, delay.eq(0)),
            If(chosen & self._rdly_dq_bitslip.re, slip.eq(slip + 1)),
            If(chosen & self._rdly_dq_bitslip_rst.re, slip.eq(0)),
            If(self._burstdet_clr.re, seen.eq(0)),
        ]
        if window is None:
            return
        right, first, count = window
        self.comb += good[lane].eq((slip == right) & (delay >= first) & (delay < first + count))
        self.sync += If(reads & (delay + 1 >= first) & (delay < first + count + 1), seen.eq(1))


def main():
    windows, path = json.loads(sys.argv.pop(1)), sys.argv[-1]
    with open(path) as text:
        chip = yaml.safe_load(text)["sdram_module"]
    of_chip = getattr(modules, chip)

    class OfTwoPhases(of_chip):
        """With two phases; the generator assumes four for every simulated DDR3."""

        def __init__(self, clock, rate):
            super().__init__(clock, f"1:{PHASES}")

    setattr(modules, chip, OfTwoPhases)
    litex_sim.get_sdram_phy_settings = ecp5_settings
    # The model assumes two transfers per phase.
    of_bank = model.BankModel
    model.BankModel = lambda burst_length, **named: of_bank(burst_length=TRANSFERS, **named)
    gen.SDRAMPHYModel = partial(LevelledModel, windows)
    sys.argv.insert(1, "--sim")
    gen.main()


if __name__ == "__main__":
    main()
