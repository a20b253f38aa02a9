"""The bring-up of a DRAM as a ROM of register writes, reads and waits.

Steps, order and waits are those of LiteX's own software; addresses and values come from the
generated controller.
"""

import random
from dataclasses import dataclass
from enum import IntEnum

from amaranth.lib import data

from .controller import Controller

_SETTLE = 16  # cycles until a command is done and its data can be read
_SYNCHRONISE = 0xFF  # selects all lanes: pauses their DQS and restarts it in phase
_COLUMNS = (0, 8)  # of the test bursts
_RESET = 1000  # cycles of a PHY's reset, and after it
_WORD = 32  # bits of a register
_WRITES = "ddrphy_wdly_dq_bitslip"  # register of a PHY whose writes have bitslips
_SLIPS = 2  # of writes in a period of the chips


class Step(IntEnum):
    """Kind of a word of the ROM."""

    END = 0  # of a section
    WRITE = 1  # write `value` to the register
    WAIT = 2  # wait `value` cycles
    EXPECT = 3  # read the register; the bytes of the lane must equal those of `value`
    EXPECT_LANE = 4  # read the register; the bit of the lane must be set
    SELECT_LANE = 5  # write the bit of the lane to the register


class Section(IntEnum):
    """Sections of the program, in the order of the ROM."""

    WAKE = 0  # initialise the chips and write the test patterns
    RESTART = 1  # set delay and bitslips of the lane to 0
    NEXT_SLIP = 2  # set the delay to 0 and increment the bitslip
    NEXT_DELAY = 3  # increment the delay
    NEXT_WRITE = 4  # write the lane a period of the chips later, and the test patterns again
    PROBE = 5  # read the test patterns
    OPEN = 6  # hand the chips to the controller, which opens its ports
    REFUSE = 7  # report an error and keep the ports closed


step = data.StructLayout({"kind": Step, "register": 14, "value": _WORD})


@dataclass(frozen=True)
class Program:
    """A ROM and its entry points.

    Parameters
    ----------
    words : tuple of int
        Words of layout `step`.
    entries : tuple of int
        Address of each `Section`.
    lanes, delays, bitslips : int
        Numbers of each.
    writes : int
        Periods by which the PHY can delay the writes of a lane, 0 among them.
    masks : tuple of int
        Bits of each lane in a data register.
    """

    words: tuple
    entries: tuple
    lanes: int
    delays: int
    bitslips: int
    writes: int
    masks: tuple


def bring_up(controller: Controller) -> Program:
    """Build the program for a controller."""
    maker = (_Levelled if "ddrphy_dly_sel" in controller.registers else _Maker)(controller)
    lanes = controller.dram.lanes
    masks = [sum(0xFF << bit for bit in range(8 * lane, _WORD, 8 * lanes)) for lane in range(lanes)]
    words, entries = [], []
    for section in Section:
        entries.append(len(words))
        words += [*getattr(maker, section.name.lower())(), maker.word(Step.END)]
    bitslips = controller.constants.get("SDRAM_PHY_BITSLIPS", 1)
    writes = bitslips // _SLIPS if _WRITES in controller.registers else 1
    return Program(tuple(words), tuple(entries), lanes,
                   controller.constants.get("SDRAM_PHY_DELAYS", 1), bitslips, writes, tuple(masks))


class _Maker:
    """Build the sections of the program of a controller whose PHY has no delays.

    Nothing is probed: LiteDRAM's registers of such a PHY sample a read a cycle after its data.
    """

    def __init__(self, controller):
        self.controller, self.constants = controller, controller.constants

    def word(self, kind, register=None, value=0, part=0):
        at = self.controller.registers[register][0] // 4 + part if register else 0
        return step.const({"kind": kind, "register": at, "value": value}).as_bits()

    def write(self, register, value, part=0):
        return self.word(Step.WRITE, register, value, part)

    def wake(self):
        yield self.write("ddrctrl_init_done", 0)
        yield self.write("ddrctrl_init_error", 0)
        for register, value in self.controller.initialisation:
            if register == "wait":
                yield self.word(Step.WAIT, value=value)
            else:
                yield self.write(register, value)

    def restart(self):
        return ()

    next_slip = next_delay = next_write = probe = restart

    def open(self):
        yield self.write("sdram_dfii_control", self.constants["DFII_CONTROL_SEL"])
        yield self.write("ddrctrl_init_done", 1)

    def refuse(self):
        yield self.write("ddrctrl_init_error", 1)
        yield self.write("ddrctrl_init_done", 1)


