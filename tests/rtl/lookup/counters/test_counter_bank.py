"""CounterBank against its rules in plain Python: counts, credits, full sets, clears."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import CREDIT_LOG2, CREDITED_WIDTH, preset
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.hashing.row_location import split_counter_key

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench, pulse
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), counter_sets=64, counter_ways=3, counter_bits=5)
MOST = (1 << TINY.counter_bits) - 1


class Rules:
    """Counts of a bank: for each set its ways, as [tag, count, credit]."""

    def __init__(self):
        self.sets = {}

    def count(self, key, amount):
        """(whether the row had a count, that count) before the request."""
        at, tag = (int(each[0]) for each in split_counter_key(TINY, np.array([key], np.uint64)))
        ways = self.sets.setdefault(at, [[None, 0, 0] for _ in range(TINY.counter_ways)])
        for way in ways:
            if way[0] == tag and way[1]:
                before = way[1]
                way[1:] = [min(before + amount, MOST),
                           min(before, (1 << CREDITED_WIDTH) - 1) << CREDIT_LOG2]
                return 1, before
        least = min(ways, key=lambda way: way[1])
        if least[2]:
            least[2] = max(0, least[2] - amount)
        else:
            least[:] = [tag, min(amount, MOST), 0]
        return 0, 0


@pytest.mark.parametrize("seed, gaps", [(0, STEADY), (1, RAGGED), (2, STEADY)])
def test_counts_credits_and_clears(seed, gaps):
    rng, rules, expected = np.random.default_rng(seed), Rules(), []
    dut = built(CounterBank, TINY)
    bench, keys = StreamBench(dut), rng.integers(0, 1 << TINY.bank_key_width, 120)
    rounds = 3
    part = 150

    async def drive(ctx):
        for number in range(rounds):
            if number:
                for _ in range(dut.latency + 1):
                    await ctx.tick()
                await pulse(ctx, dut.clear)
            for turn in range(part):
                key = int(keys[int(len(keys) * rng.random() ** 3)])
                amount = int(rng.integers(1, 6))
                if not turn:
                    rules.sets.clear()
                expected.append(rules.count(key, amount))
                for _ in range(gaps[turn % len(gaps)]):
                    await ctx.tick()
                ctx.set(dut.requests.p, {"bank_key": key, "amount": amount})
                ctx.set(dut.requests.valid, 1)
                await ctx.tick().until(dut.requests.ready)
                ctx.set(dut.requests.valid, 0)

    bench.process("requests", drive)
    answers = bench.sink(dut.answers, rounds * part)
    bench.run(20 * rounds * part)
    found = [(answer.counted, answer.count if answer.counted else 0) for answer in answers]
    assert found == expected, f"seed {seed}"
    firsts = found[part::part]
    assert firsts == [(0, 0)] * (rounds - 1) and max(found)[1] == MOST, "no way is saturated"
