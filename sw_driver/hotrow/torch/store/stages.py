"""A scheduler of stages that batches pass in order, on threads or on the caller's own."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from ...contract.errors import Error
from ...system.forks import ForkLock
from ...system.interrupts import Pending, deferred_interrupt, deliver, uninterrupted

_POLL_S = 0.2  # an idle worker looks again after this time, so that a lost wake-up cannot hang it


class Stage(NamedTuple):
    """One stage: its calls take a batch's number."""

    name: str
    can_run: Callable[[int], bool]
    run: Callable[[int], None]


class Stages:
    """Runs the stages of batches, on worker threads or on the thread that waits.

    A stage serves one batch at a time, in order, once its `can_run` allows it. Of several stages
    that can run the last comes first, which changes the time only, never a result.

    Parameters
    ----------
    stages : sequence of Stage
    workers : int
        Threads; with 0 the stages run inside `wait`.
    before : callable, optional
        Called with the name of a stage and a batch's number before the stage runs.
    idle : callable, optional
        Whether a batch passes all stages after the first without their `run`, by its number.

    Attributes
    ----------
    done : list of int
        Batches that have passed each stage.
    lock : ForkLock
        Held while `done` and the inputs of `can_run` change.
    seconds : list of float
        Time that each stage took.
    waited : float
        Seconds inside `wait`, those of stages that ran on its thread included.
    clock : callable
        Returns seconds.
    """

    def __init__(self, stages: Sequence[Stage], workers: int = 0,
                 before: Callable[[str, int], object] | None = None,
                 idle: Callable[[int], bool] | None = None) -> None:
        self.stages, self.workers, self.before = tuple(stages), workers, before
        self._idle = idle
        self.done, self.seconds, self.waited = [0] * len(stages), [0.0] * len(stages), 0.0
        self._backwards = range(len(stages) - 1, -1, -1)
        self._at = {stage.name: at for at, stage in enumerate(self.stages)}
        self.clock = time.perf_counter
        self.lock = ForkLock()
        self._bell = _Bell(self.lock)
        self._busy = [False] * len(stages)
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._stopping = False
        if workers:
            _OPEN.add(self)

    def choose(self, ready: Iterator[int]) -> int:
        """Choose one of the stages that can run, an iterator: the first, which brings a batch
        furthest; -1 if there is none."""
        return next(ready, -1)

    def through(self, name: str) -> int:
        """Batches that have passed the stage of that name."""
        return self.done[self._at[name]]

    def begun(self, name: str) -> int:
        """Batches that have entered it."""
        with self.lock:
            return self.through(name) + self._busy[self._at[name]]

    def start(self) -> None:
        """Start the threads, if there are any."""
        if self._stopping and self._threads:
            self.stop()  # an interrupt came within an earlier call
        with self.lock:
            self._raise_failure()
            if self._threads or not self.workers:
                return
        with uninterrupted():
            self._stopping = False
            self._threads = [threading.Thread(
                target=_work, args=(weakref.ref(self), self._bell), daemon=True)
                for _ in range(self.workers)]
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """End the threads, each after its current stage."""
        with self.lock:
            self._stopping = True
            self.wake()
        for thread in self._others():
            thread.join()
        self._threads = []

    def leave(self) -> None:
        """Refuse to run in a child of the process, where the threads are not."""
        self.lock = ForkLock()  # a thread of the parent may hold the other
        self._bell, self._threads = _Bell(self.lock), []
        self._failure = Error("the process forked, and the threads of this collection's stages "
                              "are in its parent: train there, or open a collection here")

    def fail(self, error: BaseException) -> None:
        """End all stages with an error: `start` and `wait` raise it."""
        with self.lock:
            self._failure = self._failure or error
            self.wake()

    def wake(self) -> None:
        """Make idle threads evaluate `can_run` again; the caller holds the lock."""
        self._bell.ring()

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        """Return once `reached()` is true.

        Raises
        ------
        Error
            No stage can run, so that `what` is never reached. An exception of a stage is raised
            as it is.
        """
        started, done = self.clock(), False
        try:
            while not done:
                # An interrupt waits until the stage that this thread runs has ended.
                deferral: AbstractContextManager[Pending] = (
                    nullcontext([]) if self._others() else deferred_interrupt())
                with deferral as pending:
                    while not done and not pending:
                        done, stage = self._next(reached, what)
                        if stage >= 0:
                            self._run(stage)
                deliver(pending)
        except BaseException as error:
            with self.lock:
                if not self._others() and any(self._busy):  # it came before or after the stage
                    self._busy = [False] * len(self.stages)
                    self.fail(error)
            raise
        finally:
            self.waited += self.clock() - started

    def _next(self, reached: Callable[[], bool], what: str) -> tuple[bool, int]:
        """Whether `reached()`; else a claimed stage, or -1 after a wait."""
        with self.lock:
            self._raise_failure()
            if reached():
                return True, -1
            stage = -1 if self._others() else self._claim()
            if stage < 0:
                if not any(self._busy) and not any(True for _ in self._ready()):
                    raise Error(f"no stage can run, and {what} is not reached")
                self.wake()
                self._bell.sleep(self._bell.rung)
            return False, stage

    def _others(self) -> list[threading.Thread]:
        """Threads that serve stages beside this one. They end before the garbage collector closes
        the generator of an epoch, which waits for batches."""
        return [thread for thread in self._threads
                if thread.is_alive() and thread is not threading.current_thread()]

    def _ready(self) -> Iterator[int]:
        """Stages that can run: their indices, the last first."""
        if self._failure is None:
            for at in self._backwards:
                if not self._busy[at] and self.stages[at].can_run(self.done[at]):
                    yield at

    def _claim(self) -> int:
        """Reserve a stage that can run for this thread: its index, or -1."""
        at = self.choose(self._ready())
        if at >= 0:
            self._busy[at] = True
        return at

    def _run(self, at: int) -> None:
        """Run a claimed stage."""
        stage, number = self.stages[at], self.done[at]
        started = self.clock()
        try:
            if self.before is not None:
                self.before(stage.name, number)
            stage.run(number)
        except BaseException as error:
            with self.lock:
                self._busy[at] = False
                self.fail(error)
            raise
        with self.lock:
            self.seconds[at] += self.clock() - started
            self.done[at] += 1
            self._busy[at] = False
            if self._idle is not None and self.before is None and self._idle(number):
                at += 1
                while at < len(self.stages) and self.done[at] == number and not self._busy[at]:
                    self.done[at] += 1
                    at += 1
            self.wake()

    def _serve(self) -> tuple[bool, int | None]:
        """Run a stage that can run, on a thread of the stages: whether the thread goes on, and how
        often the bell had rung if no stage could run, else None."""
        with self.lock:
            if self._stopping or self._failure is not None:
                return False, None
            at = self._claim()
            if at < 0:
                return True, self._bell.rung
        try:
            self._run(at)
        except BaseException:  # `_run` keeps it, and `wait` raises it
            return False, None
        return True, None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class _Bell:
    """Wakes idle threads, which hold it instead of their stages; `rung` counts the calls."""

    def __init__(self, lock: ForkLock) -> None:
        self.rung, self._asleep, self._changed = 0, 0, threading.Condition(lock)

    def ring(self) -> None:
        """Wake the threads; the caller holds the lock."""
        self.rung += 1
        if self._asleep:
            self._changed.notify_all()

    def sleep(self, rung: int) -> None:
        """Return once the bell has rung more often than `rung` times, or after a while."""
        with self._changed:
            if self.rung == rung:
                self._asleep += 1
                try:
                    self._changed.wait(_POLL_S)
                finally:
                    self._asleep -= 1


def _work(reference: weakref.ref[Stages], bell: _Bell) -> None:
    """Serve stages until they end, or until nobody uses them any more.

    An idle thread has no reference to them: they hold the memory of a collection.
    """
    while (stages := reference()) is not None:
        goes_on, rung = stages._serve()
        del stages
        if not goes_on:
            return
        if rung is not None:
            bell.sleep(rung)


_OPEN: weakref.WeakSet[Stages] = weakref.WeakSet()  # stages with threads


def _leave() -> None:
    for stages in tuple(_OPEN):
        stages.leave()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave)


@atexit.register
def _stop() -> None:
    """End the threads of a program that ends: at exit a thread inside PyTorch would abort it."""
    for stages in tuple(_OPEN):
        stages.stop()
