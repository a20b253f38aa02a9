"""The commits in a folder: which exist, which one is open, and which files they need."""

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

from ..contract.errors import Error
from ..operands.integers import whole
from ..system.files import sync_folder
from .manifest import (
    check_alone,
    manifest_path,
    numbered,
    numbers,
    read_manifest,
    replace,
    segment_files,
    write_manifest,
)


@dataclass(frozen=True)
class Commit:
    """A commit that exists.

    Parameters
    ----------
    number : int
    step : int
        Of the trainer.
    keep : str or None
        Its name, while it is kept.
    """

    number: int
    step: int
    keep: str | None


_HELD = ""  # the name of a commit that stays until the next one


class Commits:
    """Commits of the folder that this process has locked.

    The commit with the greatest number is the last one; it has the names of those that are kept.
    Another one may be open: the next commit then drops those after it.

    Parameters
    ----------
    folder : Path
    first : dict
        Manifest of a new store.
    number : int, optional
        Commit to open, by default the last one.

    Raises
    ------
    Error
        There is no such commit, or a manifest is damaged or missing.
    """

    def __init__(self, folder: Path, first: dict[str, Any], number: int | None = None):
        self.folder, self._spare, self._needed = folder, folder / "spare-commit", 1 << 20
        known = numbers(folder)
        if not known:
            if segment_files(folder):
                raise Error(f"the folder {folder} has segments and no commit-*.json: copy the "
                            f"manifest from where it is whole, or name an empty folder")
            check_alone(folder)
            write_manifest(folder, first)
            known = [0]
        self.manifests, self._damaged = dict[int, dict[str, Any]](), False
        for each in known:
            try:
                self.manifests[each] = read_manifest(folder, each)
            except Error:
                self._damaged = True
                if number is None or number == each:
                    raise
        self.greatest = known[-1]
        last = self.manifests.get(self.greatest)
        self.kept: dict[str, int] = last["kept"] if last else {
            found["keep"]: each for each, found in self.manifests.items() if found["keep"]}
        self.open(self.greatest if number is None else number)

    def open(self, number: int) -> None:
        """Make a commit the one that is open."""
        number = whole(number, "commit")
        if number not in self.manifests or number not in (*self.kept.values(), self.greatest):
            raise Error(f"the folder {self.folder} has no commit {number}: it has "
                        f"{', '.join(str(each.number) for each in self.listed())}")
        self.manifest = self.manifests[number]

    def next_segment(self) -> int:
        """A number that no segment has had."""
        numbers: list[int] = [found["next_segment"] for found in self.manifests.values()]
        return max(numbers + [number + 1 for number, _ in segment_files(self.folder)])

    def listed(self) -> list[Commit]:
        """The last commit and those that are kept, ascending."""
        names = {number: name for name, number in self.kept.items() if name != _HELD}
        return [Commit(number, found["step"], names.get(number))
                for number, found in sorted(self.manifests.items())
                if number in self.kept.values() or number == self.greatest]

    def write(self, segments: list[list[int]], dense: bytes | None, step: int, keep: str | None,
              hold: int | None, history_from: int) -> None:
        """Make the next commit, which is the open one from then on; number `hold` stays as well.
        Where the disk is full, it takes what `reserve` holds.

        Raises
        ------
        OSError
        """
        self._needed = max(self._needed, 2 * len(dense or b""))
        for held in (True, False):
            try:
                return self._write(segments, dense, step, keep, hold, history_from)
            except OSError as error:
                if error.errno not in (ENOSPC, EDQUOT) or not held or not self._spare.exists():
                    raise
                self._spare.unlink()

    def reserve(self) -> None:
        """Hold space for the files of a commit beside its rows, if the disk has any."""
        if self._spare.exists() and self._spare.stat().st_size >= self._needed:
            return
        try:
            with open(self._spare, "ab") as file:
                os.posix_fallocate(file.fileno(), 0, self._needed)
        except OSError:
            self._spare.unlink(missing_ok=True)

    def _write(self, segments: list[list[int]], dense: bytes | None, step: int, keep: str | None,
               hold: int | None, history_from: int) -> None:
        number, before = self.greatest + 1, self.manifest
        if dense is not None:
            replace(self._dense(number), dense)
        kept = {name: each for name, each in self.kept.items()
                if each <= before["number"] and name != _HELD}
        if hold is not None:
            kept[_HELD] = hold
        dropped = [] if before["number"] == self.greatest else [[before["number"] + 1,
                                                                 self.greatest]]
        manifest = {
            **before, "number": number, "parent": before["number"], "step": step, "keep": keep,
            "next_segment": self.next_segment(),
            "segments": segments, "history_from": history_from,
            "gaps": [gap for gap in before["gaps"] + dropped if gap[1] >= history_from],
            "dense": None if dense is None else [len(dense), zlib.crc32(dense)],
            "kept": {**kept, keep: number} if keep else kept}
        sync_folder(self.folder)
        write_manifest(self.folder, manifest)
        self.greatest, self.manifest, self.kept = number, manifest, manifest["kept"]
        self.manifests[number] = manifest
        self._damaged = False
        self._drop()

    def release(self, name: str) -> None:
        """Let the commit of a name go, at the latest when it is no longer open.

        Raises
        ------
        Error, OSError
        """
        if name not in self.kept or name == _HELD:
            raise Error(f"the folder {self.folder} keeps no commit {name!r}: it keeps "
                        f"{sorted(self.kept.keys() - {_HELD})}")
        if self.kept[name] == self.manifest["number"] != self.greatest:
            raise Error(f"commit {self.kept[name]} of {self.folder} is open: commit before its "
                        f"name {name!r} is released")
        kept = {other: number for other, number in self.kept.items() if other != name}
        manifest = {**self.manifests[self.greatest], "kept": kept}
        write_manifest(self.folder, manifest)
        if self.manifest["number"] == self.greatest:
            self.manifest = manifest
        self.manifests[self.greatest], self.kept = manifest, kept
        self._drop()

    def dense(self) -> bytes | None:
        """What the open commit was given; raises Error if that is damaged."""
        if self.manifest["dense"] is None:
            return None
        path = self._dense(self.manifest["number"])
        found = path.read_bytes() if path.exists() else b""
        if [len(found), zlib.crc32(found)] != self.manifest["dense"]:
            raise Error(f"the file {path} is missing or damaged: copy it from where it is whole")
        return found

    def named(self) -> tuple[int, set[int], set[int]]:
        """Number of the open commit, segments of it and the last one, those of commits that are
        kept."""
        def segments(those: Iterable[int]) -> set[int]:
            return {each[0] for number in those for each in self.manifests[number]["segments"]}
        kept, number = set(self.kept.values()) & self.manifests.keys(), self.manifest["number"]
        return number, segments({self.greatest, number} & self.manifests.keys()), segments(kept)

    def unneeded(self) -> list[tuple[int, Path]]:
        """Numbers and files of segments that no commit names."""
        if self._damaged:
            return []
        _, last, kept = self.named()
        needed = last | kept
        return [each for each in segment_files(self.folder) if each[0] not in needed]

    def tidy(self) -> None:
        """Remove what a process that was killed left."""
        for path in (*self.folder.glob("*.new"), *self.folder.glob("spare-*")):
            path.unlink()
        if not self._damaged:
            self._drop()
            for number, path in numbered(self.folder, "commit", ".dense", 12):
                if number not in self.manifests:
                    path.unlink()

    def _dense(self, number: int) -> Path:
        return manifest_path(self.folder, number).with_suffix(".dense")

    def _drop(self) -> None:
        """Remove the manifests of commits that are neither kept nor the last."""
        gone = [number for number in numbers(self.folder)
                if number < self.greatest and number not in self.kept.values()]
        for number in gone:
            for path in (manifest_path(self.folder, number), self._dense(number)):
                with suppress(FileNotFoundError):
                    os.unlink(path)
            self.manifests.pop(number, None)
        if gone:
            sync_folder(self.folder)
