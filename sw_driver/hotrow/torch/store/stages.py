"""A scheduler of stages that batches pass in order, on threads or on the caller's own."""

import atexit
import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from ...contract.errors import Error

_POLL_S = 0.2  # an idle worker looks again after this time, so that a lost wake-up cannot hang it

# Without their conversions to enumerations.
_get_handler: Any = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_set_handler: Any = getattr(signal.signal, "__wrapped__", signal.signal)


class Stage(NamedTuple):
    """One stage: `can_run` and `run` take a batch's number."""

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

    Attributes
    ----------
    done : list of int
        Batches that have passed each stage.
    lock : threading.RLock
        Held while `done` and the inputs of `can_run` change.
    seconds : list of float
        Time that each stage took.
    waited : float
        Seconds inside `wait`, without the stages that ran on its thread.
    clock : callable
        Returns seconds.
    """

    def __init__(self, stages, workers=0, before=None):
        self.stages, self.workers, self.before = tuple(stages), workers, before
        self.done, self.seconds, self.waited = [0] * len(stages), [0.0] * len(stages), 0.0
        self._backwards = range(len(stages) - 1, -1, -1)
        self._at = {stage.name: at for at, stage in enumerate(self.stages)}
        self.clock = time.perf_counter
        self.lock = threading.RLock()
        self._changed, self._asleep = threading.Condition(self.lock), 0
        self._busy = [False] * len(stages)
        self._failure, self._threads, self._stopping = None, [], False
        if workers:
            atexit.register(_stop, weakref.ref(self))

    def choose(self, ready):
        """Choose one of the stages that can run, an iterator: the first, which brings a batch
        furthest; -1 if there is none."""
        return next(ready, -1)

    def through(self, name):
        """Batches that have passed the stage of that name."""
        return self.done[self._at[name]]

    def begun(self, name):
        """Batches that have entered it."""
        with self.lock:
            return self.through(name) + self._busy[self._at[name]]

    def start(self):
        """Start the threads, if there are any."""
        if self._stopping and self._threads:
            self.stop()  # an interrupt came within an earlier call
        with self.lock:
            self._raise_failure()
            if self._threads or not self.workers:
                return
        with _deferred_interrupt() as pending:
            self._stopping = False
            self._threads = [threading.Thread(target=self._work, daemon=True)
                             for _ in range(self.workers)]
            for thread in self._threads:
                thread.start()
        for handler, arguments in pending:
            handler(*arguments)

    def stop(self):
        """End the threads, each after its current stage."""
        with self.lock:
            self._stopping = True
            self.wake()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def wake(self):
        """Make idle threads evaluate `can_run` again; the caller holds the lock."""
        if self._asleep:
            self._changed.notify_all()

    def wait(self, reached, what):
        """Return once `reached()` is true.

        Raises
        ------
        Error
            No stage can run, so that `what` is never reached. An exception of a stage is raised
            as it is.
        """
        started, within, done = self.clock(), 0.0, False
        try:
            while not done:
                # An interrupt waits until the stage that this thread runs has ended.
                deferral: AbstractContextManager[list] = (
                    nullcontext([]) if self._threads else _deferred_interrupt())
                with deferral as pending:
                    while not done and not pending:
                        done, stage = self._next(reached, what)
                        if stage >= 0:
                            within += self._run(stage)
                for handler, arguments in pending:
                    handler(*arguments)
        finally:
            self.waited += self.clock() - started - within

    def _next(self, reached, what):
        """Whether `reached()`; else a claimed stage, or -1 after a wait."""
        with self.lock:
            self._raise_failure()
            if reached():
                return True, -1
            stage = -1 if self._threads else self._claim()
            if stage < 0:
                if not any(self._busy) and not any(True for _ in self._ready()):
                    raise Error(f"no stage can run, and {what} is not reached")
                self.wake()
                self._sleep()
            return False, stage

    def _ready(self):
        """Stages that can run: their indices, the last first."""
        if self._failure is None:
            for at in self._backwards:
                if not self._busy[at] and self.stages[at].can_run(self.done[at]):
                    yield at

    def _claim(self):
        """Reserve a stage that can run for this thread: its index, or -1."""
        at = self.choose(self._ready())
        if at >= 0:
            self._busy[at] = True
        return at

    def _sleep(self):
        self._asleep += 1
        try:
            self._changed.wait(_POLL_S)
        finally:
            self._asleep -= 1

    def _run(self, at):
        """Run a claimed stage; return the seconds that it took."""
        stage, number = self.stages[at], self.done[at]
        started = self.clock()
        try:
            if self.before is not None:
                self.before(stage.name, number)
            stage.run(number)
        except BaseException as error:
            with self.lock:
                self._failure, self._busy[at] = error, False
                self.wake()
            raise
        took = self.clock() - started
        with self.lock:
            self.seconds[at] += took
            self.done[at] += 1
            self._busy[at] = False
            self.wake()
        return took

    def _work(self):
        while True:
            with self.lock:
                at = -1
                while at < 0:
                    if self._stopping or self._failure is not None:
                        return
                    at = self._claim()
                    if at < 0:
                        self._sleep()
            try:
                self._run(at)
            except BaseException:  # `_run` keeps it, and `wait` raises it
                return

    def _raise_failure(self):
        if self._failure is not None:
            raise self._failure


@contextmanager
def _deferred_interrupt():
    """Keep a first SIGINT in a list of (handler, arguments), so that a stage runs to its end.

    A second SIGINT reaches its handler at once.
    """
    pending: list = []
    handler: Any = None
    if threading.current_thread() is threading.main_thread():
        handler = _get_handler(signal.SIGINT)
    if not callable(handler):
        yield pending
        return

    def defer(*arguments):
        if pending:
            handler(*arguments)
        pending.append((handler, arguments))

    _set_handler(signal.SIGINT, defer)
    try:
        yield pending
    finally:
        _set_handler(signal.SIGINT, handler)


def _stop(stages):
    """End the threads of a program that ends: at exit a thread inside PyTorch would abort it."""
    if stages() is not None:
        stages().stop()
