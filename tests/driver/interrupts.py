"""Ctrl-C before a chosen line of the driver, and gathers whose results are known."""

import sys
from pathlib import Path

import hotrow
import numpy as np

DRIVER = str(Path(hotrow.__file__).parent)
ROWS = 64  # of the table, each with its number in every element


class Interrupt:
    """A trace function that raises KeyboardInterrupt before one line of the driver.

    Parameters
    ----------
    at : int
        Number of the line, in the order in which lines are reached.
    """

    def __init__(self, at):
        self.at, self.reached, self.where = at, 0, None

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(DRIVER):
            return None
        if event == "line":
            self.reached += 1
            if self.reached == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def interrupted(call, at):
    """Call; KeyboardInterrupt comes before line number `at`. Whether it came, and where."""
    trace, before = Interrupt(at), sys.gettrace()
    try:
        sys.settrace(trace)
        call()
    except KeyboardInterrupt:
        return trace.where
    finally:
        sys.settrace(before)  # of coverage.py
    return None


def gathers(device, table, rng):
    """Gathers to memory of the driver and to an array of the caller: (future, expected array)."""
    for slots in rng.permutation(16)[:5], None:
        rows, out = rng.integers(0, ROWS, 5), None
        if slots is not None:
            out = hotrow.empty((16, 8), np.float32)
            out[:] = -1
        future = device.gather_async((table, rows), out=out, slots=slots)
        expected = np.full((5 if out is None else 16, 8), -1, np.float32)
        expected[slice(None) if slots is None else slots] = rows[:, None]
        yield future, expected
