"""Several bag units: the outcomes and bits of one, with refusals, faults, stops and restarts."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status
from hotrow_sim.memory import Behaviour

from tests.rtl.mover.bags import test_bag_faults, test_bags, test_refused_bags
from tests.rtl.mover.bags.test_bags_rate import pool, timed
from tests.support.benches.bag_bench import ADAGRAD, LISTED, TINY, Pool, Update
from tests.support.benches.row_bench import ROUGH, RowBench, compare
from tests.support.benches.stream_bench import RAGGED, pulse

LONG = pytest.mark.long
TWO = replace(TINY, row_ports=2, outstanding=16, bag_units=2)
WIDE = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024, bus_bytes=32)
SHAPES = {
    "2 units": TWO,
    "2 units, 4 ports": replace(WIDE, row_ports=4, bag_units=2, outstanding=4),
    "4 units": replace(TINY, row_ports=4, bag_units=4, outstanding=1),
    "8 units": replace(WIDE, bus_bytes=64, row_ports=8, bag_units=8, outstanding=16,
                       arithmetic_lanes=4),
}
ANY_SHAPE = pytest.mark.parametrize("config", [
    pytest.param(config, id=name, marks=LONG) for name, config in SHAPES.items()])


@pytest.fixture
def on_units(monkeypatch):
    """A function that gives the modules of tests of one unit another card."""
    def give(config):
        for module in (test_bag_faults, test_bags, test_refused_bags):
            monkeypatch.setattr(module, "TINY", config)
    return give


@pytest.mark.parametrize("number", range(3))
@ANY_SHAPE
def test_random_bags_equal_golden(monkeypatch, config, number):
    monkeypatch.setattr(test_bags, "CONFIGS", {"units": config})
    for test in (test_bags.test_random_pools_equal_golden,
                 test_bags.test_random_updates_equal_golden):
        test(monkeypatch, number)


@pytest.mark.parametrize("kind", ["pool fp32", "update fp16", "adagrad fp16"])
@ANY_SHAPE
def test_every_refusal(monkeypatch, on_units, config, kind):
    on_units(config)
    test_refused_bags.test_every_refusal(monkeypatch, kind, 1)


@ANY_SHAPE
def test_refused_first_bags(monkeypatch, on_units, config):
    on_units(config)
    for test in (test_refused_bags.test_first_row_without_gradients,
                 test_refused_bags.test_an_empty_bag_is_refused_before_a_row_of_the_next,
                 test_refused_bags.test_an_empty_bag_of_a_refused_row_is_not_written):
        test(monkeypatch)


@pytest.mark.slow
def test_an_earlier_bag_of_another_unit_is_reported(monkeypatch, on_units):
    """The empty bag of unit 0 and the first row of unit 1 have one list position."""
    on_units(TWO)
    test_refused_bags.test_an_empty_bag_is_refused_before_a_row_of_the_next(monkeypatch)


@pytest.mark.parametrize("kind", ["pool", "update"])
@pytest.mark.parametrize("after", [1, 30, 45, 60, 70, 100, 140, 200])
@pytest.mark.long
def test_restart_in_flight(on_units, kind, after):
    on_units(TWO)
    test_bag_faults.test_restart_in_flight(kind, after)


@pytest.mark.parametrize("on_read", [True, False], ids=["read", "write"])
@pytest.mark.long
def test_dead_memories_end_every_bag(on_read):
    """All ports stop; after a restart the next command is carried out."""
    bench = RowBench(TWO, timeout=50)
    command, got = Pool(1, [0], [2] * 20, LISTED, stride=64, slots=20), []

    async def drive(ctx):
        await bench.register(ctx)
        first = bench.bench.cycles + (80 if on_read else 140)
        for port in bench.reads if on_read else bench.writes:
            port.silence(first, first + 320)
        for _ in range(2):
            await bench.submit(ctx, command)
            got.append(await bench.outcome(ctx))
        await pulse(ctx, bench.dut.restart)
        await ctx.tick().until(bench.dut.idle)
        bench.expected = bench.image.copy()
        await bench.submit(ctx, command)
        got.append(await bench.outcome(ctx))
    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    assert [each.status for each in got] == [Status.TIMEOUT, Status.TIMEOUT, Status.OK]
    assert 0 < got[0].entries < 20 and got[1].entries == 0 and got[2].entries == 20
    command.expect(bench.expected, TWO)
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.parametrize("kind", ["pool", "update"])
@pytest.mark.parametrize("bags", [1, 3, 40])
@pytest.mark.long
def test_bags_of_unlike_lengths(bags, kind):
    """Fewer bags than units, one bag far longer than the queues, and gaps in the lists."""
    port = Behaviour(seed=bags, **ROUGH)
    config = SHAPES["4 units"]
    lengths = np.random.default_rng(bags).choice([0, 1, 2, 9], bags)
    lengths[0] = 600
    command = Pool(1, [1], lengths, stride=16, slots=40) if kind == "pool" else Update(
        2, [8], np.maximum(lengths[:16], 1), ADAGRAD | LISTED, stride=64)
    compare(RowBench(config, port, port, gaps=RAGGED), [command], limit=60_000)


@pytest.mark.parametrize("units, length", [(2, 20), (4, 20), (4, 80)])
@pytest.mark.long
def test_units_add_a_row_a_cycle_each(monkeypatch, units, length):
    """Of rows of a bus word, beyond what a command of a quarter of the bags takes."""
    config = replace(WIDE, bus_bytes=64, row_ports=units, bag_units=units, outstanding=256)
    some, all_ = (pool(monkeypatch, table, 64, [length] * (rows * units // length))
                  for table, rows in enumerate((400, 1600)))
    _, (fewer, cycles) = timed(monkeypatch, config, 100, [some, all_])
    assert all_.count - some.count >= 0.9 * units * (cycles - fewer)
