"""Time of a training step by part, and the sorts in it."""

from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import wraps

import numpy as np
import torch

DEVICE = "device"  # the part of the transport's own calls
TRANSPORT = ("read_register", "write_register", "wait", "attach", "detach")
SORTS = {
    torch: ("sort", "msort", "argsort", "unique"),
    torch.Tensor: ("sort", "msort", "argsort", "unique"),
    np: ("sort", "argsort", "lexsort", "unique", "isin", "union1d", "intersect1d", "setdiff1d"),
}


class PartClock:
    """Own time of nested parts, on one thread.

    Parameters
    ----------
    clock : callable
        Returns seconds.

    Attributes
    ----------
    seconds : Counter
        By part, without the parts inside it.
    part : str or None
        The innermost part that runs.
    """

    def __init__(self, clock):
        self.seconds: Counter = Counter()
        self._clock, self._parts, self._last = clock, [], clock()

    @property
    def part(self):
        return self._parts[-1] if self._parts else None

    @contextmanager
    def running(self, part):
        """Charge the time inside to a part."""
        self._charge()
        self._parts.append(part)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    def switch(self, part):
        """Charge the rest of the innermost part to another; outside of all parts do nothing."""
        self._charge()
        if self._parts:
            self._parts[-1] = part

    def wrap(self, owner, names, part):
        """Charge the calls of an object's methods to a part; an absent method is skipped."""
        for name in names:
            method = getattr(owner, name, None)
            if method is not None:
                setattr(owner, name, self._timed(method, part))

    def _timed(self, method, part):
        @wraps(method)
        def timed(*args, **kwargs):
            self._charge()
            self._parts.append(part)
            try:
                return method(*args, **kwargs)
            finally:
                self._charge()
                self._parts.pop()
        return timed

    def _charge(self):
        now = self._clock()
        if self._parts:
            self.seconds[self._parts[-1]] += now - self._last
        self._last = now


class SortCounter:
    """Counts the sorts of PyTorch and NumPy, those of the device left out; a context manager.

    Parameters
    ----------
    clock : PartClock

    Attributes
    ----------
    count : int
        A sort inside another is one.
    """

    def __init__(self, clock):
        self.count, self._clock, self._depth, self._patches = 0, clock, 0, ExitStack()

    def __enter__(self):
        for owner, names in SORTS.items():
            for name in names:
                before = getattr(owner, name)
                inherited = isinstance(owner, type) and name not in vars(owner)
                setattr(owner, name, self._counted(before))
                self._patches.callback(
                    *((delattr, owner, name) if inherited else (setattr, owner, name, before)))
        return self

    def __exit__(self, *_):
        self._patches.close()

    def _counted(self, function):
        @wraps(function)
        def counted(*args, **kwargs):
            self.count += not self._depth and self._clock.part != DEVICE
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
        return counted
