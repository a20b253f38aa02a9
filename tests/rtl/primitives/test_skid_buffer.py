"""SkidBuffer and SingleEntryFifo: order, rate, payloads with fields, the stall of a rigid one."""

import pytest
from amaranth.lib import data
from hotrow_rtl.primitives.single_entry_fifo import SingleEntryFifo
from hotrow_rtl.primitives.skid_buffer import SkidBuffer

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

PAIR = data.StructLayout({"first": 5, "second": data.ArrayLayout(3, 2)})


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, (0, 5, 9))],
                         ids=["steady", "gaps", "back-pressure", "both"])
@pytest.mark.parametrize("buffer, every", [
    pytest.param(lambda: SkidBuffer(PAIR), 1, id=""),
    pytest.param(lambda: SkidBuffer(PAIR, rigid=True), 1, id="rigid"),
    pytest.param(lambda: SingleEntryFifo(PAIR), 2, id="single-entry")])
def test_order_and_rate(gaps, pauses, buffer, every):
    buffer = buffer()
    sent = [{"first": i % 32, "second": [i % 8, i * 3 % 8]} for i in range(60)]
    bench = StreamBench(buffer)
    bench.source(buffer.i, sent, gaps)
    received = bench.sink(buffer.o, len(sent), pauses,
                          read=lambda pair: {"first": pair.first, "second": list(pair.second)})
    cycles = bench.run(1000)
    assert received == sent
    if gaps is STEADY and pauses is STEADY:
        assert cycles <= every * len(sent) + buffer.latency + 1


@pytest.mark.parametrize("rigid", [False, True], ids=["", "rigid"])
def test_a_stall_without_a_payload_stops_only_a_rigid_buffer(rigid):
    buffer = built(SkidBuffer, 8, rigid=rigid)
    bench = StreamBench(buffer)

    async def drive(ctx):
        ctx.set(buffer.i.p, 7)
        ctx.set(buffer.i.valid, 1)
        await ctx.tick()
        ctx.set(buffer.i.valid, 0)
        assert ctx.get(buffer.o.valid) != rigid
        assert ctx.get(buffer.i.ready) != rigid
        ctx.set(buffer.o.ready, 1)
        if rigid:
            await ctx.tick()
        assert ctx.get(buffer.o.valid) and ctx.get(buffer.o.p) == 7
    bench.process("drive", drive)
    bench.run(10)
