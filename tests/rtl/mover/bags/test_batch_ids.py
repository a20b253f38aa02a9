"""The ids of a batch: their lanes, and the columns of their bags."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.interfaces.records import FAULT_SLVERR
from hotrow_rtl.mover.bags.batch_ids import BagColumn, BatchIds
from hotrow_rtl.mover.bags.unit_requests import UnitRequests
from hotrow_sim.memory import Behaviour

from tests.rtl.mover.bags.test_bags import CONFIGS
from tests.support.benches.bag_bench import LISTED, TINY, WEIGHTED, PoolBatch
from tests.support.benches.row_bench import ROUGH, TABLES, Gather, RowBench, compare
from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CARD = replace(TINY, arithmetic=2)


@pytest.mark.parametrize("lanes, count, gaps", [
    (4, 17, RAGGED), *(pytest.param(*case, marks=pytest.mark.long) for case in (
        (1, 5, RAGGED), (2, 1, STEADY), (4, 18, STEADY)))])
def test_ids_come_in_the_lanes_of_their_positions(lanes, count, gaps):
    dut = built(BatchIds, CARD, lanes)
    bench, ids = StreamBench(dut), np.random.default_rng(count).integers(0, 1 << 32, count).tolist()
    padded = [*ids, 0xBAD] if count % 2 else ids
    entries = [{"row": low, "table": high}
               for low, high in zip(padded[::2], padded[1::2], strict=True)]
    elements = [{"value": entry, "fault": number % 3, "last": number == len(entries) - 1}
                for number, entry in enumerate(entries)]

    async def setting(ctx):
        ctx.set(dut.batch, {"valid": 1, "odd": count % 2, "first_table": 7})

    bench.process("setting", setting)
    for lane, given in enumerate(dut.entries):
        bench.source(given, elements[lane::lanes], gaps)
    found = [bench.sink(row, len(ids[lane::lanes]), gaps[lane:] + gaps[:lane], f"lane {lane}",
                        read=lambda p: (p.value.row, p.value.table, p.fault, p.last))
             for lane, row in enumerate(dut.rows)]
    bench.run(limit=400)
    faults = np.arange(count) // 2 % 3
    wanted = [(row, 7, fault, at == count - 1)
              for at, (row, fault) in enumerate(zip(ids, faults.tolist(), strict=True))]
    assert found == [wanted[lane::lanes] for lane in range(lanes)]


@pytest.mark.parametrize("units, unit", [(1, 0), (2, 1), (8, 5)])
def test_every_bag_has_its_column(units, unit):
    config = replace(CARD, row_ports=units, bag_units=units, counter_sets=256, directory_sets=256,
                     miss_entries=1024, bus_bytes=64)
    dut = built(BagColumn, config)
    bench, found, wanted = StreamBench(dut), [], []

    async def drive(ctx):
        if units > 1:
            ctx.set(dut.unit, unit)
        for samples, columns in ((1, 9), (3, 5), (8, 3), (20, 2), (2, 12)):
            ctx.set(dut.batch, {"valid": 1, "samples": samples})
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.tick().until(dut.ready)
            ctx.set(dut.next, 1)
            for bag in range(unit, samples * columns, units):
                found.append(ctx.get(dut.column))
                wanted.append(bag // samples)
                await ctx.tick()
            ctx.set(dut.next, 0)

    bench.process("bags", drive)
    bench.run(limit=600)
    assert found == wanted
    assert len(found) > 5


def test_a_unit_requests_rows_of_the_column_of_their_bag():
    """Unit 1 of two, which has bags 1, 3 and 5 of 3 samples."""
    config, lengths = replace(CARD, row_ports=2, bag_units=2), [2, 0, 3]
    dut = built(UnitRequests, config)
    bench, count = StreamBench(dut), sum(lengths)

    async def drive(ctx):
        ctx.set(dut.unit, 1)
        ctx.set(dut.batch, {"valid": 1, "samples": 3, "first_table": 4})
        for signal in (dut.start, dut.begin):
            ctx.set(signal, 1)
            await ctx.tick()
            ctx.set(signal, 0)

    bench.process("start", drive)
    ends = np.cumsum(lengths).tolist()
    bench.source(dut.bags, [{"length": length, "position": end - length}
                            for length, end in zip(lengths, ends, strict=True)], (6,))
    for lane, rows in enumerate(dut.summands):
        bench.source(rows, [{"entry": {"row": row, "table": 4}}
                            for row in range(count)[lane::2]], (6,))
    found = bench.sink(dut.requests, 1 + count + lengths.count(0), name="requests",
                       read=lambda p: (p.table, p.row))
    bench.sink(dut.infos, 1 + count + lengths.count(0), name="infos", read=lambda p: p.index)
    bench.run(limit=300)
    assert found == [(0, 0), (4, 0), (4, 1), (0, 0), (5, 2), (5, 3), (5, 4)]


@pytest.mark.long
@pytest.mark.parametrize("name", ["16, 2 units", "16, 2 ports", "64, 4 ports"])
def test_batches_equal_golden(monkeypatch, name):
    """Empty bags, bad ids, wrong lengths, faults, and other commands between batches."""
    for number in (14, 15):
        monkeypatch.setitem(TABLES, number, TABLES[0])
    port = Behaviour(seed=5, **ROUGH)
    outcomes, _ = compare(RowBench(CONFIGS[name], port, port, gaps=RAGGED), [
        PoolBatch(1, [14, 15], [1, 0, 5, 2, 3, 0], samples=3, stride=64),
        PoolBatch(2, [14, 15], [0, 0, 0, 2], LISTED | WEIGHTED, samples=2, stride=64),
        Gather(4, [0, 1], 5),
        PoolBatch(3, [0, 1], [3, 2, 1, 1], samples=2),
        PoolBatch(4, [14, 15], [1, 2], count=5),
        PoolBatch(5, [14, 15], [9, 1], count=5),
        PoolBatch(6, [14, 15], [2, 1], rows=90),
        PoolBatch(7, [14, 15], [0, 4], faults={"rows": {0: FAULT_SLVERR}}),
        PoolBatch(8, [14, 15], [4, 4], faults={"lengths": {0: FAULT_SLVERR}}),
    ])
    assert [(each.status, each.error_index) for each in outcomes] == [
        (Status.OK, 0), (Status.OK, 0), (Status.OK, 0), (Status.ROW_SHAPE, 5),
        (Status.LOOKUPS, 3), (Status.LOOKUPS, 9), (Status.ROW_OUT_OF_RANGE, 1),
        (Status.SLVERR, 0), (Status.SLVERR, 0)]
