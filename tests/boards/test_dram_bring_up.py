"""Bring-up of a DRAM against a model of the controller's registers, the PHY and the chips."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator
from hotrow_boards.boards import BOARDS
from hotrow_boards.dram import controller as dram_controller
from hotrow_boards.dram.controller import (
    Controller,
    Dram,
    base_configuration,
    generate,
    run_generator,
)
from hotrow_boards.dram.levelling import Levelling, WidestWindow
from hotrow_boards.dram.program import Section, bring_up
from hotrow_boards.dram.sequencer import Sequencer

from tests.boards.generators import needs_litedram
from tests.support.benches.stream_bench import StreamBench
from tests.support.boards.levelled_dram import levelled_program

DELAYS, BITSLIPS, LANES, PHASES = 8, 4, 2, 2
DRAM = Dram(chip="MT41K64M16", lanes=LANES, chip_bytes=1 << 27)
CONSTANTS = {
    "DFII_CONTROL_SEL": 1, "DFII_COMMAND_CS": 1, "DFII_COMMAND_WE": 2, "DFII_COMMAND_CAS": 4,
    "DFII_COMMAND_RAS": 8, "DFII_COMMAND_WRDATA": 16, "DFII_COMMAND_RDDATA": 32,
    "SDRAM_PHY_PHASES": PHASES, "SDRAM_PHY_RDPHASE": 0, "SDRAM_PHY_WRPHASE": 1,
    "SDRAM_PHY_DELAYS": DELAYS, "SDRAM_PHY_BITSLIPS": BITSLIPS}
NAMES = ["ddrctrl_init_done", "ddrctrl_init_error", *(f"ddrphy_{name}" for name in (
    "dly_sel", "rdly_dq_rst", "rdly_dq_inc", "rdly_dq_bitslip_rst", "rdly_dq_bitslip",
    "burstdet_clr", "burstdet_seen")), "sdram_dfii_control", *(
        f"sdram_dfii_pi{phase}_{name}" for phase in range(PHASES) for name in (
            "command", "command_issue", "address", "baddress", "wrdata", "rddata"))]
WAKING = (("sdram_dfii_control", 12), ("wait", 300), ("sdram_dfii_control", 14), ("wait", 100),
          ("sdram_dfii_pi0_address", 0x320), ("sdram_dfii_pi0_baddress", 0),
          ("sdram_dfii_pi0_command", 15), ("sdram_dfii_pi0_command_issue", 1))
CONTROLLER = Controller(DRAM, "", {name: (16 * at, 2 if name.endswith("data") else 1)
                                   for at, name in enumerate(NAMES)}, CONSTANTS, WAKING)
# A PHY without a detector of bursts, whose writes have bitslips.
ARTIX_NAMES = [name for name in NAMES if "burstdet" not in name] + [
    "ddrphy_rst", "ddrphy_wdly_dq_bitslip_rst", "ddrphy_wdly_dq_bitslip"]
ARTIX = replace(CONTROLLER, registers={
    name: (16 * at, 2 if name.endswith("data") else 1) for at, name in enumerate(ARTIX_NAMES)})
ALL_RIGHT = (0, 0, DELAYS)
UNLIKE = (1, 2, 3), (2, 4, 4)


class Chips:
    """Registers of the controller, with PHY and chips.

    Parameters
    ----------
    windows : sequence
        Per lane, (bitslip, first delay, delays) at which reads return the right data.
    bursts : sequence
        Per lane, (first delay, delays) at which bursts are detected; None for never.
    writes : sequence, optional
        Per lane, the bitslip of the writes with which the right data are stored.
    controller : Controller
    most : int, optional
        Reads that are right; later ones are wrong.

    Attributes
    ----------
    registers : dict
        Last values by name, a list for each register.
    delays, slips, write_slips : list of int
        Setting of each lane.
    written : list of (str, int, int)
        All writes: register, value, cycle.
    """

    def __init__(self, windows, bursts, writes=None, controller=CONTROLLER, most=1 << 32):
        self.most, self.reads = most, 0
        self.windows, self.bursts, self.writes = windows, bursts, writes
        self.names = list(controller.registers)
        self.registers = {name: [0] * size for name, (_, size) in controller.registers.items()}
        self.delays, self.slips, self.written = [5] * LANES, [3] * LANES, []
        self.write_slips, self.stored = [1] * LANES, [True] * LANES
        self.columns, self.row = {}, None

    def read(self, word):
        name, part = self._named(word)
        return self.registers[name][part]

    def write(self, word, value, cycle):
        name, part = self._named(word)
        self.registers[name][part] = value
        self.written.append((name, value, cycle))
        chosen = [lane for lane in range(LANES)
                  if self.registers["ddrphy_dly_sel"][0] >> lane & 1]
        for lane in chosen:
            match name:
                case "ddrphy_rdly_dq_rst":
                    self.delays[lane] = 0
                case "ddrphy_rdly_dq_inc":
                    self.delays[lane] = (self.delays[lane] + 1) % DELAYS
                case "ddrphy_rdly_dq_bitslip_rst":
                    self.slips[lane] = 0
                case "ddrphy_rdly_dq_bitslip":
                    self.slips[lane] = (self.slips[lane] + 1) % BITSLIPS
                case "ddrphy_wdly_dq_bitslip_rst":
                    self.write_slips[lane] = 0
                case "ddrphy_wdly_dq_bitslip":
                    self.write_slips[lane] = (self.write_slips[lane] + 1) % BITSLIPS
        if name == "ddrphy_burstdet_clr":
            self.registers["ddrphy_burstdet_seen"][0] = 0
        if name.endswith("command_issue"):
            self._command(name.removesuffix("command_issue"))

    def _named(self, word):
        number, part = divmod(4 * word, 16)
        return self.names[number], part // 4

    def _command(self, pins):
        command = self.registers[pins + "command"][0]
        column = self.registers[pins + "address"][0]
        if not self.registers["sdram_dfii_control"][0] & 2:
            raise AssertionError("a command before the chips' clock is enabled")
        match command:
            case 0b001001:
                self.row = column
            case 0b001011:
                self.row = None
            case 0b010111:
                assert self.row == 0 and pins == "sdram_dfii_pi1_"
                self.columns[column] = [list(self.registers[f"sdram_dfii_pi{phase}_wrdata"])
                                        for phase in range(PHASES)]
                if self.writes:
                    self.stored = [each == right for each, right in zip(
                        self.write_slips, self.writes, strict=True)]
            case 0b100101:
                assert self.row == 0 and pins == "sdram_dfii_pi0_"
                self._answer(self.columns[column])
            case other:
                assert other == 15, f"an unknown command {other:#b}"

    def _answer(self, words):
        self.reads += 1
        for lane, (window, burst) in enumerate(zip(self.windows, self.bursts, strict=True)):
            delay = self.delays[lane]
            if not self.writes and burst and burst[0] <= delay < burst[0] + burst[1]:
                self.registers["ddrphy_burstdet_seen"][0] |= 1 << lane
            slip, first, count = window
            spoil = 0 if (slip == self.slips[lane] and first <= delay < first + count
                          and self.stored[lane] and self.reads <= self.most) else 0xFF
            mask, kept = 0xFF00FF << 8 * lane, ~(0xFF00FF << 8 * lane)
            for phase, values in enumerate(words):
                found = self.registers[f"sdram_dfii_pi{phase}_rddata"]
                for part, value in enumerate(values):
                    found[part] = found[part] & kept | (value ^ (spoil * 0x1010101)) & mask


@functools.cache
def play(windows, bursts=(ALL_RIGHT[1:],) * LANES, writes=None, most=1 << 32):
    """Bring up chips with these windows; return the model, and whether the unit became ready."""
    controller = ARTIX if writes else CONTROLLER
    program, chips = bring_up(controller), Chips(windows, bursts, writes, controller, most)
    levelling, sequencer = Levelling(program), Sequencer(program)
    top = Module()
    top.submodules.levelling, top.submodules.sequencer = levelling, sequencer
    connect(top, levelling=levelling.sections, sequencer=sequencer.sections)
    top.d.comb += [sequencer.lane.eq(levelling.lane), levelling.mismatch.eq(sequencer.mismatch)]
    bench, bus, result = StreamBench(top), sequencer.control, []

    async def registers(ctx):
        while True:
            await ctx.tick()
            if ctx.get(bus.cyc & bus.stb):
                if ctx.get(bus.we):
                    chips.write(ctx.get(bus.adr), ctx.get(bus.dat_w), bench.cycles)
                else:
                    ctx.set(bus.dat_r, chips.read(ctx.get(bus.adr)))
                ctx.set(bus.ack, 1)
                await ctx.tick()
                ctx.set(bus.ack, 0)

    async def watch(ctx):
        while not ctx.get(levelling.ready | levelling.failed):
            await ctx.tick()
        result.append(bool(ctx.get(levelling.ready)))
    bench.background(registers)
    bench.process("bring-up", watch)
    bench.run(200_000)
    return chips, result[0]


@pytest.mark.slow
@pytest.mark.parametrize("windows, delays", [
    pytest.param(((0, 0, 8), (0, 0, 1)), [3, 0], marks=pytest.mark.long),
    (UNLIKE, [3, 5]),
    pytest.param(((3, 7, 1), (3, 1, 2)), [7, 1], marks=pytest.mark.long),
])
def test_the_middle_of_the_window_is_set(windows, delays):
    chips, ready = play(windows)
    assert ready and chips.delays == delays
    assert chips.slips == [slip for slip, _, _ in windows]
    assert chips.registers["ddrctrl_init_done"] == [1]
    assert chips.registers["ddrctrl_init_error"] == [0]
    assert chips.registers["ddrphy_dly_sel"] == [0]
    assert chips.registers["sdram_dfii_control"] == [CONSTANTS["DFII_CONTROL_SEL"]]


@pytest.mark.slow
@pytest.mark.parametrize("writes", [
    (0, 2), pytest.param((2, 0), marks=pytest.mark.long)])
def test_the_writes_of_each_lane_are_delayed(writes):
    """The PHY of an Artix-7: no burst is detected, and a lane's data come a period too early."""
    chips, ready = play(UNLIKE, writes=writes)
    assert ready and chips.delays == [3, 5] and tuple(chips.write_slips) == writes
    assert chips.slips == [slip for slip, _, _ in UNLIKE]
    assert [value for name, value, _ in chips.written if name == "ddrphy_rst"] == [1, 0]


