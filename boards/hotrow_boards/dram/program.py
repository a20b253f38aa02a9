"""What a DRAM's bring-up writes and reads, step by step, as the words of a ROM.

The steps, their order and their waits are those by which LiteX's own software brings up a DRAM;
addresses and values come from what the generator says of the controller.
"""

import random
from dataclasses import dataclass
from enum import IntEnum

from amaranth.lib import data

from .controller import Controller

_SETTLE = 16  # cycles in which a command is done, and what was read is there
_SYNCHRONISE = 0xFF  # selects all lanes: their pulses pause, and start together
_COLUMNS = (0, 8)  # of the bursts that are written and read again
_WORD = 32  # bits of a register


class Step(IntEnum):
    """What a word of the ROM does."""

    END = 0  # of a section
    WRITE = 1  # `value` to the register
    WAIT = 2  # `value` cycles
    EXPECT = 3  # of the bytes in hand, those of `value`
    EXPECT_LANE = 4  # the bit of the lane in hand
    SELECT_LANE = 5  # write the bit of the lane in hand


class Section(IntEnum):
    """Parts of the program, in the order in which they lie in the ROM."""

    WAKE = 0  # chips that were without power, and write the patterns
    RESTART = 1  # the lane's delay and bitslip at 0
    NEXT_SLIP = 2  # delay 0, a bitslip more
    NEXT_DELAY = 3  # a delay more
    PROBE = 4  # read the patterns
    OPEN = 5  # the controller takes over, its ports open
    REFUSE = 6  # they stay closed, the controller says so


step = data.StructLayout({"kind": Step, "register": 14, "value": _WORD})


@dataclass(frozen=True)
class Program:
    """A ROM, and where its sections begin.

    Parameters
    ----------
    words : tuple of int
        Of the layout `step`.
    entries : tuple of int
        By `Section`.
    lanes, delays, bitslips : int
        To be gone through.
    masks : tuple of int
        Of a register's value, the bits of each lane.
    """

    words: tuple
    entries: tuple
    lanes: int
    delays: int
    bitslips: int
    masks: tuple


def bring_up(controller: Controller) -> Program:
    """The program for a controller."""
    maker = _Maker(controller)
    lanes = controller.dram.lanes
    masks = [sum(0xFF << bit for bit in range(8 * lane, _WORD, 8 * lanes)) for lane in range(lanes)]
    words, entries = [], []
    for section in Section:
        entries.append(len(words))
        words += [*getattr(maker, section.name.lower())(), maker.word(Step.END)]
    return Program(tuple(words), tuple(entries), lanes, controller.constants["SDRAM_PHY_DELAYS"],
                   controller.constants["SDRAM_PHY_BITSLIPS"], tuple(masks))


class _Maker:
    """The sections of a controller's program."""

    def __init__(self, controller):
        self.controller, self.constants = controller, controller.constants
        self.phases = range(self.constants["SDRAM_PHY_PHASES"])
        chosen = random.Random(1)
        self.patterns = {column: {
            phase: [chosen.getrandbits(_WORD) for _ in range(
                controller.registers[f"sdram_dfii_pi{phase}_wrdata"][1])]
            for phase in self.phases} for column in _COLUMNS}

    def word(self, kind, register=None, value=0, part=0):
        at = self.controller.registers[register][0] // 4 + part if register else 0
        return step.const({"kind": kind, "register": at, "value": value}).as_bits()

    def write(self, register, value, part=0):
        return self.word(Step.WRITE, register, value, part)

    def command(self, phase, column, *signals):
        """One command to the chips, of row and bank 0."""
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
        yield self.write("ddrctrl_init_done", 0)
        yield self.write("ddrctrl_init_error", 0)
        for register, value in self.controller.initialisation:
            if register == "wait":
                yield self.word(Step.WAIT, value=value)
            else:
                yield self.write(register, value)
        yield from self.activate()
        for column, pattern in self.patterns.items():
            for phase, values in pattern.items():
                for part, value in enumerate(values):
                    yield self.write(f"sdram_dfii_pi{phase}_wrdata", value, part)
            yield from self.command(
                self.constants["SDRAM_PHY_WRPHASE"], column, "CAS", "WE", "CS", "WRDATA")
        yield from self.precharge()

    def adjust(self, *registers):
        """Write to what acts on the selected lane."""
        yield self.word(Step.SELECT_LANE, "ddrphy_dly_sel")
        yield from (self.write(f"ddrphy_rdly_dq_{register}", 1) for register in registers)
        for lanes in (0, _SYNCHRONISE, 0):
            yield self.write("ddrphy_dly_sel", lanes)
        yield self.word(Step.WAIT, value=_SETTLE)

    def restart(self):
        return self.adjust("rst", "bitslip_rst")

    def next_slip(self):
        return self.adjust("rst", "bitslip")

    def next_delay(self):
        return self.adjust("inc")

    def probe(self):
        yield from self.activate()
        for column, pattern in self.patterns.items():
            yield self.write("ddrphy_burstdet_clr", 1)
            yield from self.command(
                self.constants["SDRAM_PHY_RDPHASE"], column, "CAS", "CS", "RDDATA")
            yield self.word(Step.EXPECT_LANE, "ddrphy_burstdet_seen")
            for phase, values in pattern.items():
                for part, value in enumerate(values):
                    yield self.word(Step.EXPECT, f"sdram_dfii_pi{phase}_rddata", value, part)
        yield from self.precharge()

    def open(self):
        yield self.write("sdram_dfii_control", self.constants["DFII_CONTROL_SEL"])
        yield self.write("ddrctrl_init_done", 1)

    def refuse(self):
        yield self.write("ddrctrl_init_error", 1)
        yield self.write("ddrctrl_init_done", 1)
