"""How fast POOL and UPDATE are through the row mover: a bus word a cycle."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.interfaces.records import COMMAND_PARTS
from hotrow_sim.golden.region_check import Table
from hotrow_sim.memory import Behaviour

from tests.rtl.mover.bags.bags_cycles import pool_rows_cycles, update_rows_cycles
from tests.support.benches.bag_bench import ADAGRAD, LISTED, TINY, Pool, Update
from tests.support.benches.row_bench import SIZE, TABLES, RowBench

SLOW, LONG = pytest.mark.slow, pytest.mark.long
WIDE = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024, bus_bytes=64)
ONE_LANE = {"bus_bytes": 8, "burst_beats": 8, "arithmetic_lanes": 1}
# The sixth shape by default, all of them in `make regress`.
CASES = pytest.mark.parametrize("latency, changes, every", [
    pytest.param(20, ONE_LANE, 6, marks=SLOW),
    *(pytest.param(*each, 1, marks=LONG) for each in (
        (20, {}), (100, {}), (20, {"row_ports": 4}), (20, ONE_LANE)))])
SPAN = 4096  # bytes in which rows, gradients and slots lie, at the start of a page


def timed(monkeypatch, config, latency, commands):
    """Cycles of each command, from rows of normal numbers. Its table has the number of its place;
    none crosses a page."""
    memory = Behaviour(latency=latency)
    bench = RowBench(config, memory, memory)
    bench.image.view("<f4")[:] = np.random.default_rng(1).normal(1, 0.2, SIZE // 4)
    told = []

    async def drive(ctx):
        await bench.register(ctx)
        await ctx.tick().repeat(2 * config.outstanding)  # until the ids are cleared
        for command in commands:
            began = bench.bench.cycles + COMMAND_PARTS  # when it has come
            await bench.submit(ctx, command)
            got = await bench.outcome(ctx)
            assert (Status(got.status), got.entries) == (Status.OK, len(command.lengths))
            told.append(bench.bench.cycles - began)
    bench.bench.process("commands", drive)
    bench.bench.run(30_000)
    bench.model.check()
    return bench, told


def pool(monkeypatch, table, row_bytes, lengths):
    monkeypatch.setitem(TABLES, table, Table(
        SPAN // row_bytes - 1, packed_address(0, 0xBF0), row_bytes, row_bytes))
    command = Pool(table, [table], lengths, LISTED, row_bytes, packed_address(1, 0xFF0),
                   rows=SPAN // row_bytes)
    command.targets %= SPAN // row_bytes
    return command


def update(monkeypatch, table, row_bytes, counts, flags=0):
    monkeypatch.setitem(TABLES, table, Table(
        SPAN // row_bytes - 1, packed_address(1, 0xFF0), row_bytes, row_bytes,
        packed_address(2, 0), 4))
    rows = SPAN // row_bytes
    return Update(table, [table], counts, LISTED | flags, row_bytes, packed_address(0, 0xBF0),
                  slots=rows, rows=rows)


@CASES
def test_pool_cycles_follow_the_model(monkeypatch, latency, changes, every):
    config = replace(TINY, outstanding=256, **changes)
    shapes = [(16, [1] * 60), (16, [20] * 4), (64, [1] * 30), (64, [20] * 3), (256, [1] * 12),
              (256, [7, 2]), (64, [1])][5 % every::every]
    commands = [pool(monkeypatch, *each) for each in (
        (at, row_bytes, lengths) for at, (row_bytes, lengths) in enumerate(shapes))]
    _, told = timed(monkeypatch, config, latency, commands)
    for (row_bytes, lengths), cycles in zip(shapes, told, strict=True):
        model = pool_rows_cycles(
            config, row_bytes // 4, lengths, row_bytes, latency, latency, first_word=1)
        assert abs(model - cycles) <= 0.05 * cycles, (
            f"{len(lengths)} bags of {lengths[0]} rows of {row_bytes} bytes: "
            f"model {model}, hardware {cycles}")


@CASES
def test_update_cycles_follow_the_model(monkeypatch, latency, changes, every):
    config = replace(TINY, outstanding=256, **changes)
    shapes = [(64, [1] * 20, 0), (64, [3] * 6, 0), (256, [1] * 8, 0), (256, [2] * 4, 0),
              (64, [1] * 10, ADAGRAD), (64, [4] * 6, ADAGRAD), (256, [2] * 5, ADAGRAD)]
    shapes = shapes[5 % every::every]
    commands = [update(monkeypatch, at, *shape) for at, shape in enumerate(shapes)]
    _, told = timed(monkeypatch, config, latency, commands)
    for (row_bytes, counts, flags), cycles in zip(shapes, told, strict=True):
        model = update_rows_cycles(config, row_bytes // 4, counts, row_bytes, row_bytes,
                                   bool(flags), latency, latency, first_word=1)
        assert abs(model - cycles) <= 0.05 * cycles, (
            f"{len(counts)} rows of {row_bytes} bytes with {counts[0]} gradients: "
            f"model {model}, hardware {cycles}")


@pytest.mark.parametrize("config, latency, row_bytes, bag, rows", [
    pytest.param(replace(TINY, outstanding=64), 20, 16, 1, 300, marks=LONG),
    pytest.param(replace(TINY, bus_bytes=8, burst_beats=8, outstanding=64), 10, 16, 1, 100,
                 marks=SLOW),
    *(pytest.param(replace(WIDE, outstanding=1024, row_ports=ports), latency, row_bytes, bag,
                   max(bag, 60_000 // row_bytes), marks=LONG)
      for ports, latency, row_bytes, bag in (
          (1, 64, 64, 1), (1, 200, 64, 20), (1, 512, 64, 1000), (1, 512, 128, 1),
          (1, 64, 256, 20), (1, 512, 512, 20), (4, 512, 64, 20), (4, 200, 512, 1)))])
def test_a_word_a_cycle_behind_latency(monkeypatch, config, latency, row_bytes, bag, rows):
    """Beyond what a command takes that has one bag of one row, nine cycles of ten bring a word."""
    one = pool(monkeypatch, 0, row_bytes, [1])
    all_ = pool(monkeypatch, 1, row_bytes, [bag] * (rows // bag))
    _, (alone, cycles) = timed(monkeypatch, config, latency, [one, all_])
    words = all_.count * row_bytes // config.bus_bytes
    assert words >= 0.9 * (cycles - alone), f"{words} words in {cycles - alone} cycles"


@pytest.mark.parametrize("config, latency, counts", [
    pytest.param(replace(TINY, bus_bytes=8, burst_beats=8, outstanding=64), 10, [40] * 6,
                 marks=SLOW),
    *(pytest.param(replace(WIDE, outstanding=1024), 200, counts, marks=LONG)
      for counts in ([1000], [20] * 50))])
def test_gradients_come_a_word_a_cycle(monkeypatch, config, latency, counts):
    """The gradients of a row do not wait for the adder: nine cycles of ten bring a word."""
    one, all_ = (update(monkeypatch, at, 64, each) for at, each in enumerate(([1], counts)))
    _, (alone, cycles) = timed(monkeypatch, config, latency, [one, all_])
    words = (sum(counts) + len(counts)) * 64 // config.bus_bytes
    assert words >= 0.9 * (cycles - alone), f"{words} words in {cycles - alone} cycles"
