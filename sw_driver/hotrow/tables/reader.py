"""Tables of a commit for those who only read, beside a process that trains them."""

from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import Error
from ..operands.integers import whole
from ..system.forks import ForkLock
from . import bases
from .export import CHUNK, export_table
from .manifest import check_alone, manifest_path, numbers, read_manifest
from .native_store import NativeStore
from .rows import Rows, flat_rows
from .table import Table

TRIES = 100  # of a commit that goes while its files are opened


def check_out(out: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise Error unless rows can be written to an array."""
    if not isinstance(out, np.ndarray) or (out.shape, out.dtype) != (shape, dtype) or (
            not out.flags.writeable):
        raise Error(f"expected out of {dtype} {list(shape)} to write to, got "
                    f"{type(out).__name__ if not isinstance(out, np.ndarray) else out.dtype} "
                    f"{list(np.shape(out))}")


class Reader:
    """Tables as they are at a commit, whose files stay readable until `refresh` or `close`.

    Parameters
    ----------
    path : str or Path
    commit : int, optional
        By default the last one.
    ring : bool
        Whether io_uring reads where the system allows it, else threads.

    Attributes
    ----------
    number : int
        Of the commit.
    tables : dict
        `Table` by name.
    """

    def __init__(self, path: str | PathLike[str], commit: int | None = None,
                 ring: bool = True) -> None:
        self._folder, self._ring, self._lock = Path(path).absolute(), ring, ForkLock()
        self._attach(commit)

    def _attach(self, commit: int | None) -> None:
        for _ in range(TRIES):
            manifest = self._find(commit)
            for kept in manifest["tables"]:
                asked = bases.of(kept["base"])
                wrong = asked and bases.changed(kept["base"], asked.kept(kept))
                if wrong:
                    raise Error(f"table {kept['name']!r} in {self._folder}: {wrong}")
            native = NativeStore(self._folder)
            tables = {kept["name"]: Table.of(kept) for kept in manifest["tables"]}
            try:
                native.open(manifest, tables, manifest["number"] + 1, ring=self._ring)
            except Error:
                native.close()
                if manifest_path(self._folder, manifest["number"]).exists():
                    raise
                continue  # it went meanwhile
            self._native, self._manifest, self.tables = native, manifest, tables
            self._views = {name: Rows(native, [table], [at], [0])
                           for at, (name, table) in enumerate(tables.items())}
            return
        raise Error(f"the folder {self._folder} had another commit at each of {TRIES} attempts: "
                    f"open one that is kept, by its number")

    def _find(self, commit: int | None) -> dict[str, Any]:
        commit = None if commit is None else whole(commit, "commit")
        while True:
            known = numbers(self._folder)
            if not known:
                check_alone(self._folder)
            if not known or (commit is not None and commit not in known):
                raise Error(f"the folder {self._folder} has no commit"
                            f"{'' if commit is None else f' {commit}'}: it has {known}")
            number = known[-1] if commit is None else commit
            try:
                return read_manifest(self._folder, number)
            except FileNotFoundError:
                continue  # it went meanwhile

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def number(self) -> int:
        """Of the commit."""
        return int(self._manifest["number"])

    def rows(self, table: str, ids: ArrayLike, out: NDArray[Any] | None = None,
             state: bool = False) -> Any:
        """Read rows.

        Parameters
        ----------
        table : str
        ids : integers [n]
            In any order, also repeated.
        out : [n, dim], optional
            Where to write them.
        state : bool
            Whether to return the optimizer's state too.

        Returns
        -------
        [n, dim], or with `state` (rows, state)
            float32, float16, or bfloat16 as uint16. State is float32[n] where a row has one number,
            else float32[n, columns].

        Raises
        ------
        Error
            There is no such table or row, no state, or the disk did not give a row.
        """
        about = self._table(table)
        if state and about.state is None:
            raise Error(f"table {table!r} of {self._folder} has no state")
        listed = flat_rows(ids)
        dtype = np.dtype(about.dtype if about.dtype != "bfloat16" else np.uint16)
        if out is not None:
            check_out(out, dtype, (listed.size, about.dim))
        direct = out is not None and about.elements == about.dim and out.flags.c_contiguous
        array = out if out is not None and direct else np.empty(
            (listed.size, about.elements), dtype)
        side = np.empty(listed.size, np.float32) if about.state == "row" else None
        with self._lock:
            view = self._views[table]
            starts = [*range(0, listed.size, CHUNK), listed.size]
            tickets = [view.begin(listed[:CHUNK])]
            try:
                for begin, end in pairwise(starts):
                    if end < listed.size:
                        tickets.append(view.begin(listed[end:end + CHUNK]))
                    view.finish(tickets.pop(0), array[begin:end],
                                None if side is None else side[begin:end])
            finally:
                view.end()
        if out is not None and not direct:
            out[:] = array[:, :about.dim]
        rows = array[:, :about.dim] if out is None else out
        return (rows, side if side is not None else array[:, about.dim:]) if state else rows

    def changed(self, table: str, since: int, until: int | None = None
                ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Rows that were trained after a commit.

        Parameters
        ----------
        table : str
        since : int
            Number of a commit, which need not exist; 0 for all rows that were ever trained.
        until : int, optional
            Number of a commit that exists; by default the one of this reader.

        Returns
        -------
        ids : int64[n]
            Ascending.
        rows : [n, dim]
            As they are at `until`.

        Raises
        ------
        Error
            Rows of `since` share blocks with later ones, because it is not kept and long ago, or a
            rollback dropped it.
        """
        since, until = whole(since, "since"), until if until is None else whole(until, "until")
        if until is not None and until != self.number:
            with Reader(self._folder, until, self._ring) as other:
                return other.changed(table, since)
        found = self._manifest
        kept = sorted(number for name, number in found["kept"].items() if name)  # not held alone
        self._table(table)
        if since not in (0, *kept) and (
                not found["history_from"] <= since <= self.number
                or any(first <= since <= last for first, last in found["gaps"])):
            raise Error(f"the rows that changed since commit {since} are not known at commit "
                        f"{self.number} of {self._folder}: expected 0, a commit that is kept "
                        f"({kept}), or one from {found['history_from']} "
                        f"to {self.number} that no rollback dropped ({found['gaps']})")
        with self._lock:
            ids = self._native.changed(list(self.tables).index(table), since)
        return ids, self.rows(table, ids)

    def export(self, table: str, file: str | PathLike[str], ids: ArrayLike | None = None) -> None:
        """Write a table, or some of its rows, to a safetensors file.

        The file has a tensor of the table's name, [rows, dim] in its dtype; with `ids` [n, dim],
        and int64[n] named "<table>.ids".

        Raises
        ------
        Error
            There is no such table or row, or the file cannot be written.
        """
        export_table(self, self._table(table), file, ids)

    def refresh(self) -> int:
        """Go on to the last commit: its number."""
        with self._lock:
            self._native.check_open()
            manifest = self._find(None)
            if manifest["number"] == self.number:
                return self.number
            if manifest["store"] == self._manifest["store"]:
                try:
                    self._native.load(manifest)
                    self._native.name(manifest["number"],
                                      {each[0] for each in manifest["segments"]}, ())
                    self._manifest = manifest
                    return self.number
                except Error:
                    pass  # a rollback, a file that went meanwhile, or damage: opening again says it
            old = self._native
            try:
                self._attach(None)
            finally:
                old.close()
            return self.number

    def verify(self) -> None:
        """Read all that the commit has, and the files of the tables' bases.

        Raises
        ------
        Error
            With file and offset of what is damaged.
        """
        for table in self._manifest["tables"]:
            bases.verify(table["base"])
        with self._lock:
            self._native.call("verify")

    def close(self) -> None:
        """Let the files go."""
        with self._lock:
            self._native.close()

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Error(f"the folder {self._folder} has tables {sorted(self.tables)}, not {name!r}")
        return self.tables[name]
