"""Operations that Ctrl-C, or another signal that Python handles, does not split."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def deferred_interrupt() -> Iterator[Pending]:
    """Keep a first signal that Python handles in a list of (handler, arguments), for `deliver`.

    A second one reaches its handler at once. Inside another deferral the list stays empty, and
    the outer one keeps the signal.
    """
    pending: Pending = []
    deferred: list[tuple[int, _Deferral]] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler) and (not isinstance(handler, _Deferral) or handler.ended):
                    deferred.append((number, _Deferral(handler, pending)))
                    _signal.signal(*deferred[-1])
        yield pending
    finally:
        for _, deferral in deferred:
            deferral.ended = True
        for number, deferral in deferred:
            _signal.signal(number, deferral.handler)


def deliver(pending: Pending) -> None:
    """Call the handlers of interrupts that `deferred_interrupt` kept."""
    for handler, arguments in pending:
        handler(*arguments)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay a first signal to the end of the block; an exception of the block replaces it."""
    with deferred_interrupt() as pending:
        yield
    deliver(pending)
