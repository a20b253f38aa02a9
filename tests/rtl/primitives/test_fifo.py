"""RamFifo: order, capacity, clearing, latency and rate."""

from gc import collect

import pytest
from hotrow_rtl.primitives.fifo import RamFifo

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built


@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, (0, 5, 9))],
                         ids=["steady", "gaps", "back-pressure", "both"])
@pytest.mark.parametrize("depth", [2, 8])
def test_first_in_first_out(depth, gaps, pauses):
    fifo, sent = RamFifo(16, depth), [i * 257 for i in range(60)]
    bench = StreamBench(fifo)
    bench.source(fifo.i, sent, gaps)
    taken = bench.sink(fifo.o, len(sent), pauses)
    cycles = bench.run(1000)
    assert taken == sent
    if gaps is STEADY and pauses is STEADY and depth > 2:
        assert cycles <= len(sent) + RamFifo.latency + 1


def test_capacity_and_level():
    fifo = built(RamFifo, 8, 4)
    bench, levels = StreamBench(fifo), []
    bench.source(fifo.i, range(5))

    async def watch(ctx):
        for _ in range(9):
            levels.append(ctx.get(fifo.level))
            await ctx.tick()
        assert ctx.get(fifo.i.ready) == 0, "four rows and the output register are full"
    bench.process("watch", watch)
    bench.run(20)
    assert levels == [0, 1, 2, 3, 4, 5, 5, 5, 5]


def test_clear_drops_all_payloads():
    fifo = built(RamFifo, 8, 4)
    bench = StreamBench(fifo)

    async def drive(ctx):
        ctx.set(fifo.i.valid, 1)
        await ctx.tick().repeat(4)
        ctx.set(fifo.clear, 1)  # in the cycle of a push
        await ctx.tick()
        ctx.set(fifo.clear, 0)
        ctx.set(fifo.i.p, 7)
        assert ctx.get(fifo.level) == 0 and not ctx.get(fifo.o.valid)
        await ctx.tick()
        ctx.set(fifo.i.valid, 0)
        assert await ctx.tick().sample(fifo.o.p).until(fifo.o.valid) == (7,)
        assert ctx.get(fifo.level) == 1
    bench.process("drive", drive)
    bench.run(30)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("depth", [0, 1, 6])
def test_illegal_depths_are_refused(depth):
    with pytest.raises(ValueError, match="depth must be a power of two of at least 2, not"):
        RamFifo(8, depth)
    collect()  # the component's warning is filtered only inside this test
