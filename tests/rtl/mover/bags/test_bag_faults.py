"""POOL and UPDATE through the row mover when the memory fails, or the mover is restarted."""

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.support.benches.bag_bench import ADAGRAD, LISTED, TINY, WEIGHTED, Pool, Update
from tests.support.benches.row_bench import BASE, DESTINATION, REGIONS, ROUGH, Gather, RowBench

FAULTS = {SLVERR: Status.SLVERR, DECERR: Status.DECERR}
SLOW, LONG = pytest.mark.slow, pytest.mark.long


def three_bags():
    """Three bags, of 3, 2 and 2 rows of 4 bus words of 16 bytes."""
    command = Pool(1, [0], [3, 2, 2], stride=64)
    command.entries["row"] = (9, 4, 12, 1, 7, 3, 2)
    return command


@pytest.mark.parametrize("response, on_read, beat, index, bag", [
    pytest.param(SLVERR, True, 14, 3, 1, marks=SLOW), *(
        pytest.param(*each, marks=LONG) for each in (
            (DECERR, False, 5, 3, 1), (DECERR, True, 0, 0, 0), (SLVERR, True, 19, 4, 1),
            (DECERR, True, 27, 6, 2), (SLVERR, False, 11, 5, 2)))])
def test_a_bus_fault_costs_its_bag_only(response, on_read, beat, index, bag):
    command, bench = three_bags(), RowBench(TINY)
    (bench.read if on_read else bench.write).fail_beat(beat, response)
    before = bench.image.copy()
    expected = before.copy()
    command.expect(expected, TINY)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries, got.bytes) == (
        FAULTS[response], index, 2, 128)
    if on_read:
        at = REGIONS[1].base - BASE + 0x20 + 64 * bag
        expected[at:at + 64] = before[at:at + 64]
        np.testing.assert_array_equal(bench.image, expected)
        assert got.error_address == packed_address(0, int(command.entries["row"][index]) * 80)
    else:
        assert got.error_address == DESTINATION + 64 * bag


@pytest.mark.parametrize("place, status, index", [
    (2, Status.DECERR, 0), (0, Status.ROW_OUT_OF_RANGE, 0)])
def test_the_first_error_of_a_pooled_bag(place, status, index):
    """A fault of its first row goes before the refusal of a later one."""
    command, bench = three_bags(), RowBench(TINY)
    command.entries["row"][place] = 1 << 20
    bench.read.fail_beat(0, DECERR)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index) == (status, index)


@pytest.mark.parametrize("on_read, beat, moved", [
    pytest.param(True, 13, 2 * 68, id="gradient", marks=LONG),
    pytest.param(True, 18, 2 * 68, id="row", marks=LONG),
    pytest.param(True, 21, 2 * 68, id="state", marks=LONG),
    pytest.param(False, 6, 2 * 68 + 4, id="written row", marks=LONG),
    pytest.param(False, 9, 2 * 68 + 64, id="written state", marks=SLOW)])
def test_a_bus_fault_costs_its_row_only(on_read, beat, moved):
    """Rows and gradients of 4 bus words, a state of 1: rows of 9, 14 and 9."""
    command, bench = Update(1, [8], [1, 2, 1], ADAGRAD, stride=64), RowBench(TINY)
    (bench.read if on_read else bench.write).fail_beat(beat, SLVERR)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries, got.bytes) == (Status.SLVERR, 1, 2, moved)


@pytest.mark.slow
@pytest.mark.parametrize("table, second, status, entries", [
    (8, 1 << 30, Status.REGION, 1), (0, 3, Status.READ_ONLY, 0)], ids=["gradient", "row"])
def test_a_refusal_goes_before_faults_of_its_row(table, second, status, entries):
    """What is refused is known long before the fault of the gradient in front of it."""
    command = Update(1, [table], [2, 1], LISTED, stride=64)
    command.targets[:] = (1, second, 2)
    bench = RowBench(TINY, Behaviour(latency=60))
    bench.read.fail_beat(0)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (status, 0, entries)


@pytest.mark.parametrize("on_read", [
    pytest.param(True, id="read", marks=SLOW), pytest.param(False, id="write", marks=LONG)])
def test_a_dead_memory_ends_every_bag(on_read):
    bench = RowBench(TINY, timeout=50)
    command, told = Pool(1, [0], [2] * 20, LISTED, stride=64, slots=20), []

    async def drive(ctx):
        await bench.register(ctx)
        now = bench.bench.cycles
        if on_read:
            bench.read.silence(now + 80, now + 400)
        else:
            bench.write.silence(now + 140, now + 460)
        for _ in range(2):
            await bench.submit(ctx, command)
            told.append(await bench.outcome(ctx))
        ctx.set(bench.dut.restart, 1)
        await ctx.tick()
        ctx.set(bench.dut.restart, 0)
        await ctx.tick().until(bench.dut.idle)
        bench.expected = bench.image.copy()
        await bench.submit(ctx, command)
        told.append(await bench.outcome(ctx))
    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    assert [got.status for got in told] == [Status.TIMEOUT, Status.TIMEOUT, Status.OK]
    assert 0 < told[0].entries < 20 and told[1].entries == 0 and told[2].entries == 20
    command.expect(bench.expected, TINY)
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind, after", [
    ("update", 70), pytest.param("pool", 45, marks=SLOW), *(
        pytest.param(kind, after, marks=LONG) for kind in ("pool", "update")
        for after in (1, 20, 60, 100, 140, 200, 300))])
def test_restart_in_flight(kind, after):
    """A restart at any time leaves a mover that carries out the next command, which waits."""
    rough = dict(ROUGH, latency=20)
    bench = RowBench(TINY, Behaviour(seed=after, **rough), Behaviour(seed=after, **rough))
    first = {"pool": Pool(1, [0], [3, 0, 1, 9] * 3, WEIGHTED, stride=64),
             "update": Update(1, [8], [1, 2, 1, 3] * 3, ADAGRAD, stride=64)}[kind]
    then = [Update(2, [8], [1, 2], ADAGRAD), Pool(3, [1], [2, 0, 1]), Gather(4, [0, 1], 4)]

    async def drive(ctx):
        await bench.register(ctx)
        await bench.submit(ctx, first)
        await ctx.tick().repeat(after)
        ctx.set(bench.dut.restart, 1)
        await ctx.tick()
        ctx.set(bench.dut.restart, 0)
        await ctx.tick().until(bench.dut.idle)
        bench.expected, bench.got = bench.image.copy(), []
        for command in then:
            await bench.submit(ctx, command)
            bench.got.append(await bench.outcome(ctx))
    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    for command, got in zip(then, bench.got, strict=True):
        want = command.expect(bench.expected, TINY)
        assert (got.status, got.entries, got.bytes) == (want.status, want.entries, want.bytes)
    np.testing.assert_array_equal(bench.image, bench.expected)
