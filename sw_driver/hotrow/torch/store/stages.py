"""Stages of batches in flight: each in the order of the batches, as soon as it may."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ...errors import Error

_PATIENCE = 0.2  # seconds between two looks of an idle worker: a lost process must not hang


class Stage(NamedTuple):
    """One stage: its `name`, whether a batch `may` begin it, and what it does (`run`); both take
    the batch's number."""

    name: str
    may: Callable[[int], bool]
    run: Callable[[int], None]


class Stages:
    """Runs the stages of batches, on threads of its own or on that of whoever waits.

    A stage serves one batch at a time, in order, and never one that its `may` refuses; which of
    the stages runs first, when several may, decides about time only.

    Parameters
    ----------
    stages : sequence of Stage
    workers : int
        Threads; with 0 the stages run while `wait` waits.

    Members
    -------
    done : list of int
        Batches that are through each stage.
    changed : threading.Condition
        Held while `done` and what `may` looks at change.
    seconds : list of float
        That each stage took.
    waited : float
        Seconds that `wait` took beside what stages took on its own thread.
    before : callable or None
        Called with the name of a stage and a batch before it runs.
    clock : callable
        Seconds from any beginning.
    """

    def __init__(self, stages, workers=0, before=None):
        self.stages, self.workers, self.before = tuple(stages), workers, before
        self.done, self.seconds, self.waited = [0] * len(stages), [0.0] * len(stages), 0.0
        self._at = {stage.name: at for at, stage in enumerate(self.stages)}
        self.clock = time.perf_counter
        self.changed = threading.Condition(threading.RLock())
        self._busy = [False] * len(stages)
        self._failure, self._threads, self._stopping = None, [], False

    def choose(self, ready):
        """Which of the stages int[k] that may run does: the last one, so that batches get on."""
        return ready[-1]

    def through(self, name):
        """Batches that are through the stage of that name."""
        return self.done[self._at[name]]

    def begun(self, name):
        """Batches that have begun it."""
        with self.changed:
            return self.through(name) + self._busy[self._at[name]]

    def start(self):
        """Let the threads work, if there are any."""
        with self.changed:
            self._raise_failure()
            if self._threads or not self.workers:
                return
            self._stopping = False
            self._threads = [threading.Thread(target=self._work, daemon=True)
                             for _ in range(self.workers)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """End the threads, each after the stage that it is in."""
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def wake(self):
        """Look again at what may run."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, reached, what):
        """Return once `reached()`.

        Raises
        ------
        Error
            If no stage can go on, with `what` could not be reached.
        The exception of a stage.
        """
        started, within = self.clock(), 0.0
        try:
            while True:
                with self.changed:
                    self._raise_failure()
                    if reached():
                        return
                    stage = None if self._threads else self._claim()
                    if stage is None:
                        if not any(self._busy) and not self._ready():
                            raise Error(f"no stage can go on, and {what} is not reached")
                        self.changed.notify_all()
                        self.changed.wait(_PATIENCE)
                        continue
                within += self._run(stage)
        finally:
            self.waited += self.clock() - started - within

    def _ready(self):
        return [at for at, stage in enumerate(self.stages)
                if not self._busy[at] and self._failure is None and stage.may(self.done[at])]

    def _claim(self):
        """Take up a stage: its place, or None where none may run."""
        ready = self._ready()
        if not ready:
            return None
        at = self.choose(ready)
        self._busy[at] = True
        return at

    def _run(self, at):
        """Run a stage that was claimed: the seconds that it took."""
        stage, number = self.stages[at], self.done[at]
        started = self.clock()
        try:
            if self.before is not None:
                self.before(stage.name, number)
            stage.run(number)
        except BaseException as error:
            with self.changed:
                self._failure, self._busy[at] = error, False
                self.changed.notify_all()
            raise
        took = self.clock() - started
        with self.changed:
            self.seconds[at] += took
            self.done[at] += 1
            self._busy[at] = False
            self.changed.notify_all()
        return took

    def _work(self):
        while True:
            with self.changed:
                at = None
                while at is None:
                    if self._stopping or self._failure is not None:
                        return
                    at = self._claim()
                    if at is None:
                        self.changed.wait(_PATIENCE)
            try:
                self._run(at)
            except BaseException:  # kept, and raised to whoever waits
                return

    def _raise_failure(self):
        if self._failure is not None:
            raise self._failure
