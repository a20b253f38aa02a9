"""Whole tables that the ranks of one run share out, for those who only read."""

from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import Error
from .export import export_table
from .manifest import STEP_BITS, numbers, rank_folders, read_manifest
from .reader import TRIES, Reader, check_out
from .rows import flat_rows
from .table import Table


class RankReader:
    """Tables as they are at a commit that all ranks have, by rows of the whole tables.

    Parameters
    ----------
    path : str or Path
        Folder of the ranks' folders.
    commit : int, optional
        By default the last one that all ranks have.
    ring : bool
        As in `Reader`.

    Attributes
    ----------
    number : int
        Of the commit.
    tables : dict
        `Table` by name, of the whole tables.

    Raises
    ------
    Error
        A rank's folder is missing or damaged, or the ranks have no such commit in common.
    """

    def __init__(self, path: str | PathLike[str], commit: int | None = None,
                 ring: bool = True) -> None:
        self._folder, found = Path(path), rank_folders(Path(path))
        worlds = {world for _, world in found}
        if len(worlds) != 1 or len(found) not in worlds:
            raise Error(f"the folder {path} has {', '.join(folder.name for folder, _ in found)}: "
                        f"copy the folders of all ranks of one run together")
        for attempt in range(TRIES):
            try:
                self._attach([folder for folder, _ in found], commit, ring)
                return
            except Error:  # a commit may have gone meanwhile
                if attempt == TRIES - 1 or not self._moved:
                    raise

    def _attach(self, folders: list[Path], commit: int | None, ring: bool) -> None:
        before = [numbers(folder) for folder in folders]
        self._readers = list[Reader]()
        try:
            steps = [{read_manifest(folder, number)["step"]: number for number in known}
                     for folder, known in zip(folders, before, strict=True)]
            common = sorted(set.intersection(*map(set, steps)))
            wanted = [step for step in common if commit in (None, step >> STEP_BITS)]
            if not wanted:
                raise Error(f"the ranks in {self._folder} have no commit"
                            f"{'' if commit is None else f' {commit}'} in common: they have "
                            f"{[step >> STEP_BITS for step in common]}")
            self.number = wanted[-1] >> STEP_BITS
            for folder, own in zip(folders, steps, strict=True):
                self._readers.append(Reader(folder, own[wanted[-1]], ring))
        except (Error, FileNotFoundError) as error:
            self.close()
            self._moved = before != [numbers(folder) for folder in folders]
            raise error if isinstance(error, Error) else Error(f"a commit went: {error}") from error
        self.tables = {name: table.whole for name, table in self._readers[0].tables.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, table: str, ids: ArrayLike, out: NDArray[Any] | None = None,
             state: bool = False) -> Any:
        """Read rows of a whole table; as `Reader.rows`."""
        about, listed = self._table(table), flat_rows(ids)
        if listed.size and (listed.min() < 0 or listed.max() >= about.rows):
            raise Error(f"expected rows 0 to {about.rows - 1} of table {table!r}, got "
                        f"{listed.min()} to {listed.max()}")
        found: list[NDArray[Any]] = []
        for reader in self._readers:
            first, step, _ = reader.tables[table].part or (0, 1, 0)
            at = np.flatnonzero(listed % step == first) if listed.size else np.arange(0)
            parts = reader.rows(table, listed[at] // step, state=state)
            parts = parts if state else (parts,)
            found = found or [np.empty((listed.size, *part.shape[1:]), part.dtype)
                              for part in parts]
            for whole, part in zip(found, parts, strict=True):
                whole[at] = part
        if out is not None:
            check_out(out, found[0].dtype, found[0].shape)
            out[:] = found[0]
            found[0] = out
        return tuple(found) if state else found[0]

    def export(self, table: str, file: str | PathLike[str], ids: ArrayLike | None = None) -> None:
        """Write a whole table, or some of its rows, to a safetensors file; as `Reader.export`."""
        export_table(self, self._table(table), file, ids)

    def verify(self) -> None:
        """Read all that the commit has at each rank; as `Reader.verify`."""
        for reader in self._readers:
            reader.verify()

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise Error(f"the folder {self._folder} has tables {sorted(self.tables)}, not {name!r}")
        return self.tables[name]

    def close(self) -> None:
        """Let the files go."""
        for reader in self._readers:
            reader.close()


def open(path: str | PathLike[str], commit: int | None = None) -> Reader | RankReader:
    """Open the tables of a commit, without a lock: any number of processes may read them.

    Parameters
    ----------
    path : str or Path
        Folder of a store, or of the stores of several ranks.
    commit : int, optional
        A commit that exists; by default the last one.

    Raises
    ------
    Error
        There is no such commit, or a file is damaged.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from hotrow.tables import Store, Table, open
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Store(folder, [Table("item", 100, 4)]) as store:
    ...         store.rows(["item"], [0]).append([7], np.ones((1, 4), np.float32))
    ...         number = store.commit()
    ...     with open(folder) as reader:
    ...         reader.rows("item", [3, 7]).sum(1).tolist()
    [0.0, 4.0]
    """
    ranks = not numbers(Path(path)) and rank_folders(Path(path))
    return RankReader(path, commit) if ranks else Reader(path, commit)
