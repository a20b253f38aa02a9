"""BurstCutter against the same cut in plain Python."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.bursts import BurstCutter, word_width, words_width
from hotrow_rtl.config import PRESETS
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = PRESETS["tiny"]


def cut(word, words, longest):
    """(word, beats) of every burst."""
    while words:
        beats = min(words, longest - word % longest)
        yield word, beats
        word, words = word + beats, words - beats


@pytest.mark.parametrize("burst_beats", [2, 4, 256])
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_bursts(burst_beats, gaps, pauses):
    seed, config = 5, replace(TINY, burst_beats=burst_beats)
    rng, cutter = np.random.default_rng(seed), BurstCutter(config)
    top = 1 << word_width(config)
    runs = [(0, 1), (burst_beats - 1, 2), (top - 3, 3), (0, 3 * burst_beats)]
    runs += [(int(word), int(words)) for word, words in zip(
        rng.integers(0, 1 << 40, 12), rng.integers(1, 6 * burst_beats, 12))]
    expected = [burst for word, words in runs for burst in cut(word, words, burst_beats)]
    assert all(word % 256 + beats <= 256 for word, beats in expected), "no burst crosses 4 KiB"
    bench = StreamBench(cutter)
    bench.source(cutter.runs, [{"word": word, "words": words} for word, words in runs], gaps)
    taken = bench.sink(cutter.bursts, len(expected), pauses,
                       read=lambda burst: (burst.word, burst.beats))
    cycles = bench.run(1000)
    assert taken == expected, f"seed {seed}"
    if gaps is STEADY and pauses is STEADY:
        assert cycles <= len(expected) + len(runs) + 3, "one burst a cycle, one cycle a run"


def test_the_longest_run_is_not_cut_short():
    cutter = BurstCutter(TINY)
    bench = StreamBench(cutter)
    bench.source(cutter.runs, [{"word": 0, "words": (1 << words_width(TINY)) - 1}])
    taken = bench.sink(cutter.bursts, 50, read=lambda burst: (burst.word, burst.beats))
    bench.run(100)
    assert taken == [(4 * i, 4) for i in range(50)]


def test_clear_forgets_the_run():
    cutter = BurstCutter(TINY)
    bench = StreamBench(cutter)

    async def drive(ctx):
        ctx.set(cutter.runs.p, {"word": 0, "words": 100})
        ctx.set(cutter.runs.valid, 1)
        await ctx.tick()
        ctx.set(cutter.runs.valid, 0)
        await ctx.tick().repeat(3)
        assert ctx.get(cutter.bursts.valid)
        ctx.set(cutter.clear, 1)
        await ctx.tick()
        ctx.set(cutter.clear, 0)
        assert ctx.get(cutter.runs.ready) and not ctx.get(cutter.bursts.valid)
    bench.process("drive", drive)
    bench.run(20)
