"""Operations that Ctrl-C, or another signal that Python handles, does not split."""

import signal
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeAlias

# Without the conversions to enumerations of module `signal`, which take longer than the rest.
_signal: Any = import_module("_signal")
# Those that a program may answer by an exception; others, as SIGSEGV, cannot wait.
_SIGNALS = tuple(int(getattr(signal, name)) for name in (
    "SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGVTALRM",
    "SIGPROF", "SIGXCPU") if hasattr(signal, name))
Pending: TypeAlias = list[tuple[Any, tuple[Any, ...]]]  # handlers, and their arguments


class _Deferral:
    """A handler that keeps the arguments of a first signal, and passes a second one on."""

    def __init__(self, handler: Any, pending: Pending) -> None:
        self.handler, self.pending, self.ended = handler, pending, False

    def __call__(self, *arguments: Any) -> None:
        if self.ended:  # another handler raised an error before this one was put back
            _signal.signal(arguments[0], self.handler)
            self.handler(*arguments)
            return
        if self.pending:
            self.handler(*arguments)
        self.pending.append((self.handler, arguments))


class deferred_interrupt:
    """A block in which a first signal that Python handles is kept in a list of (handler,
    arguments), for `deliver`.

    A second one reaches its handler at once. Inside another deferral the list stays empty, and
    the outer one keeps the signal.
    """

    def __enter__(self) -> Pending:
        self._pending: Pending = []
        self._deferred: list[tuple[int, _Deferral]] = []
        try:
            if threading.get_ident() == threading.main_thread().ident:
                for number, handler in zip(
                        _SIGNALS, map(_signal.getsignal, _SIGNALS), strict=True):
                    kind = type(handler)
                    if handler is None or kind is int or (
                            kind is _Deferral and not handler.ended):
                        continue  # not of Python, or deferred
                    self._deferred.append((number, _Deferral(handler, self._pending)))
                    _signal.signal(*self._deferred[-1])
        except BaseException:
            self._end()
            raise
        return self._pending

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for _, deferral in self._deferred:
            deferral.ended = True
        for number, deferral in self._deferred:
            _signal.signal(number, deferral.handler)


def deliver(pending: Pending) -> None:
    """Call the handlers of interrupts that `deferred_interrupt` kept."""
    for handler, arguments in pending:
        handler(*arguments)


class uninterrupted(deferred_interrupt):
    """A block at whose end a first signal is delivered; an exception of the block replaces it."""

    def __exit__(self, *error: object) -> None:
        self._end()
        if error[0] is None:
            deliver(self._pending)


def call_all(steps: Iterable[Callable[[], object]]) -> None:
    """Call each step, uninterrupted, whatever the others raise; then raise the first error."""
    failure: BaseException | None = None
    with uninterrupted():
        for step in steps:
            try:
                step()
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure
