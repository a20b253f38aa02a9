"""Driving a floating-point unit in Amaranth's simulator."""

from itertools import cycle

import numpy as np
from amaranth import Value
from amaranth.hdl import Const

from .stream_bench import STEADY, StreamBench


def run(unit, *operands, gaps=STEADY, pauses=STEADY, limit=400_000):
    """Send operands through a unit, and check that a result holds until it is taken.

    Parameters
    ----------
    unit : component with the streams `operands` and `results`, and the `layout` of its operands
    operands : uint32[n] each
        In the order of `layout`.
    gaps, pauses : sequence of int
        Idle cycles before each of the operands, and before each result is taken; `pauses` only
        where results can wait.
    limit : int
        Cycles until it counts as hanging.

    Returns
    -------
    results : uint32[n]
    cycles : int64[n]
        From taking the operands to the result being there.
    """
    bench = StreamBench(unit)
    count, payload = len(operands[0]), Value.cast(unit.operands.payload)
    fields = [field.offset for _, field in unit.layout]
    words = [sum(value << offset for value, offset in zip(each, fields))
             for each in zip(*(operand.tolist() for operand in operands))]
    waits = not isinstance(unit.results.ready, Const)
    results, given, came = [], [], []

    async def drive(ctx):
        for word, gap in zip(words, cycle(gaps)):
            for _ in range(gap):
                await ctx.tick()
            ctx.set(payload, word)
            ctx.set(unit.operands.valid, 1)
            await ctx.tick().until(unit.operands.ready)
            given.append(bench.cycles)
            ctx.set(unit.operands.valid, 0)
            ctx.set(payload, (1 << len(payload)) - 1)

    async def drain(ctx):
        pause, held = iter(cycle(pauses)), None
        left = next(pause)
        while len(results) < count:
            if waits:
                ctx.set(unit.results.ready, not left)
            _, _, valid, result = await ctx.tick().sample(
                unit.results.valid, unit.results.payload)
            assert held is None or (valid and result == held), (
                f"result {len(results)} changed or vanished before it was taken")
            if valid and held is None:
                came.append(bench.cycles)
            held = result if valid and left else None
            if valid and not left:
                results.append(result)
                left = next(pause) if waits else 0
            elif left:
                left -= 1

    bench.process(f"source of {count}", drive)
    bench.process(f"sink of {count}", drain)
    bench.run(limit)
    return np.array(results, np.uint32), np.array(came) - np.array(given)
