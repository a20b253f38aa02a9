"""MissNumberBank beside a list of numbers."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.lookup_payloads import miss_place
from hotrow_rtl.lookup.splitter.miss_number_bank import MissNumberBank

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_sets=256,
                           miss_entries=1024)


def requests_of(config, count, places, seed):
    """Writes and reads of the first `places` places; none is read before it is written."""
    rng = np.random.default_rng(seed)
    number, made = {}, []
    for _ in range(count):
        place = int(rng.integers(places))
        write = place not in number or bool(rng.integers(2))
        value = int(rng.integers(1 << config.slot_word_width))  # of a read, it must not matter
        if write:
            number[place] = value
        before = int(rng.integers(min(config.lanes, value + 1)))
        made.append(({"write": int(write), "place": place, "count": value - before,
                      "before": before}, number[place]))
    return made


async def offer(ctx, dut, request):
    """One cycle with a request, or with what is none; the answer in it, if any."""
    ctx.set(dut.requests.valid, request is not None)
    ctx.set(dut.requests.p, request or {"write": 1, "place": 0, "count": 0x155, "before": 1})
    _, _, ready, valid, answer = await ctx.tick().sample(
        dut.requests.ready, dut.answers.valid, dut.answers.p)
    assert ready
    return answer if valid else None


@pytest.mark.parametrize("idle", [0, 0.5])
@pytest.mark.parametrize("places", [1, 3, 32])
@pytest.mark.parametrize("config", [TINY, WIDE], ids=lambda config: config.name)
def test_equals_a_list(config, places, idle):
    """An answer `latency` cycles after each request, and only then."""
    assert places <= 1 << miss_place(config)
    made, rng = requests_of(config, 300, places, seed=places), np.random.default_rng(9)
    turns = []
    for each in made:
        while rng.random() < idle:
            turns.append((None, None))
        turns.append(each)
    turns += [(None, None)] * MissNumberBank.latency
    dut = built(MissNumberBank, config)
    bench, told = StreamBench(dut), []

    async def drive(ctx):
        for request, _ in turns:
            told.append(await offer(ctx, dut, request))
    bench.process("drive", drive)
    bench.run(2000)
    assert told == [None] * MissNumberBank.latency + [
        number for _, number in turns[:-MissNumberBank.latency]]
