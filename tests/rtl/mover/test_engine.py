from dataclasses import replace

import pytest
from hotrow_rtl.config import PRESETS
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from hotrow_rtl.memory.read_port import BLOCK_RAM_ROWS, SHALLOW_BEATS, DmaReadPort
from hotrow_rtl.top import shallow_lists
from hotrow_sim.cycles.mover import move_cycles
from hotrow_sim.golden.region_check import Table
from hotrow_sim.memory import Behaviour, dram_timing

from tests.support.benches.row_bench import (
    LISTED,
    ROUGH,
    TABLES,
    TINY,
    WITH_STATE,
    Gather,
    RowBench,
    Scatter,
    compare,
)
from tests.support.benches.stream_bench import RAGGED, STEADY

ROOMY = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024)  # for any bus
BUSES = {8: replace(TINY, bus_bytes=8, burst_beats=8),
         16: TINY, 32: replace(ROOMY, bus_bytes=32, outstanding=1),
         64: replace(ROOMY, bus_bytes=64, outstanding=16, row_bytes=256)}


SLOW, LONG = pytest.mark.slow, pytest.mark.long


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes", [
    pytest.param(8, marks=LONG), 16, pytest.param(32, marks=LONG), 64])
@pytest.mark.parametrize("gaps, behaviour", [
    pytest.param(STEADY, {}, id="calm", marks=LONG), pytest.param(RAGGED, ROUGH, id="rough")])
def test_memory_equals_golden(bus_bytes, gaps, behaviour):
    port = Behaviour(seed=5, **behaviour)
    bench = RowBench(BUSES[bus_bytes], port, port, gaps=gaps)
    got, _ = compare(bench, [
        Gather(1, [0, 1, 2, 3], 8),
        Gather(2, [0, 0, 1, 1, 3], 20, LISTED, destination=packed_address(1, 0x10), stride=400),
        Gather(3, [0], 10, WITH_STATE, stride=64),
        Gather(4, [1, 3], 20, LISTED | WITH_STATE, stride=48, slots=200),
        Gather(5, [2], 6, WITH_STATE, state_destination=packed_address(2, 0x14)),
    ])
    assert all(outcome.status == Status.OK for outcome in got)


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes", [
    pytest.param(8, marks=LONG), pytest.param(16, marks=pytest.mark.slow),
    pytest.param(32, marks=LONG), 64])
@pytest.mark.parametrize("gaps, behaviour", [
    pytest.param(STEADY, {}, id="calm", marks=LONG), pytest.param(RAGGED, ROUGH, id="rough")])
def test_scattered_memory_equals_golden(bus_bytes, gaps, behaviour):
    port = Behaviour(seed=6, **behaviour)
    bench = RowBench(BUSES[bus_bytes], port, port, gaps=gaps)
    got, _ = compare(bench, [
        Scatter(1, [8, 9, 10, 11], 8),
        Scatter(2, [8, 8, 10, 11], 20, LISTED, destination=packed_address(0, 0x10), stride=400),
        Gather(3, [8, 11], 12, LISTED, stride=80),
        Scatter(4, [8], 10, WITH_STATE, stride=64),
        Scatter(5, [8, 11], 20, LISTED | WITH_STATE, stride=64, slots=100),
        Scatter(6, [9], 6, WITH_STATE, state_destination=packed_address(3, 0x14)),
    ])
    assert all(outcome.status == Status.OK for outcome in got)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=LONG) for n in range(1, 5))])
