"""Lists of edits beside the golden directory."""

from copy import deepcopy

import numpy as np
import pytest
from hotrow_rtl.config import ROW_NUMBER_WIDTH
from hotrow_rtl.contract.encoding import AllFlag, Opcode
from hotrow_rtl.interfaces.records import FAULT_DECERR
from hotrow_rtl.lookup.directory.install_remove import InstallRemove
from hotrow_rtl.lookup.directory.slot_table import distance
from hotrow_rtl.lookup.hashing.row_location import split_key
from hotrow_sim.cycles.directory import clear_cycles, list_cycles
from hotrow_sim.golden.lookup import directory as golden

from tests.rtl.lookup.directory.install_remove_bench import (
    CONFIGS,
    FOUR_LANES,
    LATENCY,
    ONE_CHOICE,
    TINY,
    WIDE,
    List,
    ListedDirectory,
    Lists,
    Ring,
    model,
    rows,
    run,
    tables_of,
)
from tests.support.benches.stream_bench import RAGGED, STEADY
from tests.support.simulation import built


@pytest.mark.slow
@pytest.mark.parametrize("config, gaps, pauses", [
    pytest.param(TINY, STEADY, STEADY, id="steady"),
    pytest.param(TINY, RAGGED, RAGGED, id="both"),
    pytest.param(TINY, RAGGED, STEADY, id="gaps", marks=pytest.mark.long),
    pytest.param(TINY, STEADY, RAGGED, id="back-pressure", marks=pytest.mark.long),
    pytest.param(ONE_CHOICE, RAGGED, RAGGED, id="one-choice", marks=pytest.mark.slow),
    pytest.param(WIDE, RAGGED, RAGGED, id="bus-64", marks=pytest.mark.slow)])
def test_lists_equal_golden(config, gaps, pauses):
    first = rows(config, 80, seed=1, wrong=0.1)
    run(config, [
        List(Opcode.INSTALL, first),
        List(Opcode.REMOVE, first[::3]),
        List(Opcode.INSTALL, rows(config, 30, seed=2)),
        List(Opcode.REMOVE, first[:0], flags=AllFlag.ALL),
        List(Opcode.REMOVE, first[:5]),
        List(Opcode.INSTALL, first[:40]),
    ], gaps, pauses)


@pytest.mark.slow
@pytest.mark.parametrize("config, gaps, pauses", [
    pytest.param(TINY, RAGGED, (0, 2, 0, 0, 30), id="both"),
    pytest.param(TINY, STEADY, STEADY, id="steady", marks=pytest.mark.slow),
    pytest.param(ONE_CHOICE, RAGGED, (0, 2, 0, 0, 30), id="one-choice", marks=pytest.mark.long),
    pytest.param(WIDE, STEADY, STEADY, id="bus-64", marks=pytest.mark.long)])
def test_lists_through_the_crossbar(config, gaps, pauses):
    first = rows(config, 60, seed=5, wrong=0.1)
    Lists(config, built(ListedDirectory, config), gaps, pauses).run([
        List(Opcode.INSTALL, first),
        List(Opcode.REMOVE, first[::3]),
        List(Opcode.INSTALL, np.repeat(first[:9], 3, axis=0)),
        List(Opcode.REMOVE, first[:0], flags=AllFlag.ALL),
        List(Opcode.REMOVE, first[:5]),
        List(Opcode.INSTALL, first[:20]),
    ])


@pytest.mark.slow
def test_overflow_is_refused_and_removal_makes_room():
    config = ONE_CHOICE
    many = np.stack([np.arange(100), np.full(100, 15)], axis=1)
    wanted = list(model(config, tables_of(config), [List(Opcode.INSTALL, many)],
                        golden.Directory(config)))
    assert wanted[0][1]["refused"] > 20
    run(config, [List(Opcode.INSTALL, many), List(Opcode.REMOVE, many[::2]),
                 List(Opcode.INSTALL, many[::-1])])


def test_duplicates_in_one_list():
    twice = np.array([[5, 1], [5, 1], [6, 1], [5, 1], [6, 1]])
    run(TINY, [List(Opcode.INSTALL, twice), List(Opcode.REMOVE, twice)])


@pytest.mark.parametrize("first", [0, 2])
def test_faulted_words_are_refused_with_their_entries(first):
    few = rows(TINY, 9, seed=3)
    run(TINY, [List(Opcode.INSTALL, few, faults={first: FAULT_DECERR, 4: FAULT_DECERR}),
               List(Opcode.REMOVE, few)])


def test_one_entry():
    run(TINY, [List(Opcode.REMOVE, np.array([[1, 1]])), List(Opcode.INSTALL, np.array([[1, 1]])),
               List(Opcode.INSTALL, np.array([[1, 1 << 31]]))])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("wrong", [0, 0.3])
