"""The map of ids of a table in a file, saved beside it."""

from __future__ import annotations

import os

import numpy as np

from ...contract.errors import Error
from ...ids import IdMap
from ..memory.table_file import TableFile


def save_ids(table: TableFile, ids: IdMap, begin: dict[int, int]) -> None:
    """Write a map, and rows that have not begun with their ids, in the place of an older file."""
    path = table.path + ".ids"
    with open(path + ".part", "wb") as file:
        np.savez(file, **ids.state(), begin_rows=np.array([*begin], np.int64),  # type: ignore[arg-type]
                 begin_ids=np.array([*begin.values()], np.uint64), opening=np.array(table.opening))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def load_ids(table: TableFile) -> tuple[IdMap, dict[int, int]]:
    """The map that `save_ids` wrote, and the rows that have not begun.

    Raises
    ------
    Error
        There is no such file, it is damaged, or it was not written with the rows of the table.
    """
    path = table.path + ".ids"
    try:
        with np.load(path, allow_pickle=False) as saved:
            if saved["opening"].item() != table.before:
                raise Error("it was not closed with that of the table")
            begin = zip(saved["begin_rows"].tolist(), saved["begin_ids"].tolist(), strict=True)
            return IdMap.from_state(saved), dict(begin)
    except Exception as error:
        raise Error(f"the file {path} with the ids of table {table.table!r} cannot be read "
                    f"({error}): keep it beside that of the table, or name another path for the "
                    f"table") from error