def test_scatter_refusals_equal_golden(seed):
    slots = packed_address(*[(1, 0x20), (0, 0x4F00), (0, 8), (7, 0), (1, (1 << 48) - 2048)][seed])
    state = packed_address(*[(3, 0xFD0), (2, 2), (3, 4), (2, (1 << 48) - 64), (9, 0)][seed])
    got, _ = compare(RowBench(TINY, seed=seed), [
        Scatter(seed, [0, 8, 9, 11, 12], 20, WITH_STATE | LISTED, rows=43,
                state_destination=state, entry_faults={seed + 9: FAULT_SLVERR},
                slot_faults={seed + 4: FAULT_TIMEOUT}),
        Scatter(seed + 50, [13, 10], 16, WITH_STATE),
        Scatter(seed + 100, [8, 11, 12], 20, rows=30, destination=slots),
        Scatter(seed + 200, [*TABLES, 15, 16, 1 << 31], 16, rows=1 << 31, stride=64),
    ])
    assert sum(outcome.status != Status.OK for outcome in got) >= 3


def test_every_refusal_of_a_scatter():
    commands = [
        Scatter(1, [0], 4),
        Scatter(2, [13], 4, WITH_STATE),
        Scatter(3, [12], 4),
        Scatter(4, [8], 4, destination=packed_address(0, 0x5000 - 0x140)),
        Scatter(5, [8], 4, destination=packed_address(0, 8)),
        Scatter(6, [0], 4, destination=packed_address(0, 8)),
        Scatter(7, [8], 4, WITH_STATE, state_destination=packed_address(3, 2)),
        Scatter(8, [9], 4, stride=240),
        Scatter(9, [13], 4),
    ]
    commands[2].entries["row"][:] = (3, 24, 23, 25)
    got, _ = compare(RowBench(TINY), commands)
    source = [packed_address(0, 0x50C0), packed_address(0, 8), packed_address(0, 8)]
    assert [outcome.status for outcome in got] == [
        Status.READ_ONLY, Status.READ_ONLY, Status.REGION, Status.REGION, Status.MISALIGNED,
        Status.MISALIGNED, Status.MISALIGNED, Status.STRIDE, Status.OK]
    assert [outcome.error_address for outcome in got[3:6]] == source
    assert (got[2].error_index, got[2].error_address) == (1, packed_address(1, 0x5A00 + 24 * 64))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=LONG) for n in range(1, 6))])
def test_refusals_equal_golden(seed):
    destination = packed_address(*[(1, 0x20), (1, 0x5800), (0, 0), (1, 8), (7, 0),
                                   (1, (1 << 48) - 2048)][seed])
    state = packed_address(*[(2, 0xFD0), (3, 0), (2, 2), (2, (1 << 48) - 64), (9, 0), (2, 4)][seed])
    commands = [
        Gather(seed, [0, 1, 2, 3, 5, 6], 20, WITH_STATE | LISTED, rows=66, state_destination=state,
               entry_faults={seed + 9: FAULT_SLVERR}, slot_faults={seed + 4: FAULT_TIMEOUT}),
        Gather(seed + 50, [0, 0, 0, 2], 16, WITH_STATE, rows=16, state_destination=state),
        Gather(seed + 100, [0, 1, 3], 20, rows=16, destination=destination),
        Gather(seed + 200, [*TABLES, 15, 16, 1 << 31], 16, rows=1 << 31, stride=64,
               slot_faults={0: FAULT_DECERR}),
    ]
    got, _ = compare(RowBench(TINY, seed=seed), commands)
    assert sum(outcome.status != Status.OK for outcome in got) >= 3


