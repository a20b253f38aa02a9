"""The maps of a collection's ids as bytes, for state dicts, commits and copies."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import torch

from ...contract.errors import Error
from ...ids import IdMap
from ..features.configs import TableConfig
from .id_batches import AnyIds, PlannedIds

_ByTable: TypeAlias = dict[int, IdMap]
_Beginning: TypeAlias = dict[int, dict[int, int]]  # id of each row that has not begun


def packed(maps: Mapping[str, tuple[IdMap, Mapping[int, int]]],
           waiting: Sequence[PlannedIds]) -> bytes:
    """Maps and rows that have not begun, by the table's name, and batches that were planned and
    not taken."""
    file = io.BytesIO()
    torch.save({
        "maps": {name: {part: torch.from_numpy(array.view(np.uint8).reshape(-1).copy())
                        for part, array in each.state().items()}
                 for name, (each, _) in maps.items()},
        "begin": {name: dict(begin) for name, (_, begin) in maps.items()},
        "waiting": [(each.source.tables, each.source.counts, each.source.ids, each.rows)
                    for each in waiting]}, file)
    return file.getvalue() + _checksum(file.getvalue())


def unpacked(state: bytes, tables: Mapping[int, TableConfig],
             ) -> tuple[_ByTable, _Beginning, list[PlannedIds]]:
    """What `packed` was given, by the number of each table.

    Raises
    ------
    Error
        It is the state of other tables, or damaged.
    """
    try:
        content, checksum = state[:-4], state[-4:]
        if checksum != _checksum(content):
            raise ValueError("its checksum is wrong")
        given = torch.load(io.BytesIO(content), weights_only=True)
        names = {config.name: number for number, config in tables.items()}
        if set(given["maps"]) != set(names):
            raise Error(f"expected maps of ids of tables {sorted(names)}, got "
                        f"{sorted(given['maps'])}")
        maps = {names[name]: IdMap.from_state(_arrays(parts))
                for name, parts in given["maps"].items()}
        for number, each in maps.items():
            _check_fits(tables[number], each)
        begin = {names[name]: rows for name, rows in given["begin"].items()}
        again = [PlannedIds(AnyIds(tuple(features), counts, ids, 1, ()), rows)
                 for features, counts, ids, rows in given["waiting"]]
    except Error:
        raise
    except Exception as error:
        raise Error(f"this is no state of maps of ids ({error})") from error
    return maps, begin, again


def _checksum(content: bytes) -> bytes:
    return crc32(content).to_bytes(4, "little")


def _check_fits(config: TableConfig, found: IdMap) -> None:
    """Raise Error unless a saved map is one of the table's."""
    for what, saved, here in (("rows", found.table_rows, config.num_embeddings),
                              ("admission", found.admission, config.admission),
                              ("expiry", found.expiry, config.expiry)):
        if saved != here:
            raise Error(f"table {config.name!r} has {what} {here}, and its map of ids was saved "
                        f"with {saved}: give the table the same")


def _arrays(parts: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The arrays of `IdMap.state` from their bytes."""
    empty = IdMap(2).state()
    found = {name: part.numpy().view(empty[name].dtype) for name, part in parts.items()}
    width = len(found["sketch"]) // len(empty["sketch"])
    found["sketch"] = found["sketch"].reshape(len(empty["sketch"]), width)
    return found
