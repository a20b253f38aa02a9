"""Forms of batches of 64-bit ids: as they came, planned, written, and exported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from ...contract.errors import Error
from ...system.files import replaced
from ..features.bags import Bags


@dataclass(frozen=True, eq=False)
class AnyIds:
    """The ids of a batch that have a map, feature after feature, of all processes.

    Attributes
    ----------
    tables : tuple of int
        Of each such feature.
    counts : list of int
        Ids of each.
    ids : int64[n]
    lookups : int
        Of the batch, in all tables.
    first : list of int
        Place among the ids of each feature at which those of this process begin.
    """

    tables: tuple[int, ...]
    counts: list[int]
    ids: torch.Tensor
    lookups: int
    first: Sequence[int]

    def equals(self, other: AnyIds) -> bool:
        """Whether other AnyIds get the same rows."""
        return (self.tables == other.tables and self.counts == other.counts
                and torch.equal(self.ids, other.ids))


@dataclass(frozen=True, eq=False)
class PlannedIds:
    """The ids of a batch, the rows int64[n] of each feature, and what this process looks up."""

    source: AnyIds
    rows: list[torch.Tensor]
    bags: Bags | None = None


class Assignment:
    """A Rule whose step replaces rows by its gradients, and starts their state again."""

    name, lr, plain = "assignment", 0.0, True
    rounding_seed: int | None = None

    def __init__(self, initial: float) -> None:
        self.initial = initial

    def update(self, weights: torch.Tensor, values: torch.Tensor,
               state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The rows, and the state of a row that has not trained."""
        return values, None if state is None else torch.full_like(state, self.initial)

    def rounded(self, weights: torch.Tensor, dtype: torch.dtype,
                keys: torch.Tensor | None = None) -> torch.Tensor:
        """The rows, which are then rounded to nearest."""
        return weights


@dataclass(frozen=True, eq=False)
class TableChanges:
    """Ids of a table to write into an export, and ids to remove from it.

    Attributes
    ----------
    since, until : int
        Batches: ask for the next changes since `until`.
    ids, rows : int64[n]
        Ids that were looked up, and their rows.
    weights : [n, dim]
        Of these rows.
    removed : int64[r]
        Ids that lost their row.
    """

    since: int
    until: int
    ids: torch.Tensor
    rows: torch.Tensor
    weights: torch.Tensor
    removed: torch.Tensor

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tensors by their names, and `since` and `until`, in the place of an older file
        or not at all.

        Parameters
        ----------
        path : path
            With the suffix .npz a NumPy file, whose weights are float32 if they are bfloat16; with
            .safetensors one of that format, with `since`, `until` and a checksum in its metadata.

        Raises
        ------
        Error
            Another suffix, or safetensors is not installed.
        FileError
            The disk is full, for example.
        """
        tensors = {name: getattr(self, name).detach().cpu()
                   for name in ("ids", "rows", "weights", "removed")}
        match Path(path).suffix:
            case ".npz":
                arrays: dict[str, Any] = {
                    name: (each.float() if each.dtype == torch.bfloat16 else each).numpy()
                    for name, each in tensors.items()}
                with replaced(path) as file:
                    np.savez(file, since=self.since, until=self.until, **arrays)
            case ".safetensors":
                try:
                    from safetensors.torch import save
                except ImportError as error:
                    raise Error("a .safetensors file needs safetensors: pip install safetensors, "
                                "or save a .npz file") from error
                # The library refuses tensors that have memory in common.
                content = save({name: each.contiguous().clone() for name, each in tensors.items()},
                               {"since": str(self.since), "until": str(self.until),
                                "crc32": self._checksum()})
                with replaced(path) as file:
                    file.write(content)
            case suffix:
                raise Error(f"changes are saved as .npz or .safetensors, not {suffix!r}")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> TableChanges:
        """The changes that `save` wrote; bfloat16 weights of a .npz file are float32.

        Raises
        ------
        Error
            There is no such file, it is damaged, or safetensors is not installed.
        """
        try:
            if Path(path).suffix == ".safetensors":
                from safetensors import safe_open

                with safe_open(path, "pt") as file:
                    names: list[str] = file.keys()
                    given: dict[str, Any] = {name: file.get_tensor(name) for name in names}
                    numbers = dict(file.metadata())
                checksum = numbers.pop("crc32")
            else:
                with np.load(path, allow_pickle=False) as arrays:
                    found = {name: arrays[name] for name in arrays.files}
                numbers = {name: found.pop(name) for name in ("since", "until")}
                given = {name: torch.from_numpy(each) for name, each in found.items()}
                checksum = None
            made = TableChanges(int(numbers["since"]), int(numbers["until"]), **given)
            if checksum not in (None, made._checksum()):
                raise ValueError("its checksum is wrong")
        except ImportError as error:
            raise Error("a .safetensors file needs safetensors: pip install safetensors") from error
        except Exception as error:  # of two libraries
            raise Error(f"{path} is no file of changes ({error}): give it what save() wrote"
                        ) from error
        return made

    def _checksum(self) -> str:
        """CRC-32 of all parts, with their names, dtypes and shapes."""
        total = crc32(f"{self.since} {self.until}".encode())
        for name in ("ids", "rows", "weights", "removed"):
            part: torch.Tensor = getattr(self, name).detach().cpu().contiguous()
            total = crc32(f"{name} {part.dtype} {list(part.shape)}".encode(), total)
            total = crc32(part.view(-1).view(torch.uint8).numpy().data, total)
        return f"{total:08x}"
