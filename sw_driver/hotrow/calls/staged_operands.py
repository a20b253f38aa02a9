"""What lies where the device finds it, for several commands."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TypeVar

from ..contract.errors import BatchError
from ..memory.buffer import Held
from ..queues.commands import Commands


class StagedOperands:
    """Operands in memory that is kept until `release`.

    Attributes
    ----------
    operands : dict of str to int
    """

    what = ""

    def __init__(self, operands: dict[str, int], held: Held, lock: RLock):
        self.operands, self._held, self._lock = operands, held, lock
        self._users: set[Held] = set()
        self._released = False

    def use(self, held: Held, lock: RLock) -> None:
        """Keep the memory until a command of the device with that lock has completed."""
        if held is not self._held:
            if lock is not self._lock:
                raise BatchError(f"the {self.what} was staged for another device: stage it for "
                                 f"this one")
            if self._released:
                raise BatchError(f"the staged {self.what} was released: stage it again")
            held.at_end(self._end_use, held)
            self._users.add(held)

    def release(self) -> None:
        """Give the memory back as soon as no command uses it; a second call does nothing."""
        with self._lock:
            self._released = True
            if not self._users:
                self._held.release()

    def _end_use(self, held: Held) -> None:
        self._users.discard(held)
        if self._released and not self._users:
            self._held.release()


S = TypeVar("S", bound=StagedOperands)


def hold(commands: Commands, stage: Callable[[Held], S]) -> S:
    """What `stage` stages, until its `release`."""
    held = Held()
    with commands.lock:
        commands.check_open()
        try:
            return stage(held)
        except BaseException:
            held.release()
            raise
