"""What happens to the rows of a collection between its batches."""

from __future__ import annotations

from collections.abc import Callable

from ...contract.errors import Error
from ...system.interrupts import uninterrupted
from ..optim.staging import GradientStage
from ..store.base import Store


class Lifecycle:
    """Releases batches, takes over what others wrote into tables, and empties or closes the store.

    It watches the versions of the tables' memory. Writes of others are taken over, or refused.

    Parameters
    ----------
    store : Store
    staging : GradientStage
        While it holds gradients, no batch is released.

    Attributes
    ----------
    staging : GradientStage
    lock : RLock
        Of forward, staging and step, for threads that share a model.
    """

    def __init__(self, store: Store, staging: GradientStage) -> None:
        self._store, self.staging = store, staging
        self.lock = staging.lock
        self._arrays = [part for group in self._store.groups if group.tables.in_memory
                        for local in range(group.tables.count)
                        for part in group.tables.table(local) if part is not None]
        self._versions: list[int] | None = None

    @property
    def steps(self) -> int:
        """Steps of the optimizer that were applied."""
        return self.staging.steps

    def expect_writes(self) -> None:
        """Accept writes up to the next call of `adopt_writes`, of rows that no slot holds."""
        self._versions = None

    def adopt_writes(self) -> None:
        """Notice writes, send them to a card that has the tables, and drop the slots' copies.

        Raises
        ------
        Error
            Slots hold rows that were trained since the last `flush`, or batches are in flight.
        """
        versions = [array._version for array in self._arrays]
        if versions == self._versions:
            return
        card = self._store.card
        with uninterrupted():
            self._store.upload()  # the next call repeats it if it fails
            if self._versions is not None and card is not None and not card.closed:
                self.finish()
                if card.window.finished != card.window.submitted or any(
                        bool(each.dirty.any()) for each in card.storages):
                    self._versions = versions  # the caller may go on with the trained rows
                    raise Error("a table was written in place while slots hold trained rows of "
                                "it, or batches are in flight: call flush() (state_dict() and "
                                "weight do) after the last step and before the write")
                self._store.reset()
            self._versions = versions

    def finish(self) -> None:
        """Release batches whose backward has run or cannot run, unless gradients are staged."""
        self._store.finish(holds_gradients=not self.staging.empty)

    def flush(self) -> None:
        """Bring the tables' memory up to date."""
        with self.staging.lock:
            self.adopt_writes()
            self._store.flush()
            self.staging.finite.settle(wait=True)

    def reset(self) -> None:
        """Write back, and empty the slots."""
        with self.lock:
            self.finish()
            self.adopt_writes()
            self._store.flush()
            self._store.reset()

    def close(self, save: Callable[[], None]) -> None:
        """Write back, end the threads, and close a device that the store owns; `save` what belongs
        to the tables if every step and load was whole."""
        with self.lock:
            self._store.close()
        if not self.staging.broken:
            save()
