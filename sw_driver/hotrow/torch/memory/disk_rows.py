"""Rows of a group's tables in a store on disk, by flat row."""

import os
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...contract.errors import Error
from ...tables import Store
from ...tables.rows import Ticket
from .rows import RowKind, Rows

_CHUNK = 1 << 16  # rows of a step over whole tables


class DiskRows:
    """Reads and appends rows of tables of one kind; any thread may call.

    Parameters
    ----------
    store : hotrow.tables.Store
    names : sequence of str
        Of the tables.
    first : sequence of int
        Flat row of each table's row 0.
    kind : RowKind
    existed : bool
        Whether the store has had commits.
    """

    def __init__(self, store: Store, names: Sequence[str], first: Sequence[int], kind: RowKind,
                 existed: bool) -> None:
        self.store, self.kind, self.existed = store, kind, existed
        self.changed = False  # rows were appended since the last commit
        self.closed = False
        self._owner, self._rows = os.getpid(), store.rows(names, first)

    def check_open(self) -> None:
        """Raise Error after `close`, and in a process that was forked from the one that has the
        store."""
        if os.getpid() != self._owner:
            raise Error(f"the tables belong to process {self._owner}, and process {os.getpid()} "
                        f"was forked from it: both would train their rows; open the tables after "
                        f"the fork, or in another folder")
        if self.closed:
            raise Error("the collection is closed, and does not train: open its tables again")

    def check_room(self) -> None:
        """Raise Error where the disk is full, and `commit` alone has room."""
        self.check_open()
        self.store.check_room()

    def begin(self, flat: Tensor) -> Ticket:
        """Begin to read flat rows, integers [n]: a ticket for `finish`."""
        self.check_open()
        return self._rows.begin(flat.numpy())

    def finish(self, ticket: Ticket, rows: Rows) -> None:
        """Write the rows of a ticket, as they are now, to the first of Rows in host memory."""
        self._rows.finish(ticket, rows.array.view(torch.uint8).numpy(),
                          None if rows.side is None else rows.side.numpy())

    def read(self, flat: Tensor) -> Rows:
        """Copies of flat rows, integers [n]: Rows."""
        rows = self.kind.allocate(len(flat))
        if len(flat):
            self.finish(self.begin(flat), rows)
        return rows

    def append(self, flat: Tensor, rows: Rows) -> None:
        """Distinct flat rows, integers [n], are those of Rows in host memory from here on."""
        if len(flat):
            self.check_open()
            self.changed = True
            self._rows.append(flat.numpy(), rows.array.view(torch.uint8).numpy(),
                              None if rows.side is None else rows.side.numpy())

    def scan(self, first: int, count: int) -> Iterator[tuple[slice, Rows]]:
        """Read `count` flat rows from `first` on.

        Yields
        ------
        (slice, Rows)
            A part of 0 to count - 1, and copies of its rows, while the next are on their way.
        """
        parts = [slice(begin, min(begin + _CHUNK, count)) for begin in range(0, count, _CHUNK)]
        tickets = (self.begin(torch.arange(first + each.start, first + each.stop))
                   for each in parts)
        ticket = next(tickets, None)
        for part in parts:
            following, rows = next(tickets, None), self.kind.allocate(part.stop - part.start)
            assert ticket is not None
            self.finish(ticket, rows)
            ticket = following
            yield part, rows

    def assign(self, first: int, weights: Tensor | None, state: Tensor | None) -> None:
        """Write weights [n, dim], state [n] or [n, columns], or both, of flat rows from `first` on.
        """
        given = [each for each in (weights, state) if each is not None]
        for part, rows in self.scan(first, len(given[0])):
            for here, there in ((rows.weights, weights), (rows.state, state)):
                if there is not None:
                    assert here is not None, "a table without state gets none"
                    here.copy_(there[part])
            self.append(torch.arange(first + part.start, first + part.stop), rows)
