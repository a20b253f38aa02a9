"""Batches depend on the lists in flight that share memory with theirs, and on no others."""

import numpy as np
import pytest
from hotrow_rtl.config import LIST_ALIGNMENT, preset
from hotrow_rtl.host.batch_order import RESULTS, BatchOrder
from hotrow_rtl.interfaces.records import BATCHES_IN_FLIGHT

from tests.support.benches.stream_bench import StreamBench, pulse
from tests.support.simulation import built

CONFIG = preset("tiny")
TOP = 1 << CONFIG.address_width


def overlap(one, other):
    """Whether two (address, bytes) share a unit of LIST_ALIGNMENT."""
    ends = [-(-sum(each) // LIST_ALIGNMENT) * LIST_ALIGNMENT for each in (one, other)]
    return one[0] < ends[1] and other[0] < ends[0]


def play(commands, completions):
    """Whether each command depends on those in flight.

    Parameters
    ----------
    commands : list of list of (address, bytes, write)
        The lists of each command.
    completions : list of int
        Commands that complete before each is accepted.
    """
    dut = built(BatchOrder, CONFIG)
    bench, answers = StreamBench(dut), []

    async def host(ctx):
        for lists, ended in zip(commands, completions, strict=True):
            for _ in range(ended):
                await pulse(ctx, dut.reported)
            await pulse(ctx, dut.accepted)
            for address, size, write in lists:
                ctx.set(dut.ranges.p, {"first": address // LIST_ALIGNMENT, "bytes": size,
                                       "write": write})
                ctx.set(dut.ranges.valid, 1)
                await ctx.tick().until(dut.ranges.ready)
                ctx.set(dut.ranges.valid, 0)
            await ctx.tick()
            answers.append(bool(ctx.get(dut.depends)))
    bench.process("host", host)
    return answers, bench.run(400 * len(commands))


def expected(commands, completions):
    oldest, answers = 0, []
    for number, (lists, ended) in enumerate(zip(commands, completions, strict=True)):
        oldest += ended
        written = [each[:2] for earlier in commands[oldest:number] for each in earlier if each[2]]
        answers.append(any(overlap(each[:2], one) for each in lists for one in written))
    return answers


def split(source, *results, size=256):
    return [(source, size, 0), *((each, size, 1) for each in results)]


AT = [4096 * number for number in range(20)]


@pytest.mark.parametrize("second, depends", [
    ([(AT[1], 64, 0)], True),
    ([(AT[1] + 192, 64, 0)], True),
    ([(AT[1] + 256, 64, 0)], False),
    ([(AT[1] - 64, 64, 0)], False),
    ([(AT[1] - 64, 65, 0)], True),
    ([(AT[0], 64, 0), (AT[4], 1, 0)], True),
    ([(AT[0], 64, 0)], False),
    (split(AT[0], AT[5], AT[6], AT[7], AT[2]), True),
    (split(AT[0], AT[5], AT[6], AT[7], AT[8]), False),
], ids=["start", "end", "after", "before", "last-byte", "lengths", "ids-of-both", "results",
        "apart"])
def test_lists_that_share_memory(second, depends):
    first = split(AT[0], *AT[1:5])
    assert play([first, second], [0, 0])[0] == [False, depends]
    assert play([first, second], [0, 1])[0] == [False, False], "the SPLIT has completed"
    apart = [(AT[10], 64, 0)]
    assert play([first, apart, apart, second], [0] * 4)[0] == [False, False, False, depends]
    assert play([first, apart, apart, second], [0, 0, 1, 0])[0] == [False] * 4


@pytest.mark.parametrize("seed", range(3))
def test_random_lists(seed):
    rng = np.random.default_rng(seed)
    commands, completions, in_flight = [], [], 0
    space = int(rng.choice([64, 256, 1024]))  # units of memory
    base = int(rng.choice([0, TOP - 64 * (space + 20)]))
    for _ in range(80):
        ended = int(rng.integers(max(0, in_flight + 1 - BATCHES_IN_FLIGHT), in_flight + 1))
        in_flight += 1 - ended
        completions.append(ended)
        writes = RESULTS * int(rng.integers(2))
        commands.append([
            (base + 64 * int(rng.integers(space)), int(rng.integers(1, 1200)), number >= 2)
            for number in range(int(rng.integers(2)), 2 + writes)])
    answers, _ = play(commands, completions)
    wanted = expected(commands, completions)
    assert answers == wanted, f"seed {seed}"
    assert any(wanted) and not all(wanted)


def test_cycles_of_a_list():
    """The formula of the docstring."""
    lists = [(AT[10], 64, 0)]
    for first, each in ([(AT[0], 64, 0)], 2), (split(*AT[:5]), BATCHES_IN_FLIGHT * RESULTS + 4):
        _, one = play([first, lists], [0, 0])
        _, three = play([first, 3 * lists], [0, 0])
        assert three - one == 2 * each