class _Levelled(_Maker):
    """The same for a PHY with delays and bitslips."""

    def __init__(self, controller):
        super().__init__(controller)
        self.detects = "ddrphy_burstdet_seen" in controller.registers
        self.slips = _WRITES in controller.registers
        self.phases = range(self.constants["SDRAM_PHY_PHASES"])
        chosen = random.Random(1)
        self.patterns = {column: {
            phase: [chosen.getrandbits(_WORD) for _ in range(
                controller.registers[f"sdram_dfii_pi{phase}_wrdata"][1])]
            for phase in self.phases} for column in _COLUMNS}

    def command(self, phase, column, *signals):
        """A command to the chips, to row and bank 0."""
        pins = f"sdram_dfii_pi{phase}_"
        given = sum(self.constants[f"DFII_COMMAND_{each}"] for each in signals)
        return [self.write(pins + "address", column), self.write(pins + "baddress", 0),
                self.write(pins + "command", given), self.write(pins + "command_issue", 1),
                self.word(Step.WAIT, value=_SETTLE)]

    def activate(self):
        return self.command(0, 0, "RAS", "CS")

    def precharge(self):
        return self.command(0, 0, "RAS", "WE", "CS")

    def wake(self):
        if "ddrphy_rst" in self.controller.registers:
            for value in (1, 0):
                yield self.write("ddrphy_rst", value)
                yield self.word(Step.WAIT, value=_RESET)
        yield from super().wake()
        yield from self.write_patterns()

    def write_patterns(self):
        yield from self.activate()
        for column, pattern in self.patterns.items():
            for phase, values in pattern.items():
                for part, value in enumerate(values):
                    yield self.write(f"sdram_dfii_pi{phase}_wrdata", value, part)
            yield from self.command(
                self.constants["SDRAM_PHY_WRPHASE"], column, "CAS", "WE", "CS", "WRDATA")
        yield from self.precharge()

    def adjust(self, *registers):
        """Pulse delay registers of the lane."""
        yield self.word(Step.SELECT_LANE, "ddrphy_dly_sel")
        yield from (self.write(register, 1) for register in registers)
        for lanes in (0, _SYNCHRONISE, 0):
            yield self.write("ddrphy_dly_sel", lanes)
        yield self.word(Step.WAIT, value=_SETTLE)

    def restart(self):
        yield from self.adjust("ddrphy_rdly_dq_rst", "ddrphy_rdly_dq_bitslip_rst",
                               *([f"{_WRITES}_rst"] if self.slips else []))
        if self.slips:
            yield from self.write_patterns()

    def next_slip(self):
        return self.adjust("ddrphy_rdly_dq_rst", "ddrphy_rdly_dq_bitslip")

    def next_delay(self):
        return self.adjust("ddrphy_rdly_dq_inc")

    def next_write(self):
        if self.slips:
            yield from self.adjust(*[_WRITES] * _SLIPS)
            yield from self.write_patterns()

    def probe(self):
        yield from self.activate()
        for column, pattern in self.patterns.items():
            if self.detects:
                yield self.write("ddrphy_burstdet_clr", 1)
            yield from self.command(
                self.constants["SDRAM_PHY_RDPHASE"], column, "CAS", "CS", "RDDATA")
            if self.detects:
                yield self.word(Step.EXPECT_LANE, "ddrphy_burstdet_seen")
            for phase, values in pattern.items():
                for part, value in enumerate(values):
                    yield self.word(Step.EXPECT, f"sdram_dfii_pi{phase}_rddata", value, part)
        yield from self.precharge()
