"""What an asynchronous call returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

from ..memory.buffer import Held

T = TypeVar("T")
Completion: TypeAlias = dict[str, int]  # the fields of `contract.COMPLETION`


class Driven(Protocol):
    """The queue of a command that may be under way."""

    def look(self) -> None:
        """Take the completions that have arrived."""

    def drive(self, ended: Callable[[], bool], what: str, timeout: float | None) -> None:
        """Let the device run until `ended()`; raise after `timeout` seconds."""


class Future(Generic[T]):
    """The result of a command that may be under way.

    Commands of one queue complete in order, so a future that is done implies that every earlier
    future of its queue is.
    """

    def __init__(self, queue: Driven | None, label: str, number: int = 0,
                 finish: Callable[[Completion], T] | None = None, held: Held | None = None,
                 lost: Callable[[], None] | None = None):
        self.label, self.number = label, number  # the command in words, and its number in the queue
        self.held = held or Held()
        self._queue, self._finish, self._lost = queue, finish, lost
        self._done = False
        self._value: T = None  # type: ignore[assignment]  # until it is done
        self._error: Exception | None = None
        self._completion: Completion | None = None

    @classmethod
    def of(cls, value: T) -> Future[T]:
        """A future that is done, of a call that needed no command."""
        future = cls(None, "")
        future._done, future._value = True, value
        return future

    def done(self) -> bool:
        """Whether `result` will return or raise at once."""
        if not self._done and self._queue is not None:
            self._queue.look()
        return self._done

    def result(self, timeout: float | None = None) -> T:
        """Wait for the command and return its result.

        Parameters
        ----------
        timeout : float, optional
            Seconds; the device's own limit when absent.

        Raises
        ------
        TimeoutError
            If the command has not completed by then; `result` may be called again.
        BatchError, CommandError, DeviceError, TransportError
            If the command failed, or the device is gone.
        """
        if not self._done and self._queue is not None:
            self._queue.drive(self.ended, self.label, timeout)
        if self._error is not None:
            raise self._error
        return self._value

    def wait(self) -> T:
        """`result`, for a caller that drops the future: an exception gives the result up."""
        try:
            return self.result()
        except BaseException as error:
            if self._lost is not None and error is not self._error:
                self._lost()
            raise

    @property
    def cycles(self) -> int | None:
        """Cycles that the command took; None while it is under way or if it needed none."""
        return None if self.span is None else self.span[1] - self.span[0]

    @property
    def span(self) -> tuple[int, int] | None:
        """The device's cycle counter at the start and end of the command; None like `cycles`."""
        completion = self._completion
        return None if completion is None else (completion["start"], completion["end"])

    def ended(self) -> bool:
        """Whether there is a result or an error."""
        return self._done

    def complete(self, completion: Completion) -> None:
        """Turn the completion into the result; called by the queue, again after an interrupt."""
        if self._done:
            return
        self._completion = completion
        try:
            if self._finish is not None:
                self._value = self._finish(completion)
        except Exception as error:  # raised where the result is asked for
            self._error = error
        self._done = True

    def fail(self, error: Exception) -> None:
        """End without a completion; called by the queue."""
        if self._done:
            return
        self._error = error
        if self._lost is not None:
            self._lost()
        self._done = True