@pytest.mark.long
def test_writes_that_are_never_right():
    chips, ready = play(UNLIKE, writes=(0, 1))
    assert not ready and chips.registers["ddrctrl_init_error"] == [1]


def test_the_chips_are_woken_first_with_all_waits():
    chips, ready = play(UNLIKE)
    steps = [step for step in WAKING if step[0] != "wait"]
    assert ready and [each[:2] for each in chips.written[2:2 + len(steps)]] == steps
    cycles = [cycle for _, _, cycle in chips.written[2:]]
    assert cycles[1] - cycles[0] > 300 and cycles[2] - cycles[1] > 100 > cycles[3] - cycles[2]


@pytest.mark.long
def test_a_detected_burst_is_not_enough_nor_are_the_data():
    chips, ready = play(((1, 2, 3), (0, 5, 3)), bursts=((0, 8), (6, 1)))
    assert ready and chips.delays == [3, 6] and chips.slips == [1, 0]


@pytest.mark.slow
def test_all_lanes_are_probed_at_the_end():
    chips, ready = play(UNLIKE)
    others, also = play(UNLIKE, most=chips.reads - 1)
    assert ready and not also and others.registers["ddrctrl_init_error"] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("windows, bursts", [
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ((ALL_RIGHT, ALL_RIGHT), ((0, 8), None)),
        ((ALL_RIGHT, ALL_RIGHT), (None, (0, 8))),
        ((ALL_RIGHT, (4, 0, 8)), ((0, 8), (0, 8))))),
    (((0, 0, 2), ALL_RIGHT), ((2, 6), (0, 8))),
])
def test_chips_that_are_never_read_right(windows, bursts):
    chips, ready = play(windows, bursts)
    assert not ready and chips.registers["ddrctrl_init_error"] == [1]
    assert chips.registers["sdram_dfii_control"] == [14], "the controller opened its ports"


