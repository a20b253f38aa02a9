"""The outcome of a command whose entries fail once or several times."""

import pytest
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.mover.outcome_accumulator import OutcomeAccumulator

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

SLVERR, DECERR = 1, 2  # of a transfer's `fault`


def outcome(events):
    """`total` after events: (index, fault, last) of a transfer, or the index of a refusal."""
    dut, result = built(OutcomeAccumulator), {}
    bench = StreamBench(dut)

    async def drive(ctx):
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for event in events:
            if isinstance(event, int):
                ctx.set(dut.refused, {"status": Status.REGION, "index": event})
                ctx.set(dut.refused_valid, 1)
            else:
                index, fault, last = event
                ctx.set(dut.finished, {"valid": 1, "fault": fault, "info": {
                    "index": index, "last": last, "bytes": 16}})
            await ctx.tick()
            ctx.set(dut.refused_valid, 0)
            ctx.set(dut.finished.valid, 0)
        await ctx.tick().repeat(3)
        total = ctx.get(dut.total)
        result.update(status=Status(total.status), index=total.error_index,
                      entries=total.entries, bytes=total.bytes)
    bench.process("events", drive)
    bench.run(200)
    return result


@pytest.mark.parametrize("events, status, index, entries, moved", [
    ([(0, 0, 1), (1, 0, 0), (1, 0, 1)], Status.OK, 0, 2, 3),
    ([(0, 0, 1), (1, SLVERR, 0), (1, DECERR, 1)], Status.SLVERR, 1, 1, 1),
    ([(0, 0, 1), (1, DECERR, 0), (1, SLVERR, 1)], Status.DECERR, 1, 1, 1),
    ([(2, SLVERR, 1), (1, DECERR, 1)], Status.DECERR, 1, 0, 0),
    ([(1, SLVERR, 1), (2, DECERR, 1)], Status.SLVERR, 1, 0, 0),
    ([5, (1, DECERR, 1), (7, SLVERR, 1)], Status.DECERR, 1, 0, 0),
    ([5, (7, SLVERR, 1)], Status.REGION, 5, 0, 0),
    ([(3, DECERR, 1), 5], Status.DECERR, 3, 0, 0),
    ([(0, DECERR, 1), (0, SLVERR, 1)], Status.DECERR, 0, 0, 0)])
def test_the_first_error_of_the_lowest_entry(events, status, index, entries, moved):
    assert outcome(events) == {"status": status, "index": index, "entries": entries,
                               "bytes": 16 * moved}
