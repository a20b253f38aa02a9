"""Operands through a floating-point unit, in Amaranth's simulator or Verilated."""

from functools import cache

import numpy as np
from amaranth.hdl import Const

from ..units.stream_unit import WORDS, SimulatedUnit, StreamUnit
from .stream_bench import STEADY

CHUNK = 1 << 18  # operations of a Verilated run, which limits the memory for payloads
STREAMS = (), ("operands",), ("results",)


def run(unit, *operands, gaps=STEADY, pauses=STEADY, limit=400_000):
    """Send operands through a unit in Amaranth's simulator.

    Parameters
    ----------
    unit : component with the streams `operands` and `results`, and the `layout` of its operands
    operands : uint32[n] each
        In the order of `layout`.
    gaps, pauses : sequence of int
        Idle cycles before each operation, and cycles without `ready` before each result.
    limit : int
        Cycles after which the run fails.

    Returns
    -------
    results : uint32[n]
    cycles : int64[n]
        From the acceptance of the operands to the first cycle of the valid result.

    Raises
    ------
    AssertionError
        If a result changes while it is stalled.
    """
    offsets = [field.offset for _, field in unit.layout]
    payloads = [sum(value << offset for value, offset in zip(each, offsets, strict=True))
                for each in zip(*(operand.tolist() for operand in operands), strict=True)]
    done = SimulatedUnit(unit, *STREAMS).run(0, [payloads], [len(payloads)], [gaps], [pauses],
                                             limit)
    return done.words[0][:, 0], done.valid_cycles[0] - done.in_cycles[0]


@cache
def _verilated(make):
    return StreamUnit(make(), *STREAMS)


def run_verilated(unit, *operands, seed=0):
    """`run` for millions of operations, with random gaps and pauses if `seed` is not 0.

    The unit's class has no arguments and is built once.
    """
    rng, verilated = np.random.default_rng(seed), _verilated(type(unit))
    results, cycles = [], []
    for first in range(0, len(operands[0]), CHUNK):
        chunk = [each[first:first + CHUNK] for each in operands]
        count = len(chunk[0])
        payloads = np.zeros((count, WORDS), np.uint32)
        for (_, field), operand in zip(unit.layout, chunk, strict=True):
            payloads[:, field.offset // 32] = operand
        gaps, pauses = (rng.geometric(0.75, count) - 1 if seed else STEADY for _ in range(2))
        if isinstance(unit.results.ready, Const):
            pauses = STEADY
        done = verilated.run(0, [payloads], [count], [gaps], [pauses], 1000 * count)
        assert done.complete, f"fewer than {count} results after {1000 * count} cycles"
        results.append(done.words[0][:, 0])
        cycles.append(done.valid_cycles[0] - done.in_cycles[0])
    return np.concatenate(results), np.concatenate(cycles)


def check(results, expected, operands, seed=None):
    """Fail unless all results are as expected; the message has the first difference and the
    seed."""
    wrong = np.flatnonzero(results != expected)
    if len(wrong):
        at = wrong[0]
        given = ", ".join(f"{int(each[at]):#010x}" for each in operands)
        raise AssertionError(
            f"{len(wrong)} of {len(results)} results are wrong, first number {at}: expected "
            f"{int(expected[at]):#010x} of {given}, not {int(results[at]):#010x}, seed {seed}")
