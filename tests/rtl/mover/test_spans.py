"""COPY and FILL by the row mover, against their golden model."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.mover.addressing.lane import SpanChunks
from hotrow_sim.cycles.mover import span_cycles
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.support.benches.row_bench import (
    BASE,
    REGIONS,
    ROUGH,
    TINY,
    Gather,
    RowBench,
    Span,
    compare,
)
from tests.support.benches.stream_bench import StreamBench, pulse
from tests.support.simulation import built

ROOMY = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024)  # for any bus
BUSES = {8: replace(TINY, bus_bytes=8, burst_beats=8),
         16: TINY, 32: replace(ROOMY, bus_bytes=32, outstanding=1, row_bytes=64),
         64: replace(ROOMY, bus_bytes=64, outstanding=16, row_bytes=4096)}
FAULTS = {SLVERR: Status.SLVERR, DECERR: Status.DECERR}
SLOW, LONG = pytest.mark.slow, pytest.mark.long


def spans(fills, seed, number=6):
    """Spans of all lengths and alignments, across pages."""
    rng = np.random.default_rng(seed)
    for each in range(number):
        count = 4 * int(rng.integers(1, (20, 200, 800)[each % 3]))
        source, destination = (4 * int(rng.integers(0, 0x4F00 - count) // 4) for _ in range(2))
        yield Span(count, packed_address(0, source), packed_address(1, destination),
                   int(rng.integers(1 << 32)) if fills else None, seed)


@pytest.mark.slow
@pytest.mark.parametrize("fills", [False, True], ids=["copy", "fill"])
@pytest.mark.parametrize("bus_bytes", [
    pytest.param(8, marks=LONG), 16, pytest.param(32, marks=LONG),
    pytest.param(64, marks=LONG)])
@pytest.mark.parametrize("behaviour", [pytest.param({}, marks=LONG), ROUGH],
                         ids=["calm", "rough"])
def test_memory_equals_golden(bus_bytes, fills, behaviour):
    port = Behaviour(seed=5, **behaviour)
    bench = RowBench(BUSES[bus_bytes], port, port)
    got, _ = compare(bench, list(spans(fills, seed=bus_bytes)), limit=60000)
    assert all(outcome.status == Status.OK for outcome in got)


@pytest.mark.slow
def test_chunks_are_counted():
    spans = [Span(count, pattern=pattern) for count in (4, 508, 512, 516, 1024)
             for pattern in (None, 0xDEAD_BEEF)]
    got, _ = compare(RowBench(TINY), spans)
    assert [(each.entries, each.bytes) for each in got] == [
        (-(-span.count // TINY.row_bytes), span.count) for span in spans]


@pytest.mark.slow
def test_commands_of_all_kinds_follow_each_other():
    port = Behaviour(seed=7, **ROUGH)
    fill = Span(300, destination=packed_address(1, 0x1004), pattern=0x0123_4567)
    compare(RowBench(TINY, port, port), [
        Gather(1, [0], 9), fill, Gather(2, [1], 9), Span(900), fill,
        Span(900, packed_address(1, 0x1000), packed_address(2, 8)), Gather(3, [2], 3)])


def test_a_fill_reads_nothing():
    bench = RowBench(TINY)
    compare(bench, [Span(2000, pattern=7)])
    assert bench.read.statistics.beats == 0 and bench.write.statistics.beats > 100


@pytest.mark.slow
def test_a_fill_writes_a_word_per_cycle():
    config = BUSES[64]
    bench = RowBench(config, write=Behaviour(latency=20))
    compare(bench, [Span(16384, destination=packed_address(1, 0xFF0), pattern=3)])
    statistics = bench.write.statistics
    assert statistics.beats == 256
    assert statistics.last_beat - statistics.first_request <= 256 + 4


def fault_case(command, on_read, offset, response, packed):
    """A span with one faulty word; what its outcome and memory are, but for the faulty piece."""
    bench = RowBench(TINY)
    address = REGIONS[packed >> 48].base + packed % (1 << 48) + offset
    (bench.read if on_read else bench.write).fail_range(address, 1, response)
    before, expected = bench.image.copy(), bench.image.copy()
    command.expect(expected, TINY)
    (got,), _ = bench.run([command])
    return bench, before, expected, got


@pytest.mark.slow
@pytest.mark.parametrize("response", FAULTS)
@pytest.mark.parametrize("offset, piece", [(0, 0), pytest.param(600, 1, marks=LONG), (1199, 2)])
def test_a_read_fault_spares_the_other_pieces(offset, piece, response):
    command = Span(1200, packed_address(0, 0x104))
    bench, before, expected, got = fault_case(command, True, offset, response, command.source)
    first = REGIONS[1].base - BASE + 0x20 + 512 * piece
    end = min(first + 512, REGIONS[1].base - BASE + 0x20 + 1200)
    expected[first:end] = before[first:end]
    np.testing.assert_array_equal(bench.image, expected)
    assert (got.status, got.error_index, got.entries) == (FAULTS[response], piece, 2)
    assert got.bytes == 1200 - (end - first)
    assert got.error_address == command.source + 512 * piece


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [None, 5], ids=["copy", "fill"])
@pytest.mark.parametrize("response", FAULTS)
@pytest.mark.parametrize("offset, piece", [(0, 0), (600, 1), pytest.param(1199, 2, marks=LONG)])
def test_a_write_fault_is_told(pattern, offset, piece, response):
    command = Span(1200, pattern=pattern)
    *_, got = fault_case(command, False, offset, response, command.destination)
    assert (got.status, got.error_index, got.entries) == (FAULTS[response], piece, 2)
    assert got.error_address == command.destination + 512 * piece


def test_a_region_that_vanished_stops_its_pieces():
    """The command check saw the span whole; the mover checks every piece again."""
    (got,), _ = RowBench(TINY).run([Span(1200, destination=packed_address(1, 0x6000 - 600))])
    assert (got.status, got.error_index, got.entries) == (Status.REGION, 1, 1)
    assert got.error_address == packed_address(1, 0x6000 - 600 + 512)


@pytest.mark.slow
@pytest.mark.parametrize("on_read, pattern", [(True, None), (False, None), (False, 3)],
                         ids=["copy read", "copy write", "fill write"])
@pytest.mark.parametrize("accept", [pytest.param(True, marks=LONG), False],
                         ids=["no-answer", "no-ready"])
def test_a_dead_memory_stops_the_port(on_read, pattern, accept):
    """TIMEOUT for every piece, for a FILL too behind a COPY's reads, until a restart that follows
    the late answers."""
    bench = RowBench(TINY, timeout=50)
    dut, died = bench.dut, []

    async def drive(ctx):
        await bench.register(ctx)
        (bench.read if on_read else bench.write).silence(
            bench.bench.cycles + 40, bench.bench.cycles + 600, accept=accept)
        for command in (Span(4096, pattern=pattern), Span(1024, pattern=9)):
            await bench.submit(ctx, command)
            died.append(await bench.outcome(ctx))
        assert ctx.get(dut.read_stopped) == on_read
        assert ctx.get(dut.write_stopped) == (not on_read)
        await pulse(ctx, dut.restart)
        await ctx.tick().until(dut.idle)
        for again in bench.commands:
            await bench.submit(ctx, again)
            died.append(await bench.outcome(ctx))
        await ctx.tick().repeat(600)
        await pulse(ctx, dut.restart)
        await ctx.tick().until(dut.idle)
        bench.expected = bench.image.copy()
        for again in bench.commands:
            await bench.submit(ctx, again)
            assert (await bench.outcome(ctx)).status == Status.OK
    bench.commands = [Span(700, pattern=11), Span(700, destination=packed_address(2, 4))]
    bench.bench.process("commands", drive)
    bench.bench.run(8000)
    bench.model.check()
    assert [outcome.status for outcome in died] == [Status.TIMEOUT] * 4
    assert all(not (each.error_index or each.entries or each.bytes) for each in died[1:])
    for again in bench.commands:
        again.expect(bench.expected, TINY)
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [None, 6], ids=["copy", "fill"])
@pytest.mark.parametrize("after", [
    61, *(pytest.param(n, marks=LONG) for n in (1, 14, 16, 30, 150))])
def test_restart_in_flight(pattern, after):
    """A restart at any time leaves a mover that carries out the next command."""
    rough = dict(ROUGH, latency=20)
    bench = RowBench(TINY, Behaviour(seed=after, **rough), Behaviour(seed=after, **rough))
    dut = bench.dut
    again = [Span(700, packed_address(0, 0x404)), Span(500, pattern=1)][::-1 if after % 2 else 1]

    async def drive(ctx):
        await bench.register(ctx)
        await bench.submit(ctx, Span(4096, pattern=pattern))
        await ctx.tick().repeat(after)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        for number, command in enumerate(again):
            await bench.submit(ctx, command)
            if number == 0:
                bench.expected = bench.image.copy()
            assert (await bench.outcome(ctx)).status == Status.OK

    bench.bench.process("commands", drive)
    bench.bench.run(8000)
    bench.model.check()
    for command in again:
        command.expect(bench.expected, TINY)
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.parametrize("config, count, latency, pattern", [
    (TINY, 256, 20, 1), pytest.param(TINY, 8192, 30, None, marks=SLOW), *(
        pytest.param(*each, marks=LONG) for each in (
            (TINY, 8192, 1, None), (TINY, 8192, 20, 1), (BUSES[64], 16384, 60, None),
            (BUSES[64], 16384, 60, 1), (preset("tiny"), 4, 10, None)))])
def test_cycles_follow_the_model(config, count, latency, pattern):
    bench = RowBench(replace(config, tables=16, handles=8), Behaviour(latency=latency),
                     Behaviour(latency=latency))
    # Both ends lie on the same place of a page, so that pieces cross none.
    command = Span(count, packed_address(0, 0xBF0), packed_address(1, 0xFF0), pattern)
    _, cycles = compare(bench, [command])
    start = REGIONS[0].base + 0xBF0 if pattern is None else REGIONS[1].base + 0xFF0
    model = span_cycles(config, start, count, latency, latency, fills=pattern is not None)
    assert model == cycles


def test_pieces_come_without_a_gap():
    dut = built(SpanChunks)
    bench, seen, ready = StreamBench(dut), [], cycle((1, 1, 0, 1, 0, 0))

    async def drive(ctx):
        for count in (1, 2, 7):
            ctx.set(dut.count, count)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            last = 0
            while not last:
                ctx.set(dut.ready, next(ready))
                *_, valid, taken, last = await ctx.tick().sample(
                    dut.valid, dut.ready, dut.last & dut.ready)
                assert valid
                if taken:
                    seen.append(last)
            assert not ctx.get(dut.valid)
    bench.process("drive", drive)
    bench.run(500)
    assert seen == [1, 0, 1, *[0] * 6, 1]
