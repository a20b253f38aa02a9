"""Which steps of optimizers run: to such a step a RowsParameter is a tensor of one zero."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import ref


class RunningStep(dict[str, Any]):
    """Keywords of the call of a step: they live as long as the call, also if it raises."""

    pauses = False

    def outside(self, argument: Any) -> Any:
        """An argument of the step; if it is a closure, the step pauses while it runs."""
        return _pausing(ref(self), argument) if callable(argument) else argument


def _pausing(step: ref[RunningStep], closure: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> Any:
        running = step()
        assert running is not None, "the step calls its closure"
        running.pauses = True
        try:
            return closure()
        finally:
            running.pauses = False

    return call


class _Begun(threading.local):
    """Steps that a thread has begun, among them some that have ended."""

    def __init__(self) -> None:
        self.steps: list[ref[RunningStep]] = []


_begun = _Begun()


def begin_step(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arguments for the call of an optimizer's step, which runs as long as they live."""
    step = RunningStep(kwargs)
    step.update({name: step.outside(each) for name, each in kwargs.items()})
    _begun.steps = [*(each for each in _begun.steps if each() is not None), ref(step)]
    return (args[0], *map(step.outside, args[1:])), step


def stepping() -> bool:
    """Whether a step runs in this thread."""
    return any(step is not None and not step.pauses for step in (each() for each in _begun.steps))


def end_steps() -> None:
    """Forget steps whose call only an error holds that was kept: they run no closure."""
    _begun.steps = [each for each in _begun.steps if (step := each()) is not None and step.pauses]
