"""Ctrl-C anywhere in the driver: results stay right, or an error names the remedy."""

import random
import signal
import threading
import time
import traceback

import hotrow
import numpy as np
import pytest
from hotrow import DeviceError

from tests.driver.interrupts import ROWS, gathers, interrupted

CARDS = "model", "cpu"


@pytest.fixture
def table(device):
    weights = hotrow.empty((ROWS, 8), np.float32)
    weights[:] = np.arange(ROWS)[:, None]
    return device.register_table(weights)


def check(device, table, rng, futures):
    """Every result that comes is right, and a later call works."""
    futures.extend(gathers(device, table, rng))
    for future, expected in futures:
        assert (future.result(2) == expected).all()
    rows = rng.integers(0, ROWS, 6)
    assert (device.gather_async((table, rows)).result(2)[:, 0] == rows).all()


def idle(device):
    """Whether no command uses a buffer."""
    device.fence(queue="lookup"), device.fence(queue="move")
    return not any(buffer.uses for buffer in device.regions._buffers if buffer)


@pytest.mark.slow
def test_at_every_line_of_a_gather(device, table, card_kind):
    """Over the model, which takes longest, before every fourth line."""
    rng, at, where = np.random.default_rng(1), 0, "begin"
    while where:
        at, futures = at + (4 if card_kind == "model" else 1), []

        def call(futures=futures):
            futures.extend(gathers(device, table, rng))
            for future, _ in futures:
                future.result()
        where = interrupted(call, at)
        assert all(future.held._ends for future in device._commands.queues["move"]._outstanding
                   if not future.ended()), "a command under way keeps its memory"
        check(device, table, rng, futures)
        assert idle(device), where
        assert len([each for each in device.regions._buffers if each]) < 9, "regions are given back"
    assert at > 300


@pytest.mark.slow
def test_what_an_interrupt_left_is_given_back_once(device, table):
    """The interrupt ends the wait for a command at every line; the next commands are under way
    when the driver gives back the rest of what it held, and have the same regions and leases."""
    rng, at, where = np.random.default_rng(1), 0, "begin"
    while where:
        at, futures = at + 1, [*gathers(device, table, rng)]
        where = interrupted(futures[0][0].result, at)
        event = device.read_event(0) + 1
        device.wait_event_async(0, event, queue="move")
        futures += gathers(device, table, rng)
        futures[-1][0].done()
        futures += gathers(device, table, rng)
        device.write_event(0, event)
        for future, expected in futures:
            assert (future.result(9) == expected).all(), where
    assert at > 50


@pytest.mark.slow
def test_at_every_line_of_a_plan(device, table):
    """Rows that a lost plan gave slots are never taken for gathered ones."""
    ids, at, where, lost, number = np.arange(10)[:, None], 0, "begin", 0, 0
    while where:
        at += 1
        where = interrupted(lambda: device.plan(ids), at)
        try:
            plan = device.plan(ids)
        except DeviceError as error:
            assert "clear_directory" in str(error), where
            device.clear_directory()
            plan, number, lost = device.plan(ids), 0, lost + 1
        assert (plan.hits == 10) == (number > 0), "slots of rows that the caller was given"
        number = plan.number + 1
        device.retire(plan.number)
        assert idle(device), where
    assert at > 200 and lost > 50


@pytest.mark.slow
def test_at_every_line_of_clear_directory(device, table):
    ids, at, where = np.arange(10)[:, None], 0, "begin"
    while where:
        at += 1
        device.clear_directory()
        device.plan(ids)
        where = interrupted(device.clear_directory, at)
        try:
            plan = device.plan(ids)
        except DeviceError as error:
            assert "clear_directory" in str(error), where
            device.clear_directory()
            plan = device.plan(ids)
        assert (plan.number, plan.hits) in ((0, 0), (1, 10)), where
        assert idle(device), where
    assert at > 50


def test_at_every_line_of_a_wait_and_of_closing():
    at, where = 0, "begin"
    while where:
        at += 1
        card = hotrow.open("cpu", preset="tiny").transport
        where = interrupted(lambda card=card: (card.wait(0, 0, 1e-3), card.close()), at)
        closing = threading.Thread(target=card.close, daemon=True)
        closing.start()
        closing.join(20)
        assert not closing.is_alive(), where
    assert at > 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a callback
def test_at_any_time(device, table):
    """By a timer, also while the model executes a command."""
    def stop(*_):
        raise KeyboardInterrupt
    times, rng = random.Random(1), np.random.default_rng(1)
    before, interrupts = signal.signal(signal.SIGALRM, stop), 0
    try:
        end = time.monotonic() + 20
        while interrupts < 100 and time.monotonic() < end:
            futures = []
            try:
                signal.setitimer(signal.ITIMER_REAL, times.uniform(2e-4, 5e-3))
                for _ in range(20):  # NumPy drops an interrupt that comes as it converts an enum
                    futures = list(gathers(device, table, rng))
                    for future, _ in futures:
                        future.result()
            except (KeyboardInterrupt, hotrow.Error) as error:
                # Python's threading may fail by an interrupt that comes as it starts a thread.
                assert isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt" in "".join(
                    traceback.format_exception(error)), error
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            check(device, table, rng, futures)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupts and idle(device)


def test_another_thread_may_signal_what_a_full_ring_waits_for():
    with hotrow.open("model", preset="tiny", ring_entries=2, timeout=30) as device:
        table = device.register_table(hotrow.empty((ROWS, 4), np.float32))
        for _ in range(2):
            device.wait_event_async(0, 1, queue="move")
        other = threading.Timer(0.1, lambda: device.write_event(0, 1))
        started = time.monotonic()
        other.start()
        device.gather((table, [1]))
        other.join()
        assert time.monotonic() - started < 10


def test_threads_share_a_small_ring():
    with hotrow.open("model", preset="tiny", ring_entries=2, timeout=30) as device:
        weights = hotrow.empty((ROWS, 4), np.float32)
        weights[:] = np.arange(ROWS)[:, None]
        table, right = device.register_table(weights), []

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(20):
                rows = [rng.integers(0, ROWS, 5) for _ in range(3)]
                futures = [device.gather_async((table, each)) for each in rows]
                right.append(all((future.result()[:, 0] == each).all()
                                 for future, each in zip(futures, rows, strict=True)))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert right == [True] * 80
