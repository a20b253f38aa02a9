"""What an asynchronous call returns."""


class Future:
    """The result of a command, perhaps still under way.

    Commands of one queue complete in order, so a future that is done implies that every earlier
    one of its queue is.
    """

    def __init__(self, queue, label, finish, held):
        self.label = label  # the command in words
        self._queue, self._finish, self._held = queue, finish, held
        self._done, self._value, self._error = False, None, None
        self._completion = None

    @classmethod
    def of(cls, value):
        """A future that is done, of a call that needed no command."""
        future = cls(None, "", None, None)
        future._done, future._value = True, value
        return future

    def done(self) -> bool:
        """Whether `result` will return or raise at once."""
        if not self._done:
            self._queue.look()
        return self._done

    def result(self, timeout: float | None = None):
        """Wait for the command and return what it gave.

        Parameters
        ----------
        timeout : float, optional
            Seconds; the device's own time-out when absent.

        Raises
        ------
        TimeoutError
            If the command has not completed by then; `result` may be called again.
        BatchError, CommandError, DeviceError
            If the command failed.
        """
        if not self._done:
            self._queue.drive(lambda: self._done, self.label, timeout)
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def cycles(self) -> int | None:
        """Cycles that the command took; None while it is under way or if it needed none."""
        return None if self.span is None else self.span[1] - self.span[0]

    @property
    def span(self) -> tuple[int, int] | None:
        """Numbers of its first and last cycle, of the device's counter; None as `cycles`."""
        if self._completion is None:
            return None
        return int(self._completion["start"]), int(self._completion["end"])

    def complete(self, completion):
        """Turn the completion into the result; called by the queue."""
        self._completion = completion
        try:
            self._value = self._finish(completion)
        except Exception as error:  # belongs to whoever asks for the result
            self._error = error
        self._end()

    def fail(self, error):
        """End without a completion; called by the queue."""
        self._error = error
        self._end()

    def _end(self):
        self._done = True
        self._held.close()
        self._finish = self._held = None