@pytest.mark.slow
def test_every_status_is_told_with_its_lowest_index():
    commands = [
        Gather(1, [0], 8, entry_faults={6: FAULT_DECERR}),
        Gather(2, [0], 8, LISTED, slot_faults={4: FAULT_SLVERR}),
        Gather(3, [15], 3),
        Gather(4, [16], 3),
        Gather(5, [2], 4, rows=1),
        Gather(6, [2], 4, stride=240),
        Gather(7, [4], 4, stride=2048, rows=1),
        Gather(8, [5], 4),
        Gather(9, [0], 4, destination=packed_address(1, 0x6000 - 0x140)),
        Gather(10, [0], 4, destination=packed_address(3, 0)),
        Gather(11, [0], 4, destination=packed_address(1, 8)),
        Gather(12, [6], 4, WITH_STATE),
        Gather(13, [0], 4, WITH_STATE, state_destination=packed_address(3, 0)),
        Gather(14, [0], 4, WITH_STATE, state_destination=packed_address(2, 2)),
        Gather(15, [0], 4, WITH_STATE, state_destination=packed_address(2, 0x1000 - 8)),
        Gather(16, [0], 4, WITH_STATE, destination=packed_address(3, 0)),
        Gather(17, [7], 4),
        Gather(18, [3], 4, WITH_STATE, state_destination=packed_address(9, 0)),
    ]
    commands[4].entries["row"][2] = 16
    commands[7].entries["row"][:] = (0, 1 << 31, 1, (1 << 31) + 1)
    commands[16].entries["row"] = 3
    got, _ = compare(RowBench(TINY), commands)
    assert [outcome.status for outcome in got] == [
        Status.DECERR, Status.SLVERR, Status.TABLE_UNKNOWN, Status.TABLE_UNKNOWN,
        Status.ROW_OUT_OF_RANGE, Status.STRIDE, Status.STRIDE, Status.REGION, Status.REGION,
        Status.READ_ONLY, Status.MISALIGNED, Status.REGION, Status.READ_ONLY, Status.MISALIGNED,
        Status.REGION, Status.READ_ONLY, Status.REGION, Status.OK]
    assert [outcome.error_index for outcome in got][:9] == [6, 4, 0, 0, 2, 0, 0, 1, 2]


@pytest.mark.slow
def test_the_last_of_equal_destinations_wins():
    gather, scatter = Gather(1, [0], 24, LISTED, stride=64), Scatter(2, [8], 24, stride=64, rows=2)
    gather.targets[:] = 3
    compare(RowBench(TINY, Behaviour(seed=3, **ROUGH), Behaviour(seed=4, **ROUGH)),
            [gather, scatter])


@pytest.mark.slow
def test_rows_in_flight_fill_the_buffer():
    """Sixteen reads of 64 or 4 words find room for four long ones; what is left is too short."""
    config = replace(TINY, outstanding=16, row_bytes=1024)
    command = Gather(1, [0, 4], 12, rows=2, stride=1024)
    command.entries["table"] = [4, 4, 0] * 4
    compare(RowBench(config, write=Behaviour(stall_data=0.7)), [command])


@pytest.mark.parametrize("config", [
    pytest.param(config, id=f"{width}", marks={16: (), 64: SLOW}.get(width, LONG))
    for width, config in BUSES.items()])
def test_pages_are_not_crossed(config):
    # Row 10 of table 2 and slot 3 begin 0x60 and 0x10 bytes before a page; the memory model
    # refuses bursts that cross one.
    command = Gather(1, [2], 16, destination=packed_address(1, 0xFE0 - 3 * 256))
    command.entries["row"] = range(16)
    bench = RowBench(config)
    compare(bench, [command])
    assert bench.write.statistics.bursts == bench.read.statistics.bursts == 17


@pytest.mark.slow
def test_scattered_pages_are_not_crossed():
    """Row 2 of table 9 and slot 3 have a page's end inside."""
    command = Scatter(1, [9], 16, destination=packed_address(1, 0xFE0 - 3 * 256))
    command.entries["row"] = range(16)
    bench = RowBench(TINY)
    compare(bench, [command])
    assert bench.write.statistics.bursts == bench.read.statistics.bursts == 17


def aligned_rows(config, count, row_bytes, stride, read_latency, write_latency, flags=0):
    """Gather rows that lie alike in source and destination and cross no page; bench, cycles."""
    bench = RowBench(config, Behaviour(latency=read_latency), Behaviour(latency=write_latency))
    command = Gather(1, [0], count, LISTED | flags, stride=stride,
                     destination=packed_address(1, 0xFF0))  # byte address: a page's start
    command.targets %= 4096 // stride
    table = Table(63, packed_address(0, 0xBF0), row_bytes, stride, packed_address(3, 0), 4)
    return bench, command, table


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes, outstanding, row_bytes, reads, writes", [
    (16, 16, 64, 64, 64), pytest.param(64, 16, 64, 64, 20, marks=SLOW), *(
        pytest.param(*each, marks=LONG) for each in (
            (16, 4, 64, 1, 1), (32, 8, 64, 20, 100), (16, 4, 256, 20, 5), (16, 1, 16, 10, 40),
            (64, 32, 1024, 100, 100)))])
