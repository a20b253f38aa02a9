"""The row mover with several row ports: as with one, but for the order between ports."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR
from hotrow_rtl.mover.addressing.port_interleave import row_port
from hotrow_sim.golden.region_check import unpack_address
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.support.benches.row_bench import (
    LISTED,
    REGIONS,
    ROUGH,
    TABLES,
    TINY,
    WITH_STATE,
    Gather,
    RowBench,
    compare,
)
from tests.support.benches.stream_bench import RAGGED, STEADY

LONG = pytest.mark.long
SEVERAL = [2, pytest.param(4, marks=LONG), pytest.param(8, marks=LONG)]
WIDE = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024, bus_bytes=64,
               outstanding=16, row_bytes=256)


def with_ports(ports, config=TINY) -> Config:
    return replace(config, row_ports=ports)


def source_of(command, position):
    """Byte address of a listed row."""
    entry = command.entries[position]
    table = TABLES[int(entry["table"])]
    handle, offset = unpack_address(table.weights)
    return REGIONS[handle].base + offset + int(entry["row"]) * table.stride


@pytest.mark.slow
@pytest.mark.parametrize("ports", SEVERAL)
@pytest.mark.parametrize("base", [TINY, pytest.param(WIDE, marks=LONG)], ids=["16", "64"])
@pytest.mark.parametrize("gaps, behaviour", [
    pytest.param(STEADY, {}, marks=LONG), (RAGGED, ROUGH)], ids=["calm", "rough"])
def test_memory_equals_golden(ports, base, gaps, behaviour):
    memory = Behaviour(seed=5, **behaviour)
    bench = RowBench(with_ports(ports, base), memory, memory, gaps=gaps)
    commands = [
        Gather(1, [0, 1, 2, 3], 37),
        Gather(2, [0, 0, 1, 1, 3], 40, LISTED, destination=packed_address(1, 0x10), stride=400),
        Gather(3, [0], 1, WITH_STATE, stride=64),
        Gather(4, [1, 3], 30, LISTED | WITH_STATE, stride=48, slots=200),
        Gather(5, [2], 13, WITH_STATE, state_destination=packed_address(2, 0x14)),
    ]
    got, _ = compare(bench, commands)
    assert all(outcome.status == Status.OK for outcome in got)
    assert all(port.statistics.bursts for port in (*bench.reads, *bench.writes))


@pytest.mark.slow
@pytest.mark.parametrize("ports", SEVERAL)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=LONG) for n in range(1, 3))])
def test_refusals_equal_golden(ports, seed):
    destination = packed_address(*[(1, 0x20), (1, 0x5800), (0, 0), (1, 8)][seed % 4])
    state = packed_address(*[(2, 0xFD0), (3, 0), (2, 2), (2, 4)][seed % 4])
    memory = Behaviour(seed=seed, **ROUGH)
    got, _ = compare(RowBench(with_ports(ports), memory, memory, seed=seed), [
        Gather(seed, [0, 1, 2, 3, 5, 6], 33, LISTED, rows=66,
               entry_faults={seed + 9: FAULT_SLVERR}, slot_faults={seed + 4: FAULT_DECERR}),
        Gather(seed + 50, [0, 0, 15], 25, WITH_STATE, rows=70, state_destination=state),
        Gather(seed + 100, [0, 1, 3], 28, rows=41, destination=destination),
        Gather(seed + 150, [2, 15], 30, LISTED, slots=100),
    ])
    assert sum(outcome.status != Status.OK for outcome in got) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("ports", SEVERAL)
def test_one_entry_and_one_bus_word_more_or_less(ports):
    """Lists end anywhere in a round of lanes and in a bus word."""
    commands = [Gather(count, [0], count, (0, LISTED)[count % 2], stride=64)
                for count in (1, 2, 3, 4, 5, 7, 8, 9)]
    compare(RowBench(with_ports(ports)), commands)


@pytest.mark.slow
@pytest.mark.parametrize("ports", SEVERAL)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=LONG) for n in range(2, 4))])
def test_the_lowest_error_of_all_ports_is_told(ports, seed):
    """Bus faults on both ends and refusals, each drawn; the first of them in the list counts."""
    rng = np.random.default_rng(seed)
    config = with_ports(ports)
    slow = Behaviour(seed=seed, latency=int(rng.integers(2, 80)), jitter=50, out_of_order=True)
    bench = RowBench(config, slow, slow)
    command = Gather(seed, [0], 60, LISTED, stride=64, slots=60)
    command.entries["row"] = rng.permutation(60)
    bad = rng.choice(np.arange(12, 60), 6, replace=False)
    errors = {}
    for position in bad[:2]:
        command.entries["table"][position] = 15
        errors[int(position)] = Status.TABLE_UNKNOWN, packed_address(0, 0)
    for position in bad[2:4]:
        for port in bench.reads:
            port.fail_range(source_of(command, position) + 16, 1, SLVERR)
        errors[int(position)] = Status.SLVERR, packed_address(
            0, 80 * int(command.entries["row"][position]))
    for position in bad[4:]:
        slot = int(command.targets[position])
        for port in bench.writes:
            port.fail_range(REGIONS[1].base + 0x20 + 64 * slot, 1, DECERR)
        errors[int(position)] = Status.DECERR, packed_address(1, 0x20 + 64 * slot)
    (got,), _ = bench.run([command])
    lowest = min(errors)
    assert (got.status, got.error_index, got.error_address) == (
        errors[lowest][0], lowest, errors[lowest][1])
    assert (got.entries, got.bytes) == (54, 54 * 64)


@pytest.mark.slow
@pytest.mark.parametrize("on_read", [pytest.param(True, marks=LONG), False],
                         ids=["read", "write"])
@pytest.mark.parametrize("ports, dead", [
    (2, 1), *(pytest.param(4, dead, marks=LONG) for dead in range(4))])
def test_one_dead_port_times_out(on_read, ports, dead):
    """Rows of the other ports move; after a restart all do."""
    bench = RowBench(with_ports(ports), timeout=60)
    dut = bench.dut
    first, second = Gather(1, [0], 64, stride=64), Gather(2, [0], 64, stride=64)
    first.entries["row"] = np.arange(64)
    port_of = [row_port(bench.config, source_of(first, position)) for position in range(64)]
    first.expect(bench.image.copy(), bench.config)
    told = []

    async def drive(ctx):
        await bench.register(ctx)
        port = (bench.reads if on_read else bench.writes)[dead]
        now = bench.bench.cycles
        port.silence(now, now + 1500, accept=True)
        await bench.submit(ctx, first)
        told.append(await bench.outcome(ctx))
        assert ctx.get(dut.read_stopped) == on_read and ctx.get(dut.write_stopped) != on_read
        ctx.set(dut.timeout, 0)  # it waits for the dead port
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        await bench.submit(ctx, second)
        assert all(port.idle for port in (*bench.reads, *bench.writes))
        assert not ctx.get(dut.read_stopped | dut.write_stopped)
        told.append(await bench.outcome(ctx))

    want = bench.image.copy()
    bench.bench.process("commands", drive)
    bench.bench.run(6000)
    bench.model.check()
    second.expect(want, bench.config)
    assert told[0].status == Status.TIMEOUT
    assert told[0].error_index == port_of.index(dead)
    assert told[0].entries == sum(port != dead for port in port_of)
    assert (told[1].status, told[1].entries) == (Status.OK, 64)
    destination = slice(0x6010 + 0x20, 0x6010 + 0x20 + 64 * 64)
    np.testing.assert_array_equal(bench.image[destination], want[destination])


@pytest.mark.slow
@pytest.mark.parametrize("ports", SEVERAL)
@pytest.mark.parametrize("after", [
    45, *(pytest.param(n, marks=LONG) for n in (1, 20, 30, 38, 41, 61, 62, 70, 90, 120))])
def test_restart_in_flight(ports, after):
    """A restart at any time leaves a mover that carries out the next command, which waits."""
    memory = Behaviour(seed=after, **dict(ROUGH, latency=20))
    bench = RowBench(with_ports(ports), memory, memory)
    dut = bench.dut
    begun, following = Gather(1, [0], 60, WITH_STATE), Gather(2, [0, 1, 2], 24)
    before, wanted = bench.image.copy(), bench.image.copy()
    begun.expect(wanted, bench.config)

    async def drive(ctx):
        await bench.register(ctx)
        await bench.submit(ctx, begun)
        await ctx.tick().repeat(after)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert not ctx.get(dut.idle)
        await bench.submit(ctx, following)
        assert all(port.idle for port in (*bench.reads, *bench.writes))
        assert ((bench.image == before) | (bench.image == wanted)).all()
        bench.expected = bench.image.copy()
        bench.got = await bench.outcome(ctx)

    bench.bench.process("commands", drive)
    bench.bench.run(5000)
    bench.model.check()
    want = following.expect(bench.expected, bench.config)
    assert (bench.got.status, bench.got.entries) == (want.status, want.entries)
    np.testing.assert_array_equal(bench.image, bench.expected)


@pytest.mark.parametrize("ports", [0, 3, 16, "4"])
def test_a_number_of_ports_is_refused(ports):
    with pytest.raises(ValueError, match=f"row_ports must be 1, 2, 4 or 8, .* not {ports!r}"):
        with_ports(ports)


@pytest.mark.parametrize("ports", [1, 2, 4, 8])
@pytest.mark.parametrize("stride", [64, 80, 256, 768, 1024, 1280, 2304, 3840, 4096])
def test_every_stride_spreads_over_the_ports(ports, stride):
    rows = np.arange(100_000)
    share = np.bincount(row_port(with_ports(ports), 4096 * 37 + rows * stride), minlength=ports)
    assert share.size == ports and share.max() <= 1.02 * rows.size / ports
