"""SamplePartition on a bitmap in Python: lists and counts of each batch, every mark cleared."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.splitter.sample_partition import SamplePartition

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench, pulse
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), batch_samples=128)
ONE = dataclasses.replace(TINY, name="one-lane", lookup_lanes=1, lane_banks=1)
SIZES = (1, 128, 5, 17, 64, 2, 33, 96)


class PartitionBench(StreamBench):
    """A partition and its bitmap; batches are marked as soon as their half is free.

    Attributes
    ----------
    marks : bool[2, batch_samples]
        The bitmap: two halves.
    over : int
        Batches that the partition has read.
    """

    def __init__(self, config, batches, pauses):
        super().__init__(built(SamplePartition, config))
        self.config, self.marks, self.over = config, np.zeros((2, config.batch_samples), bool), 0
        self.lists = {name: [[]] for name in ("popular", "nonpopular")}
        self.source(self.dut.batches, [{"samples": len(marks)} for marks in batches])
        for name in self.lists:
            self.process(name, self.take(name, len(batches), pauses))
        self.counts = self.sink(self.dut.counted, len(batches), pauses, read=lambda p: p.popular)
        self.background(self.serve)
        self.process("marks", self.mark(batches))

    def word(self, half, word):
        lanes = self.config.lanes
        return self.marks[half, lanes * word:lanes * (word + 1)]

    async def serve(self, ctx):
        dut = self.dut
        async for _, _, read, half, word, clear, clear_half, clear_word, over in ctx.tick().sample(
                dut.read, dut.read_half, dut.read_word, dut.clear, dut.clear_half,
                dut.clear_word, dut.over):
            if clear:
                self.word(clear_half, clear_word)[:] = False
            if read:
                ctx.set(dut.read_data, sum(1 << lane for lane in np.flatnonzero(
                    self.word(half, word)).tolist()))
            self.over += over

    def mark(self, batches):
        async def process(ctx):
            for number, marks in enumerate(batches):
                while number - self.over > 1:
                    await ctx.tick()
                half = self.marks[number % 2]
                assert not half.any(), f"batch {number} finds marks of another one"
                half[:len(marks)] = marks
                await pulse(ctx, self.dut.complete)
        return process

    def take(self, name, count, pauses):
        async def process(ctx):
            out, lists, turn = getattr(self.dut, name), self.lists[name], 0
            while len(lists) <= count:
                ctx.set(out.ready, pauses[turn % len(pauses)] == 0)
                _, _, valid, ready, beat = await ctx.tick().sample(out.valid, out.ready, out.p)
                turn += 1
                if valid and ready:
                    lists[-1] += [beat.values[lane] for lane in range(self.config.lanes)
                                  if beat.present >> lane & 1]
                    if beat.last:
                        lists.append([])
            ctx.set(out.ready, 0)
        return process


@pytest.mark.parametrize("config", [TINY, ONE], ids=lambda config: config.name)
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["steady", "back-pressure"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_lists_counts_and_clears(config, pauses, share):
    rng = np.random.default_rng(4)
    batches = [rng.random(size) < share for size in SIZES]
    bench = PartitionBench(config, batches, pauses)
    bench.run(3000)
    assert bench.lists["popular"][:-1] == [np.flatnonzero(~marks).tolist() for marks in batches]
    assert bench.lists["nonpopular"][:-1] == [np.flatnonzero(marks).tolist() for marks in batches]
    assert bench.counts == [int((~marks).sum()) for marks in batches]
    assert bench.over == len(batches) and not bench.marks.any()