def test_cycles_follow_the_model(monkeypatch, bus_bytes, outstanding, row_bytes, reads, writes):
    config = replace(ROOMY, bus_bytes=bus_bytes, outstanding=outstanding, row_bytes=1024)
    bench, command, table = aligned_rows(config, 40, row_bytes, row_bytes, reads, writes)
    monkeypatch.setitem(TABLES, 0, table)
    command.entries["row"] %= 4096 // row_bytes
    _, cycles = compare(bench, [command])
    words = [max(1, row_bytes // bus_bytes)] * 40
    model = move_cycles(config, words, reads, writes, first_word=1)
    assert abs(model - cycles) <= 0.01 * cycles, f"model {model}, hardware {cycles}"


@pytest.mark.parametrize("bus_bytes, outstanding, latency, row_bytes, count", [
    pytest.param(16, 32, 64, 64, 150, marks=SLOW), pytest.param(64, 128, 64, 64, 150, marks=LONG),
    pytest.param(64, 1024, 512, 64, 700, marks=LONG),
    pytest.param(64, 1024, 512, 128, 800, marks=LONG),
    pytest.param(64, 1024, 512, 512, 200, marks=LONG)])
def test_one_bus_word_per_cycle_behind_latency(
        monkeypatch, bus_bytes, outstanding, latency, row_bytes, count):
    """Neither data channel idles once it has begun."""
    config = replace(ROOMY, bus_bytes=bus_bytes, outstanding=outstanding)
    bench, command, table = aligned_rows(config, count, row_bytes, row_bytes, latency, latency)
    monkeypatch.setitem(TABLES, 0, table)
    command.entries["row"] %= 4096 // row_bytes
    compare(bench, [command])
    for port in (bench.read.statistics, bench.write.statistics):
        assert port.beats == count * row_bytes // bus_bytes
    read, write = bench.read.statistics, bench.write.statistics
    assert read.last_beat - read.first_request == latency + read.beats - 1
    assert write.last_beat - write.first_request <= write.beats + 1


@pytest.mark.parametrize("preset, ports, latency", [
    ("ecp5", 1, 200), ("alveo-u55c", 1, 512), ("alveo-u55c", 4, 512)])
def test_lists_come_as_fast_as_rows(preset, ports, latency):
    """By the list port's formula: 64-byte rows over all ports, each with a target."""
    config = replace(PRESETS[preset], row_ports=ports)
    rows_per_cycle = ports * config.bus_bytes / 64
    for name, element_bytes in (("rows", 8), ("targets", 4)):
        shallow = shallow_lists(config).get(name)
        depth, burst = (shallow, SHALLOW_BEATS) if shallow else (
            BLOCK_RAM_ROWS, config.burst_beats)
        words = depth / (latency + DmaReadPort.turnaround + burst)
        assert words >= rows_per_cycle * element_bytes / config.bus_bytes


@pytest.mark.parametrize("memory", [
    pytest.param("ddr3", marks=SLOW), pytest.param("hbm", marks=LONG)])
def test_memory_equals_golden_behind_dram(memory):
    """Whatever banks and channels do to the times."""
    dram = dram_timing(memory, 100, TINY.bus_bytes)
    bench = RowBench(TINY, Behaviour(seed=1, **ROUGH), Behaviour(seed=2, **ROUGH), dram=dram)
    got, _ = compare(bench, [
        Gather(1, [0, 1, 2, 3], 8, LISTED, slots=40),
        Gather(2, [1, 3], 20, LISTED | WITH_STATE, stride=48, slots=200)])
    assert all(outcome.status == Status.OK for outcome in got)
