"""Locks and threads of a process that forks: a call in its child works, or is an Error, at once."""

import functools
import os
from _thread import RLock
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar
from weakref import WeakSet

from ..contract.errors import Error

T = TypeVar("T")
_RLock: Any = RLock


class ForkLock(_RLock):  # type: ignore[misc]
    """A reentrant lock of what a child of the process has a copy of.

    Where another thread holds it when the process forks, that thread is not in the child, and what
    the lock guards may be half changed there: then it is an Error to take it.
    """

    __slots__ = ()

    def __new__(cls) -> "ForkLock":
        made: ForkLock = _RLock.__new__(cls)
        _LOCKS.add(made)
        return made


class _LeftLocked(_RLock):  # type: ignore[misc]
    __slots__ = ()

    def acquire(self, *_: object, **__: object) -> bool:
        raise Error("the process forked while another thread of its parent was using this object: "
                    "its copy here may be half changed. Use it in the parent, or make one here")

    __enter__ = acquire


class cached_property(functools.cached_property[T]):  # as that of the library
    """`functools.cached_property` without the lock that Python 3.11 has for all objects of a class:
    a child would wait for it for ever. Two threads may compute a value twice."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()


_LOCKS: WeakSet[ForkLock] = WeakSet()
_forks = 0


def forks() -> int:
    """How often the process and those before it forked: another number in every child."""
    return _forks


def _begin() -> None:
    """Begin in a child."""
    global _forks
    _forks += 1
    for lock in tuple(_LOCKS):
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()
            lock.__class__ = _LeftLocked


os.register_at_fork(after_in_child=_begin)
