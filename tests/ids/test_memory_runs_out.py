"""A batch for which there is not enough memory changes nothing, wherever memory ends."""

import os
import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hotrow.ids import Expiry, IdMap, LeastCount, Probability
from hotrow.ids.log import EventLog

POLICIES = [
    (None, None), (None, Expiry(age=2)), (LeastCount(2), Expiry(below=2, every=2)),
    (Probability(0.7), Expiry(age=3, cap=9000)), (LeastCount(2), Expiry(cap=9000))]
LIMITS = 6


def made(policies):
    ids, draw = IdMap(20_000, *policies, threads=1), np.random.default_rng(3)
    for _ in range(3):
        ids.done(ids.plan(draw.integers(0, 30_000, 20_000)).number)
    return ids, draw.integers(0, 40_000, 30_000)


def refused(policies, spare):
    """Plan with so many bytes of memory left, then without a limit; whether memory ran out."""
    (ids, batch), (beside, _) = made(policies), made(policies)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + spare, -1))
    try:
        ids.plan(batch)
        found = False
    except MemoryError:
        found = True
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert EventLog.replay(ids.log.events()) == dict(
        zip(*(part.tolist() for part in ids.items()), strict=True))
    if found:
        assert ids.batch == ids.completed
        ids.plan(batch)
    beside.plan(batch)
    assert ids.digest() == beside.digest() == IdMap.from_state(ids.state()).digest()
    assert (ids.state()["counts"] == beside.state()["counts"]).all()
    return found


def outcomes(policies):
    """Exit codes of children with more and more memory."""
    found = []
    for number in range(LIMITS):
        child = os.fork()
        if not child:
            code = 2
            try:
                code = refused(policies, number * (16 << 20) // LIMITS)
            finally:
                os._exit(code)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return found


@pytest.mark.slow
def test_memory_that_runs_out():
    # In a process of its own: what other tests left free in the allocators serves a batch, too.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        for policies in POLICIES:
            found = process.submit(outcomes, policies).result()
            assert set(found) == {0, 1}, (policies, found)
