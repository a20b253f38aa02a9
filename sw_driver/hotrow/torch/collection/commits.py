"""Commits of a collection's tables on disk, with what belongs to them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from ...contract.errors import Error
from ...tables import Commit
from ..store.base import Store
from ..store.disk import Disk
from .id_maps import IdMaps
from .lifecycle import Lifecycle

_STATE = ("state_dict() of one", "state_dict() of another")  # names that keep commits


class Commits:
    """Commits, and opens earlier ones.

    Parameters
    ----------
    disk : Disk or None
        None without tables on disk: every call raises Error.
    store : Store
    lifecycle : Lifecycle
    id_maps : IdMaps or None
        Their state is part of each commit.
    """

    def __init__(self, disk: Disk | None, store: Store, lifecycle: Lifecycle,
                 id_maps: IdMaps | None) -> None:
        self._disk, self._store, self._lifecycle, self._maps = disk, store, lifecycle, id_maps
        self._referenced = -1  # commit of the last state dict
        self._paired = False  # whether the caller's own parts belong to the commits

    # What is other where several processes commit together.

    @property
    def number(self) -> int:
        """Of the open commit."""
        return self.disk.store.number

    @property
    def path(self) -> str:
        """Folder of the tables."""
        return self.disk.path

    @property
    def changed(self) -> bool:
        """Whether rows were trained since the last commit."""
        return self.disk.changed

    def all(self) -> list[Commit]:
        """The commits that can be opened, the last one last."""
        return self.disk.store.commits()

    def _write(self, parts: dict[str, Any], keep: str | None) -> int:
        """Commit: the number."""
        self._lifecycle.flush()
        return self.disk.commit(parts, keep)

    def _return(self, number: int) -> None:
        """Return to a commit."""
        self.disk.rollback(number)

    def release(self, keep: str) -> None:
        """Let the commit of that name go, unless it is the last."""
        self.disk.store.release(keep)

    @property
    def any(self) -> bool:
        """Whether tables are on disk."""
        return self._disk is not None

    @property
    def disk(self) -> Disk:
        """The store, which there is."""
        if self._disk is None:
            raise Error("commits are those of tables on disk, and there is none: give TableConfig "
                        "a path")
        return self._disk

    def commit(self, dense: Any = None, keep: str | None = None) -> int:
        """As `HotEmbeddingBagCollection.commit`."""
        self.disk  # noqa: B018  # an Error without one
        with self._lifecycle.lock:
            self._lifecycle.staging.check_whole()
            self._lifecycle.finish()
            number = self._write({"dense": dense, "ids": self._ids()}, keep)
            self._paired = dense is not None
            return number

    def open(self, number: int | None = None) -> Any:
        """As `HotEmbeddingBagCollection.open_commit`."""
        disk = self.disk
        with self._lifecycle.lock:
            if number is not None:
                self._lifecycle.reset()
                self._return(number)
                self._store.reload()
                self.load_ids()
                if all(group.tables.disk is not None for group in self._store.groups):
                    self._lifecycle.staging.broken = ""
            dense = disk.parts().get("dense")
            self._paired = dense is not None
            return dense

    def load_ids(self) -> None:
        """Continue with the ids of the open commit."""
        saved = self.disk.parts().get("ids")
        if self._maps is not None and saved is not None:
            self._maps.load(saved)

    def reference(self) -> dict[str, Any]:
        """What a state dict has of the tables: a commit, which stays until a later one is the
        second that follows."""
        disk = self.disk
        with self._lifecycle.lock:
            self._lifecycle.finish()
            self._lifecycle.flush()
            if not disk.closed and (self.changed or self.number != self._referenced):
                self._referenced = self.commit(keep=self._older_state())
        return {"path": self.path, "commit": self.number}

    def _older_state(self) -> str:
        """The name of a state dict's commit that may go: the one that the open commit does not
        follow, or the older one, so that the state dict before the next one stays."""
        numbers = {each.keep: each.number for each in self.all()
                   if each.number <= self.number}
        return min(_STATE, key=lambda name: numbers.get(name, -1))

    def given(self, key: str, prefixes: Mapping[str, str], state_dict: Mapping[str, Any],
              missing: list[str], messages: list[str],
              ) -> tuple[Mapping[str, Any], dict[str, Any] | None]:
        """What a state dict has at `key`, where `nn.Module` loads: the state dict with the ids
        there, and the commit; what is missing or wrong goes into the lists."""
        on_disk = [prefixes[name] + "weight" for name in self.disk.names]
        found, reference = state_dict.get(key), None
        if isinstance(found, dict):
            reference = found.get("tables")
            state_dict = {name: each for name, each in state_dict.items() if name != key}
            if found.get("ids") is not None:
                state_dict = {**state_dict, key: found["ids"]}
        if any(name in state_dict for name in on_disk):  # rows of tables in memory
            missing += [name for name in on_disk if name not in state_dict]
            return state_dict, None
        if reference is None:
            missing.append(key)
            return state_dict, None
        known = [commit.number for commit in self.all()]
        if reference.get("commit") not in known:
            messages.append(f"{key} refers to commit {reference.get('commit')} of the tables in "
                            f"{reference.get('path')}, and {self.path} has the "
                            f"commits {known}: give TableConfig the folder of these tables, or "
                            f"load the checkpoint of one of these")
            return state_dict, None
        return state_dict, reference

    def resume(self, reference: Mapping[str, Any]) -> None:
        """Return to the commit of a state dict."""
        if self.changed or reference["commit"] != self.number:
            self._return(reference["commit"])
            self._store.reload()

    def save(self) -> None:
        """Commit at the end what has changed since the last commit.

        Where commits have parts of the caller, rows without theirs would be of another step: the
        last commit stands, and a warning says so.
        """
        if self._disk is None or not (self._disk.changed or self._maps is not None):
            return
        if not self._paired:
            self._disk.commit({"dense": None, "ids": self._ids()})
        elif self._disk.changed:
            warnings.warn(f"rows were trained after commit {self._disk.store.number}, which has "
                          f"your parts beside it: it stays the last one, and these steps are "
                          f"dropped; call commit() before close()", stacklevel=5)

    def close(self) -> None:
        """Close the store."""
        if self._disk is not None:
            self._disk.close()

    def _ids(self) -> bytes | None:
        return None if self._maps is None else self._maps.state()
