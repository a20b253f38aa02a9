"""Operations on rows that an interrupt (Ctrl-C) does not split."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

from ...contract.errors import DeviceError

# Without the conversions to enumerations of module `signal`, which take longer than the rest.
_signal: Any = import_module("_signal")
_SIGINT = int(signal.SIGINT)
Pending: TypeAlias = list[tuple[Any, tuple[Any, ...]]]  # handlers, and their arguments


class _Deferral:
    """A handler that keeps the arguments of a first SIGINT, and passes a second one on."""

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.pending: Pending = []

    def __call__(self, *arguments: Any) -> None:
        if self.pending:
            self.handler(*arguments)
        self.pending.append((self.handler, arguments))


@contextmanager
def deferred_interrupt() -> Iterator[Pending]:
    """Keep a first SIGINT in a list of (handler, arguments), for `deliver`.

    A second SIGINT reaches its handler at once. Inside another deferral the list stays empty, and
    the outer one keeps the SIGINT.
    """
    handler: Any = None
    if threading.current_thread() is threading.main_thread():
        handler = _signal.getsignal(_SIGINT)
    if not callable(handler) or isinstance(handler, _Deferral):
        yield []
        return
    deferral = _Deferral(handler)
    _signal.signal(_SIGINT, deferral)
    try:
        yield deferral.pending
    finally:
        _signal.signal(_SIGINT, handler)


def deliver(pending: Pending) -> None:
    """Call the handlers of interrupts that `deferred_interrupt` kept."""
    for handler, arguments in pending:
        handler(*arguments)


def raise_saying(error: BaseException, what: str) -> NoReturn:
    """Raise the error that is being handled again, and say `what` has changed: an exception as a
    DeviceError, an interrupt and the like as they are."""
    said = f"{str(error) or type(error).__name__}; {what}"
    if isinstance(error, Exception):
        raise DeviceError(said) from error
    error.args = (said,)
    raise error


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay a first SIGINT to the end of the block; an exception of the block replaces it."""
    with deferred_interrupt() as pending:
        yield
    deliver(pending)
