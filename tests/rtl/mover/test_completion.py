"""The outcome of a move from what several lanes and ports tell."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.mover.completion import MoveCompletion

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
FAULTS = {1: Status.SLVERR, 2: Status.DECERR, 3: Status.TIMEOUT}


def drawn(rng, ports, count):
    """What becomes of each entry: refused by its lane, or one or two copies at a port."""
    lanes, port_events = [[] for _ in range(ports)], [[] for _ in range(ports)]
    order = np.argsort(np.arange(count) + rng.integers(0, 12, count))  # ports lag behind unalike
    error, entries, moved = None, 0, 0
    faults = {}
    for index in range(count):
        if rng.random() < 0.05:
            lanes[index % ports].append({
                "index": index, "status": Status.REGION, "address": {"offset": 4096 * index}})
            faults[index] = Status.REGION, 4096 * index
            continue
        copies = 1 + int(rng.random() < 0.3)
        faults[index] = [int(rng.integers(1, 4)) if rng.random() < 0.04 else 0
                         for _ in range(copies)]
    for index in order.tolist():
        if isinstance(faults[index], tuple):
            continue
        port = int(rng.integers(ports))
        for number, fault in enumerate(faults[index]):
            written = int(rng.random() < 0.5)
            port_events[port].append({
                "valid": 1, "fault": fault, "written": written,
                "info": {"index": index, "bytes": 64,
                             "source": {"offset": 1000 * index + number},
                             "destination": {"offset": 2000 * index + number},
                             "last": int(number == len(faults[index]) - 1)}})
            moved += 0 if fault else 64
            if fault and (error is None or index < error[0]):
                error = index, FAULTS[fault], (2000 if written else 1000) * index + number
        entries += not any(faults[index])
    for index, found in faults.items():
        if isinstance(found, tuple) and (error is None or index < error[0]):
            error = index, *found
    return lanes, port_events, (error or (0, Status.OK, 0)), entries, moved


@pytest.mark.parametrize("ports", [1, 2, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("busy", [1.0, 0.4])
def test_sums_and_the_error_with_the_lowest_index(ports, busy):
    rng = np.random.default_rng(ports)
    dut = built(MoveCompletion, replace(TINY, row_ports=ports))
    bench = StreamBench(dut)
    rounds = [(count, drawn(rng, ports, count)) for count in (1, 100, 7, 60, 3)]

    async def drive(ctx):
        for count, (lanes, events, error, entries, moved) in rounds:
            ctx.set(dut.count, count)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            lanes, events = [list(lane) for lane in lanes], [list(port) for port in events]
            while any(lanes) or any(events):
                assert not ctx.get(dut.outcome.valid)
                for number in range(ports):
                    refuses = bool(lanes[number]) and rng.random() < busy
                    ctx.set(dut.refused_valid[number], refuses)
                    if refuses:
                        ctx.set(dut.refused[number], lanes[number].pop(0))
                    ends = bool(events[number]) and rng.random() < busy
                    ctx.set(dut.finished[number],
                            events[number].pop(0) if ends else {"valid": 0})
                await ctx.tick()
            for number in range(ports):
                ctx.set(dut.refused_valid[number], 0)
                ctx.set(dut.finished[number].valid, 0)
            waited = 0
            while not ctx.get(dut.outcome.valid):
                await ctx.tick()
                waited += 1
                assert waited <= 6 + 2 * ports
            await ctx.tick().repeat(2)
            assert ctx.get(dut.outcome.valid), "it waits until it is accepted"
            got = ctx.get(dut.outcome.p)
            assert (got.error_index, got.status, got.error_address) == tuple(error)
            assert (got.entries, got.bytes) == (entries, moved)
            ctx.set(dut.outcome.ready, 1)
            await ctx.tick()
            ctx.set(dut.outcome.ready, 0)
            assert not ctx.get(dut.outcome.valid)

    bench.process("commands", drive)
    bench.run(2000)
