"""BurstScheduler against the same split in plain Python, client by client."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS
from hotrow_rtl.interfaces.records import LIST_BYTES_WIDTH
from hotrow_rtl.memory.burst_scheduler import BurstScheduler
from hotrow_rtl.memory.bursts import word_width

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = PRESETS["tiny"]


def split(word, words, longest):
    """(word, beats) of every burst."""
    while words:
        beats = min(words, longest - word % longest)
        yield word, beats
        word, words = word + beats, words - beats


def owned(bursts, client):
    """The bursts of one client, in order."""
    return [burst for number, *burst in bursts if number == client]


@pytest.mark.parametrize("longest", [(2,), (4, 2), (256, 8, 2)])
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_bursts(longest, gaps, pauses):
    seed, config = 5, replace(TINY, burst_beats=max(longest))
    rng, scheduler = np.random.default_rng(seed), built(BurstScheduler, config, longest)
    bench, top, expected = StreamBench(scheduler), 1 << word_width(config), []
    for client, most in enumerate(longest):
        runs = [(0, 1), (most - 1, 2), (top - 3, 3), (0, 3 * most)]
        runs += [(int(word), int(words)) for word, words in zip(
            rng.integers(0, 1 << 40, 12), rng.integers(1, 6 * most, 12), strict=True)]
        expected.append([list(burst) for word, words in runs for burst in split(word, words, most)])
        assert all(word % 256 + beats <= 256 for word, beats in expected[-1]), "within 4 KiB"
        bench.source(scheduler.requests[client], [
            {"address": 16 * word, "bytes": 16 * words - int(rng.integers(0, 16))}
            for word, words in runs], gaps)
    count = sum(map(len, expected))
    taken = bench.sink(scheduler.bursts, count, pauses,
                       read=lambda owned: (owned.client, owned.burst.word,
                                           owned.burst.len_minus_1 + 1))

    async def grant_space(ctx):
        ctx.set(scheduler.space_for_one, (1 << len(longest)) - 1)
        ctx.set(scheduler.space_for_two, (1 << len(longest)) - 1)
    bench.process("space", grant_space)
    cycles = bench.run(2000)
    assert [owned(taken, client) for client in range(len(longest))] == expected, f"seed {seed}"
    if gaps is STEADY and pauses is STEADY:
        # 3 cycles from burst to burst of a client, 8 if its next request lies between them, and 2
        # for each request of another.
        alone = max(3 * len(mine) + (8 - 3) * 16 for mine in expected) + 2 * 16 * len(longest[1:])
        assert cycles <= max(alone, count + 16 * len(longest)) + 10, "a burst a cycle"


def test_longest_list_is_not_truncated():
    scheduler = built(BurstScheduler, TINY, (4,))
    bench = StreamBench(scheduler)
    bench.source(scheduler.requests[0], [{"address": 0, "bytes": (1 << LIST_BYTES_WIDTH) - 1}])
    taken = bench.sink(scheduler.bursts, 50, more=True,
                       read=lambda owner: (owner.burst.word, owner.burst.len_minus_1 + 1))
    seen = []

    async def watch(ctx):
        ctx.set(scheduler.space_for_one, 1)
        ctx.set(scheduler.space_for_two, 1)
        seen.extend(await ctx.tick().sample(scheduler.len_minus_1).until(
            scheduler.requests[0].ready))
    bench.process("words", watch)
    bench.run(200)
    assert taken == [(4 * i, 4) for i in range(50)]
    assert seen == [(1 << LIST_BYTES_WIDTH - 4) - 1]


def test_client_without_space_gets_no_burst_and_delays_no_other():
    scheduler = built(BurstScheduler, TINY, (4, 4))
    bench = StreamBench(scheduler)
    for request in scheduler.requests:
        bench.source(request, [{"address": 0, "bytes": 16 * 40}])
    taken = bench.sink(scheduler.bursts, 10, read=lambda owner: owner.client)

    async def grant_space(ctx):
        ctx.set(scheduler.space_for_one, 2)
        ctx.set(scheduler.space_for_two, 2)
    bench.process("space", grant_space)
    assert bench.run(60) <= 3 * 10 + 10
    assert taken == [1] * 10
