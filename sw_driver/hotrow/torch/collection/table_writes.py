"""Writes into tables by others than their store: noticed, and taken over or refused."""

from ...contract.errors import Error
from ..optim.interrupts import uninterrupted


class TableWrites:
    """Watches the versions of the tables' memory.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection
    groups : sequence of TableGroup
    """

    def __init__(self, collection, groups):
        self._collection = collection
        self._arrays = [array for group in groups for array in (
            group.tables.rows.array, group.tables.rows.side) if array is not None]
        self._versions: list[int] | None = None

    def expect(self):
        """Accept writes up to the next call of `adopt`, of rows that no slot holds."""
        self._versions = None

    def adopt(self):
        """Notice writes, send them to a card that has the tables, and drop the slots' copies.

        Raises
        ------
        Error
            Slots hold rows that were trained since the last `flush`, or batches are in flight.
        """
        versions = [array._version for array in self._arrays]
        if versions == self._versions:
            return
        store, window = self._collection.store, self._collection.store.window
        with uninterrupted():
            store.upload()  # the next call repeats it if it fails
            if self._versions is not None and window is not None and not store.closed:
                self._collection.finish()
                if window.finished != window.submitted or any(
                        bool(each.dirty.any()) for each in store.storages):
                    self._versions = versions  # the caller may go on with the trained rows
                    raise Error("a table was written in place while slots hold trained rows of "
                                "it, or batches are in flight: call flush() (state_dict() and "
                                "weight do) after the last step and before the write")
                store.reset()
            self._versions = versions
