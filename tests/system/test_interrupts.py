"""Signals whose handlers raise errors split no operation, and none is lost."""

import os
import random
import signal
import time

import numpy as np
import pytest
from hotrow.ids import Expiry, IdMap
from hotrow.ids.log import EventLog
from hotrow.system.interrupts import deferred_interrupt, deliver, uninterrupted

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGPROF


class Raised(BaseException):
    pass


@pytest.fixture(params=SIGNALS, ids=lambda number: number.name)
def number(request):
    def handler(received, _):
        raise Raised(received)
    before = signal.signal(request.param, handler)
    yield request.param
    assert signal.getsignal(request.param) is handler
    signal.signal(request.param, before)


def test_a_signal_waits_for_the_end_of_the_block(number):
    done = []
    with pytest.raises(Raised), uninterrupted():
        with uninterrupted():
            os.kill(os.getpid(), number)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]


def test_a_second_signal_comes_at_once(number):
    with pytest.raises(Raised), uninterrupted():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        raise AssertionError("the second one did not come")


def test_an_error_of_the_block_comes_first_and_the_next_signal_is_as_before(number):
    with pytest.raises(KeyError), uninterrupted():
        os.kill(os.getpid(), number)
        raise KeyError
    with pytest.raises(Raised):
        os.kill(os.getpid(), number)


def test_a_handler_that_a_block_left_behind_passes_signals_on(number):
    own = signal.getsignal(number)
    with deferred_interrupt() as pending:
        left = signal.getsignal(number)
    assert left is not own and not pending
    signal.signal(number, left)
    with pytest.raises(Raised):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is own
    deliver(pending)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGALRM], indirect=True)
def test_a_map_of_ids_that_a_signal_stops_keeps_its_log(number):
    seed = random.randrange(1 << 30)
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    batches = [numbers.integers(0, 6000, 2000) for _ in range(12)]

    def made():
        return IdMap(2000, expiry=Expiry(age=2), threads=1)

    def train(ids):
        for batch in batches:
            ids.plan(batch)
            ids.done(ids.batch)
    begun = time.perf_counter()
    train(made())
    seconds, stopped = time.perf_counter() - begun, 0
    for _ in range(60):
        ids = made()
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + draw.random() * seconds)
            train(ids)
            signal.setitimer(signal.ITIMER_REAL, 0)
            continue
        except Raised:
            stopped += 1
        items = dict(zip(*(part.tolist() for part in ids.items()), strict=True))
        assert EventLog.replay(ids.log.events()) == items, seed
        assert len(ids) == len(items) and ids.batch - ids.completed in (0, 1), seed
        beside = made()  # a batch is planned or not
        for at in range(ids.batch):
            beside.plan(batches[at])
            beside.done(min(at + 1, ids.completed))
        assert ids.digest() == beside.digest(), seed
        assert IdMap.from_state(ids.state()).digest() == ids.digest(), seed
    assert stopped > 5, seed
