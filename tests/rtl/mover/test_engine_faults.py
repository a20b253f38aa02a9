import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.mover.engine import MIN_CYCLES
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.support.benches.row_bench import (
    BASE,
    DESTINATION,
    REGIONS,
    ROUGH,
    STATE,
    TINY,
    WITH_STATE,
    Gather,
    RowBench,
    Scatter,
)
from tests.support.benches.stream_bench import pulse

FAULTS = {SLVERR: Status.SLVERR, DECERR: Status.DECERR}
LONG = pytest.mark.long
KINDS = [Gather, Scatter]


def four(kind):
    """Four unlike rows of 64 bytes; the packed address of a row's source, and destination."""
    command = kind(1, [8] if kind is Scatter else [0], 4, stride=64)
    command.entries["row"] = (9, 4, 12, 1)

    def source(entry):
        return (DESTINATION + 64 * entry if kind is Scatter
                else packed_address(0, int(command.entries["row"][entry]) * 80))

    def destination(entry):
        return (packed_address(1, 0x3000 + int(command.entries["row"][entry]) * 80)
                if kind is Scatter else DESTINATION + 64 * entry)
    return command, source, destination


def fault_case(command, on_read, beat, response):
    """One faulty beat on a 16-byte bus; the bench, its memory before, and the outcome."""
    bench = RowBench(TINY)
    (bench.read if on_read else bench.write).fail_beat(beat, response)
    before = bench.image.copy()
    (got,), _ = bench.run([command])
    return bench, before, got


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("response", FAULTS)
@pytest.mark.parametrize("beat", [8, 9, 11], ids=["first", "middle", "last"])
def test_a_read_fault_refuses_its_row_only(kind, beat, response):
    command, source, destination = four(kind)
    bench, before, got = fault_case(command, True, beat, response)
    expected = before.copy()
    command.expect(expected, TINY)
    at = REGIONS[1].base - BASE + destination(2) % (1 << 48)
    expected[at:at + 64] = before[at:at + 64]
    np.testing.assert_array_equal(bench.image, expected)
    assert (got.status, got.error_index, got.entries, got.bytes) == (FAULTS[response], 2, 3, 192)
    assert got.error_address == source(2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("response", FAULTS)
@pytest.mark.parametrize("beat", [4, 5, 7], ids=["first", "middle", "last"])
def test_a_write_fault_is_told(kind, beat, response):
    command, _, destination = four(kind)
    _, _, got = fault_case(command, False, beat, response)
    assert (got.status, got.error_index, got.entries, got.bytes) == (FAULTS[response], 1, 3, 192)
    assert got.error_address == destination(1)


@pytest.mark.slow
@pytest.mark.parametrize("on_read", [True, False], ids=["read", "write"])
@pytest.mark.parametrize("first, second, told", [
    (SLVERR, 0, Status.SLVERR), (0, SLVERR, Status.SLVERR), (DECERR, SLVERR, Status.DECERR),
    (SLVERR, DECERR, Status.DECERR)])
def test_the_worst_of_two_bursts_is_told(on_read, first, second, told):
    """Row 10 of table 2, and slot 3 behind 0x6FE0 - 3 * 256, have a page's end inside."""
    bench = RowBench(TINY)
    command = Gather(1, [2], 4, destination=packed_address(1, 0xFD0 - 3 * 256))
    command.entries["row"] = (0, 1, 2, 10)
    port = bench.read if on_read else bench.write
    page = BASE + (0x1000 if on_read else 0x7000)
    for response, address in ((first, page - 16), (second, page)):
        if response:
            port.fail_range(address, 1, response)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (told, 3, 3)


@pytest.mark.parametrize("bad", [0, 1], ids=["row", "state"])
def test_an_entry_counts_with_its_row_and_its_state(bad):
    bench = RowBench(TINY)
    command = Gather(1, [0], 4, WITH_STATE, stride=64)
    bench.write.fail_beat(5 + 2 if not bad else 4 + 5)  # of entry 1: 4 beats and 1 beat
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (Status.SLVERR, 1, 3)
    assert got.bytes == 4 * 68 - (4 if bad else 64)
    assert got.error_address == (STATE + 4 if bad else DESTINATION + 64)


@pytest.mark.slow
def test_the_lowest_of_faults_and_refusals_is_told():
    # The refusal is known long before the fault of a row in front of it.
    bench = RowBench(TINY, Behaviour(latency=100))
    command = Gather(1, [0], 8, stride=64)
    command.entries["table"][5] = 15
    bench.read.fail_beat(8)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (Status.SLVERR, 2, 6)
    bench = RowBench(TINY, Behaviour(latency=100))
    command.entries["table"][1] = 15
    bench.read.fail_beat(8)
    (got,), _ = bench.run([command])
    assert (got.status, got.error_index, got.entries) == (Status.TABLE_UNKNOWN, 1, 5)


class Begun:
    """A command that is cut short: each byte of memory is as it was, or as the command wants."""

    def __init__(self, bench, command):
        self.command, self.before = command, bench.image.copy()
        self.wanted = self.before.copy()
        command.expect(self.wanted, bench.config)

    def check(self, bench):
        assert ((bench.image == self.before) | (bench.image == self.wanted)).all()


@pytest.mark.slow
@pytest.mark.parametrize("on_read", [True, False], ids=["read", "write"])
@pytest.mark.parametrize("accept", [True, False], ids=["no-answer", "no-ready"])
@pytest.mark.parametrize("silence", [80, 540], ids=["answers-late", "answers-after-restart"])
def test_a_dead_memory_stops_the_port(on_read, accept, silence):
    """A port that dies in mid-command answers TIMEOUT until a restart, and then works again; it
    stops again where the memory is still silent."""
    bench = RowBench(TINY, timeout=50)
    dut = bench.dut
    died, begun = [], Begun(bench, Gather(1, [0], 24, stride=64))

    async def drive(ctx):
        await bench.register(ctx)
        port = bench.read if on_read else bench.write
        port.silence(bench.bench.cycles + 60, bench.bench.cycles + 60 + silence, accept=accept)
        for _ in range(2):
            await bench.submit(ctx, begun.command)
            died.append(await bench.outcome(ctx))
            assert ctx.get(dut.read_stopped) == on_read
            assert ctx.get(dut.write_stopped) == (not on_read)
        await pulse(ctx, dut.restart)
        await ctx.tick().until(dut.idle)
        assert ctx.get(dut.read_stopped | dut.write_stopped) == (silence > 500)
        if silence > 500:
            assert bench.bench.cycles < 60 + silence
            await bench.submit(ctx, begun.command)
            died.append(await bench.outcome(ctx))
            await ctx.tick().repeat(silence)
            await pulse(ctx, dut.restart)
            await ctx.tick().until(dut.idle)
        begun.check(bench)
        assert not ctx.get(dut.read_stopped | dut.write_stopped)
        bench.expected = bench.image.copy()
        await bench.submit(ctx, Gather(2, [0, 1, 2], 24))
        bench.got = await bench.outcome(ctx)
    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    first, *others = died
    assert len(others) == 1 + (silence > 500)
    assert {each.status for each in died} == {Status.TIMEOUT}
    assert all(each.error_index == each.entries == each.bytes == 0 for each in others)
    assert 0 < first.entries < 24 and first.error_index == first.entries
    row = int(Gather(1, [0], 24).entries["row"][first.error_index])
    assert first.error_address == (packed_address(0, row * 80) if on_read
                                   else DESTINATION + 64 * first.error_index)
    want = Gather(2, [0, 1, 2], 24).expect(bench.expected, TINY)
    assert bench.got.status == want.status == Status.OK
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.slow
@pytest.mark.parametrize("after", [
    61, *(pytest.param(n, marks=LONG) for n in (1, 20, 30, 50, 62, 90, 150))])
def test_restart_in_flight(after):
    """A restart at any time leaves a mover that carries out the next command, which waits."""
    rough = dict(ROUGH, latency=20)
    bench = RowBench(TINY, Behaviour(seed=after, **rough), Behaviour(seed=after, **rough))
    dut = bench.dut
    begun = Begun(bench, Gather(1, [0], 40, WITH_STATE))

    async def drive(ctx):
        await bench.register(ctx)
        await bench.submit(ctx, begun.command)
        await ctx.tick().repeat(after)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert not ctx.get(dut.idle)
        await bench.submit(ctx, Gather(2, [0, 1, 2], 24))
        assert bench.read.idle and bench.write.idle
        begun.check(bench)
        bench.expected = bench.image.copy()
        bench.got = await bench.outcome(ctx)

    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    want = Gather(2, [0, 1, 2], 24).expect(bench.expected, TINY)
    assert (bench.got.status, bench.got.entries) == (want.status, want.entries)
    np.testing.assert_array_equal(bench.image, bench.expected)


def test_a_mover_is_not_idle_while_it_is_cleared():
    """The card would become ready, and the next command would be cleared as well."""
    bench = RowBench(TINY)

    async def drive(ctx):
        dut = bench.dut
        await bench.register(ctx)
        assert ctx.get(dut.idle)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        for _ in range(MIN_CYCLES):
            assert not ctx.get(dut.idle)
            await ctx.tick()
        await ctx.tick().until(dut.idle)
    bench.bench.process("commands", drive)
    bench.bench.run(1000)