def test_one_entry_a_cycle(config, wrong):
    """Into the ring and out of it, whatever is refused."""
    ring = run(config, [List(Opcode.INSTALL, rows(config, 100, seed=4, wrong=wrong))])
    assert np.ptp(ring.taken) == np.ptp(ring.answered) == 99


@pytest.mark.parametrize("after", [
    pytest.param(after, marks=[pytest.mark.slow] * (after % 12 == 5))
    for after in (1, 5, 9, 13, 17, 21, 25, 29, 60)])
def test_restart_forgets_the_list(after):
    """The next list starts from whatever the ring had done; its counts are its own."""
    config, begun, seed = TINY, [], 6
    dut = built(InstallRemove, config)
    bench = Lists(config, dut, pauses=(0, 0, 2))
    ring = Ring(bench.bench, dut, config, pauses=(0, 1))
    dropped = List(Opcode.INSTALL, rows(config, 40, seed, wrong=0.2))
    kept = [List(Opcode.REMOVE, dropped.entries[:30]), List(Opcode.INSTALL, dropped.entries)]
    orders = [bench.command(one) for one in (dropped, *kept)]
    got = {"slots": [], "outcomes": []}

    async def drive(ctx):
        await bench.register(ctx)
        await bench.give(ctx, orders[0])
        for _ in range(after):
            await ctx.tick()
        ctx.set(dut.restart, 1)
        bench.memory.restart()
        await ctx.tick()
        ctx.set(dut.restart, 0)
        begun.append(deepcopy(ring.directory))
        for order in orders[1:]:
            await bench.give(ctx, order)

    async def drain(ctx):
        ctx.set(dut.slots.ready, 1)
        ctx.set(dut.outcome.ready, 1)
        await ctx.tick().until(dut.restart)
        while len(got["outcomes"]) < len(kept):
            _, _, valid, slot, ended, report = await ctx.tick().sample(
                dut.slots.valid, dut.slots.p, dut.outcome.valid, dut.outcome.p)
            if valid:
                got["slots"].append((slot.value, slot.present, slot.last))
            if ended:
                got["outcomes"].append(report)
    bench.bench.process("commands", drive)
    bench.bench.process("sinks", drain)
    bench.bench.run(1000)
    wanted = list(model(config, bench.tables, kept, begun[0]))
    assert len(got["slots"]) == sum(len(want) for want, _ in wanted)
    bench.check(kept, wanted, got["slots"], got["outcomes"])


def cycles_and_model(config, entries):
    valid = (entries[:, 0] <= 1 << 19) & (entries[:, 1] < config.tables // 2)
    keys = entries[:, 1].astype(np.uint64) << np.uint64(ROW_NUMBER_WIDTH) | entries[:, 0].astype(
        np.uint64)
    banks = split_key(config, keys)[0].tolist()
    cycles = Lists(config, built(ListedDirectory, config)).run([List(Opcode.INSTALL, entries)])
    return cycles, list_cycles(valid, LATENCY + 1, banks), list_cycles(valid, LATENCY + 1)


@pytest.mark.slow
@pytest.mark.parametrize("config, wrong", [
    (FOUR_LANES, 0.5),
    *(pytest.param(config, wrong, marks=pytest.mark.long) for config, wrong in (
        (ONE_CHOICE, 0.5), (FOUR_LANES, 0), (FOUR_LANES, 2), (WIDE, 0)))],
    ids=lambda value: getattr(value, "name", value))
def test_cycles_agree_with_the_model(config, wrong):
    entries = rows(config, 100, seed=4, wrong=wrong)
    cycles, banked, _ = cycles_and_model(config, entries)
    assert cycles == banked


@pytest.mark.slow
def test_rows_of_one_bank_wait_for_each_other():
    count, tables = 40, tables_of(FOUR_LANES)
    same = [(row, table) for table in tables for row in range(tables[table][0] + 1)
            if split_key(FOUR_LANES, table << ROW_NUMBER_WIDTH | row)[0] == 3]
    entries = np.array([same[number % len(same)] for number in range(count)])
    cycles, banked, apart = cycles_and_model(FOUR_LANES, entries)
    assert cycles == banked
    assert banked - apart == (distance(FOUR_LANES) - 1) * (count - 1)


def test_clear_takes_a_sweep():
    everything = List(Opcode.REMOVE, np.zeros((0, 2)), flags=AllFlag.ALL)
    cycles = Lists(FOUR_LANES, built(ListedDirectory, FOUR_LANES)).run([everything] * 3)
    assert cycles == 3 * clear_cycles(FOUR_LANES)