@pytest.mark.parametrize("seed", range(3))
def test_the_widest_window(seed):
    rng = np.random.default_rng(seed)
    dut, found = WidestWindow(DELAYS, BITSLIPS), []
    trials = [rng.random((BITSLIPS, DELAYS)) < share for share in (0, 0.1, 0.5, 0.7, 0.9, 1)
              for _ in range(5)]

    async def drive(ctx):
        for right in trials:
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            for slip, delay in np.ndindex(right.shape):
                ctx.set(dut.sample, 1)
                for name, value in (("bitslip", slip), ("delay", delay),
                                    ("passed", right[slip, delay])):
                    ctx.set(getattr(dut, name), int(value))
                await ctx.tick()
                ctx.set(dut.sample, 0)
            found.append((ctx.get(dut.found), ctx.get(dut.best_bitslip), ctx.get(dut.middle)))
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    for right, (there, slip, middle) in zip(trials, found, strict=True):
        runs = [(last + 1 - first, -slip, -first) for slip in range(BITSLIPS)
                for first in range(DELAYS) for last in range(first, DELAYS)
                if right[slip, first:last + 1].all()]
        assert there == bool(runs)
        if runs:
            length, best, first = max(runs)
            assert (slip, middle) == (-best, -first + (length - 1) // 2), f"seed {seed}"


@needs_litedram
@pytest.mark.slow
def test_the_program_of_a_board():
    """The waits, registers and delays of LiteDRAM's controller."""
    board = BOARDS["ecpix5"]
    made = generate(board.dram, f"{board.device}BG554C", 100, 50)
    program = bring_up(made)
    assert (program.lanes, program.delays, program.bitslips) == (2, 8, 4)
    assert program.masks == (0x00FF00FF, 0xFF00FF00)
    assert [value for step, value in made.initialisation if step == "wait"][:2] == [50_000, 10_000]
    assert "module litedram (" in made.verilog and "wb_ctrl_ack" in made.verilog
    assert len(program.entries) == len(Section) and program.entries[0] == 0
    with pytest.raises(ValueError, match=r"have \d+ bytes, not 4096"):
        generate(replace(board.dram, chip_bytes=4096, memory_bytes=4096),
                 "LFE5UM5G-85F-8BG554C", 100, 50)


@needs_litedram
@pytest.mark.slow
def test_the_program_of_an_artix():
    dram = Dram(phy="A7DDRPHY", chip="MT41K512M16", lanes=2, chip_bytes=1 << 30)
    made = generate(dram, "xc7a200tfbg484-2", 200, 50)
    program = bring_up(made)
    assert (program.delays, program.bitslips, program.writes) == (32, 8, 4)
    assert "burstdet" not in made.verilog and "IDELAYE2" in made.verilog
    assert len(program.entries) == len(Section)


@needs_litedram
@pytest.mark.slow
def test_an_sdram_is_woken_and_not_probed():
    board = BOARDS["ulx3s"]
    made = generate(board.dram, f"{board.device}BG381C", 25, board.clock_mhz)
    simulated = run_generator(["-m", "litedram.gen", "--sim"], board.dram,
                              base_configuration(board.dram, board.clock_mhz))
    assert (simulated.registers, simulated.initialisation) == (made.registers, made.initialisation)
    program = bring_up(made)
    assert program == bring_up(simulated) and (program.delays, program.bitslips) == (1, 1)
    sizes = np.diff([*program.entries, len(program.words)])
    assert all(sizes[section] == 1 for section in range(Section.RESTART, Section.OPEN))
    assert sum(step == "wait" for step, _ in made.initialisation) < sizes[Section.WAKE]
    assert "inout  wire   [15:0] sdram_dq" in made.verilog


@needs_litedram
@pytest.mark.slow
def test_the_simulated_controller_has_the_registers_of_the_real_one():
    """One program brings up both."""
    simulated = run_generator(
        levelled_program([ALL_RIGHT] * LANES), DRAM, base_configuration(DRAM, 50))
    real = generate(DRAM, "LFE5UM5G-45F-8BG381C", 100, 50)
    assert (simulated.registers, simulated.initialisation) == (real.registers, real.initialisation)
    assert bring_up(simulated) == bring_up(real)


def test_a_missing_generator_is_named(monkeypatch):
    monkeypatch.setattr(dram_controller, "MODULES", ("no_such_module",))
    with pytest.raises(ValueError, match=r"no_such_module.*pip install.*or use --memory block"):
        generate(DRAM, "LFE5UM5G-45F-8BG381C", 100, 50)


def test_more_memory_than_the_chips_have():
    with pytest.raises(ValueError, match="at most the size of the chips, 4096, not 8192"):
        Dram(chip="MT41K64M16", lanes=2, chip_bytes=4096, memory_bytes=8192)
