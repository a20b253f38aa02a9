"""EntryEmitter: when its list has ended."""

from hotrow_rtl.config import preset
from hotrow_rtl.lookup.counters.entry_emitter import EntryEmitter

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built


def test_a_list_ends_when_its_last_element_is_accepted():
    """Of no entries, it is one absent element, for which the receiver is not ready at first."""
    bench = StreamBench(dut := built(EntryEmitter, preset("tiny")))

    async def drive(ctx):
        for waits in (0, 1, 5):
            ctx.set(dut.harvested.ready, 0)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            while not ctx.get(dut.harvested.valid):
                await ctx.tick()
            assert ctx.get(dut.harvested.p.last)
            for _ in range(waits):
                assert not ctx.get(dut.done)
                await ctx.tick()
            ctx.set(dut.harvested.ready, 1)
            assert ctx.get(dut.done)
            await ctx.tick()
            assert not ctx.get(dut.done) and not ctx.get(dut.harvested.valid)
    bench.process("drive", drive)
    bench.run(200)
