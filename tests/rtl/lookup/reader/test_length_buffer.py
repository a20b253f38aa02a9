"""LengthBuffer against a list: words that are kept and dropped, with a memory that is full."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.reader.length_buffer import LengthBuffer

from tests.support.simulation import Simulation, built

CONFIG = dataclasses.replace(preset("tiny"), batch_samples=64)


@pytest.mark.parametrize("seed", range(4))
def test_only_kept_words_leave_and_in_order(seed):
    """Groups of up to all rows enter, also while nobody takes the words before."""
    dut, rng = built(LengthBuffer, CONFIG), np.random.default_rng(seed)
    rows, sent, kept, left = dut.rows, [], [], []
    share, filled = [0.0, 0.02, 0.5, 1.0][seed], 0  # of cycles in which a word is taken

    async def enter(ctx):
        nonlocal filled
        for _ in range(30):
            count = int(rng.choice([0, 1, rows, rng.integers(rows + 1)]))
            for _ in range(count):
                word = int(rng.integers(1 << 60))
                ctx.set(dut.i.p.data, word)
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
                ctx.set(dut.i.valid, 0)
                sent.append(word)
            pulse = dut.keep if rng.random() < 0.6 else dut.drop
            if pulse is dut.keep:
                kept.extend(sent)
            sent.clear()
            ctx.set(pulse, 1)
            await ctx.tick()
            ctx.set(pulse, 0)
            filled += count == rows
        for _ in range(20_000):
            if len(left) == len(kept):
                break
            await ctx.tick()

    async def take(ctx):
        waits = 0
        while True:
            # Without a share, words are taken a memory's worth at a time.
            together = not share and waits % (4 * rows) > 2 * rows
            ctx.set(dut.o.ready, together or rng.random() < share)
            _, _, valid, ready, word = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.p.data)
            waits += 1
            if valid and ready:
                left.append(word)
                assert left[-1] == kept[len(left) - 1], f"word {len(left)}, seed {seed}"

    simulation = Simulation.of(dut)
    simulation.add(enter)
    simulation.add(take, background=True)
    simulation.run()
    assert filled and left == kept, f"seed {seed}"
