"""Commits of tables on disk that several processes share out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ...contract.errors import Error
from ...tables import Commit
from ...tables.manifest import STEP_BITS, numbers, rank_folder, rank_folders, read_manifest
from ..collection.commits import Commits
from ..collection.id_maps import IdMaps
from ..collection.lifecycle import Lifecycle
from ..store.disk import Disk
from .ranks import Ranks
from .store import ShardedStore


def folder_of_rank(path: str, rank: int, world: int) -> str:
    """Folder of a rank's rows in the folder of tables, which one rank has for itself.

    Raises
    ------
    Error
        Another number of processes has trained the tables.
    """
    folder = Path(path)
    if world == 1:
        return path
    trained = sorted({ranks for _, ranks in rank_folders(folder)})
    trained += [1] if numbers(folder) else []
    if trained and trained != [world]:
        raise Error(f"the tables in {path} were trained by {' and '.join(map(str, trained))} "
                    f"processes, and there are {world} ranks: start as many, or name another "
                    f"folder and load the rows that hotrow.tables.open() reads")
    return str(rank_folder(folder, rank, world))


class SharedCommits(Commits):
    """Each rank commits its rows in a store of its own, and a commit counts when all ranks have it.

    A rank keeps its last commit that counts until the next one counts. So where some ranks end
    before they have the next, all open the last that they have in common. A number is not used
    again: those that some ranks had beyond it are passed over. `commit`, `open`, `all`, `release`
    and `reference` are collective.

    Parameters
    ----------
    disk, store, lifecycle, id_maps
        As in `Commits`; the disk is at a commit that all ranks have.
    path : str
        Folder of the ranks' folders.
    ranks : Ranks
    """

    def __init__(self, disk: Disk, store: ShardedStore, lifecycle: Lifecycle,
                 id_maps: IdMaps | None, path: str, ranks: Ranks) -> None:
        super().__init__(disk, store, lifecycle, id_maps)
        self._path, self._ranks = path, ranks
        self._next = 1 + int(torch.cat(_steps(disk, ranks)).max()) // (1 << STEP_BITS)
        self._agreed = disk.store.number  # of this rank's store: the last commit that counts
        self._alike = True  # False after a commit that failed at a rank
        self._steps = lifecycle.steps  # at the open commit

    @property
    def number(self) -> int:
        return next(each.step for each in self.disk.store.commits()
                    if each.number == self.disk.store.number) >> STEP_BITS

    @property
    def path(self) -> str:
        return self._path

    @property
    def changed(self) -> bool:
        return self._ranks.total(int(self.disk.changed)) > 0

    def all(self) -> list[Commit]:
        common = set(_common(_steps(self.disk, self._ranks)))
        found = [each for each in self.disk.store.commits() if each.step in common]
        return [Commit(each.step >> STEP_BITS, 0, each.keep) for each in found
                if each.keep or each is found[-1]]

    def release(self, keep: str) -> None:
        self._ranks.agree(lambda: self.disk.store.release(keep), f"{keep!r} was not released")

    def _write(self, parts: dict[str, Any], keep: str | None) -> int:
        self._alike, self._next = False, -self._ranks.least(-self._next)
        self._ranks.agree(lambda: self._write_own(parts, keep),
                          "a commit was not made, because of the disk")
        self._agreed, self._alike = self.disk.store.number, True
        return self.number

    def _write_own(self, parts: dict[str, Any], keep: str | None = None) -> None:
        self._lifecycle.flush()
        step = self._next << STEP_BITS | self._lifecycle.steps % (1 << STEP_BITS)
        self.disk.commit(parts, keep, step, self._agreed)
        self._next, self._steps = self._next + 1, self._lifecycle.steps

    def _return(self, number: int) -> None:
        known = _common(_steps(self.disk, self._ranks))

        def open_it() -> None:
            own = next((each.number for each in self.disk.store.commits()
                        if each.step in known and each.step >> STEP_BITS == number), None)
            if own is None:
                raise Error(f"the ranks in {self.path} have no commit {number} in common: they "
                            f"have {[step >> STEP_BITS for step in known]}")
            self.disk.rollback(own)
            self._agreed, self._steps = own, self._lifecycle.steps
        self._ranks.agree(open_it, f"commit {number} was not opened, because of the tables")

    def save(self) -> None:
        """As `Commits.save`, but not collective: what each rank commits counts when all ranks have
        closed after the same step."""
        if self._disk is None or not self._alike:
            return
        if self._paired:
            super().save()
        elif (self._maps is not None or self._disk.changed
                or self._lifecycle.steps != self._steps):  # the same at all ranks
            self._write_own({"dense": None, "ids": self._ids()})


def open_common(disk: Disk, path: str, ranks: Ranks) -> None:
    """Open the last commit that all ranks have, at each.

    Raises
    ------
    Error
        There is none.
    """
    steps = _steps(disk, ranks)
    common = _common(steps)
    if not common:
        raise Error(f"the folders of the ranks in {path} have no commit in common: rank 0 has "
                    f"{[step >> STEP_BITS for step in steps[0].tolist()]}, and rank "
                    f"{ranks.world - 1} {[step >> STEP_BITS for step in steps[-1].tolist()]}. Copy "
                    f"the folders of one run together, or name another folder")
    number = next(each.number for each in disk.store.commits() if each.step == common[-1])
    if number != disk.store.number:
        disk.rollback(number)


def common_seed(folder: str, number: int, seed: int, ranks: Ranks) -> int:
    """The seed with which a rank has made its folder, else `seed` of rank 0; `number` is that of
    the first table."""
    known = ranks.agree(lambda: numbers(Path(folder)) and [read_manifest(
        Path(folder), numbers(Path(folder))[-1])["tables"][0]["seed"] - number],
        "tables on disk were not opened, because of a manifest")
    found = ranks.gather_columns(torch.tensor([known], dtype=torch.int64))[0][0].tolist()
    return found[0] if found else ranks.first(seed)


def _steps(disk: Disk, ranks: Ranks) -> list[torch.Tensor]:
    """`step` of each commit of each rank, ascending: list of int64[n]."""
    columns, rank = ranks.gather_columns(
        torch.tensor([[each.step for each in disk.store.commits()]]))
    return [columns[0][rank == number] for number in range(ranks.world)]


def _common(steps: list[torch.Tensor]) -> list[int]:
    """What all ranks have, ascending."""
    return sorted(set.intersection(*(set(each.tolist()) for each in steps)))
