import random

import pytest
from hotrow_rtl.lookup.combiner.combiner import KeyComparator

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

WIDTH = 9


@pytest.mark.parametrize("lanes, beats", [(4, 2), (2, 5)])
def test_matches(lanes, beats):
    """Keys that differ in one bit, whichever, do not match; a stalled beat keeps its place."""
    draw, dut = random.Random(1), built(KeyComparator, WIDTH, lanes, beats)
    bench, window = StreamBench(dut), []  # keys of the beats inside, the newest first

    def keys(base):
        return [base ^ draw.choice([0, 0, 1 << draw.randrange(WIDTH), draw.getrandbits(WIDTH)])
                for _ in range(lanes)]

    def packed(values, width):
        return sum(value << width * number for number, value in enumerate(values))

    async def check(ctx):
        base = draw.getrandbits(WIDTH)
        for turn in range(150):
            beat, step = keys(base), draw.random() < 0.8
            allowed = draw.getrandbits(lanes * (beats + 1) * lanes)
            ctx.set(dut.keys, packed(beat, WIDTH))
            ctx.set(dut.allowed, allowed)
            ctx.set(dut.enable, -1 if step else 0)
            await ctx.tick()
            if not step:
                continue
            if len(window) == beats + 1:
                equal = packed([own == key for own in window[0] for each in window for key in each],
                               1)
                assert ctx.get(dut.matches) == equal & allowed, turn
            window.insert(0, beat)
            del window[beats + 1:]
    bench.process("check", check)
    bench.run(200)
