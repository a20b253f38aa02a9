"""Rows of tables with `ids="any"`: what each batch's 64-bit ids look up, and rows that begin."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...contract.errors import Error
from ...ids import IdMap, initial_rows
from ...operands.integers import whole
from ...system.interrupts import uninterrupted
from ..features.bags import Bags
from ..features.configs import TableConfig
from ..optim.lookup import backward_number
from ..optim.on_host import on_host
from ..store.base import OwnStore
from ..store.in_flight import PendingBackward
from . import id_state
from .contents import TableContents
from .id_batches import AnyIds, Assignment, PlannedIds, TableChanges
from .lifecycle import Lifecycle

KEPT = 16  # batches after its last lookup in which an id keeps its row, at least


class IdMaps:
    """The IdMap of each table with `ids="any"`.

    A batch gets its rows when it is prefetched, or taken without that. A row that begins is written
    when its batch is taken, where the batch's lookup finds it. An id keeps its row for `KEPT`
    batches after its last lookup, and until a step has followed, so that the same batches give
    the same rows whatever is prefetched.

    Parameters
    ----------
    tables : sequence of TableConfig
    seed : int
        Of the maps, and of the rows that begin.
    contents : TableContents
    store : OwnStore
        Gets the rows that begin.
    initial : float
        State of a row that begins.
    lifecycle : Lifecycle

    Attributes
    ----------
    maps : dict of int to IdMap
        By the table's number.
    """

    def __init__(self, tables: Sequence[TableConfig], seed: int, contents: TableContents,
                 store: OwnStore, initial: float, lifecycle: Lifecycle) -> None:
        self._tables, self._contents, self._lifecycle = tables, contents, lifecycle
        self._store, self._initial_state = store, initial
        self.maps = {
            number: IdMap(config.num_embeddings, config.admission, config.expiry, seed + number)
            for number, config in enumerate(tables) if config.ids == "any"}
        self._begin: dict[int, dict[int, int]] = {number: {} for number in self.maps}  # row: id
        self._planned: deque[PlannedIds] = deque()  # prefetched and not taken
        self._again: deque[PlannedIds] = deque()  # planned before, and not yet prefetched again
        self._trained = 0  # batches that a step has followed
        # Taken since a step, None without lookups or repeated; and one that a backward repeats.
        self._taken: list[tuple[PlannedIds | None, PendingBackward]] = []
        self._repeated: Bags | None = None
        self.trained()

    def find(self, bags: Bags) -> list[torch.Tensor | None]:
        """Rows of a batch that does not train, by feature; nothing is counted or admitted."""
        return [self._found(table, ids) if table in self.maps else None
                for table, ids in zip(bags.tables, bags.ids.split(bags.counts), strict=True)]

    def prefetch(self, bags: Bags) -> list[torch.Tensor | None]:
        """Rows of a batch that will be taken, by feature."""
        with uninterrupted():
            ids = self._ids(bags)
            self._check_window()
            return self._own(bags, self._plan(ids, bags).rows, ids.first)

    def take(self, bags: Bags) -> list[torch.Tensor | None]:
        """Rows of a batch that trains, prefetched or not, by feature.

        Raises
        ------
        Error
            A batch with other ids was prefetched in its place; nothing changed.
        """
        with uninterrupted():
            ids = self._ids(bags)
            planned = self._repetition(bags)
            self._repeated = None if planned is None else bags
            if planned is None and self._planned and self._recorded(ids.lookups):
                planned = self._planned[0]
                if not planned.source.equals(ids):
                    raise Error(
                        f"a batch is not the one that was prefetched in its place ({ids.lookups} "
                        f"ids, prefetched {planned.source.lookups}): batches train in the order "
                        f"of prefetch(). Call skip() of the pipeline, or of the collection's "
                        f"batches, for a batch that is not looked up, and eval() where nothing "
                        f"trains")
            if planned is None:
                planned = self._plan(ids, bags)
            return self._own(bags, planned.rows, ids.first)

    @property
    def waiting(self) -> int:
        """Batches that were prefetched, and not taken."""
        return len(self._planned)

    def skip(self) -> None:
        """The batch that was prefetched first will not be taken."""
        if self._planned:
            self._planned.popleft()

    def keep(self, waiting: int, coming: Bags | None = None) -> None:
        """Only so many batches will be taken in the order of `prefetch`, first that with the Bags
        `coming`, if they are known. Later ones keep the rows of their ids if they return."""
        while coming is not None and self._planned and self._planned[0].bags is not coming:
            self._planned.popleft()
        while len(self._planned) > waiting:
            last = self._planned.pop()
            if last.source.lookups:
                self._again.appendleft(last)

    def beginning(self, bags: Bags) -> dict[int, list[int]]:
        """Rows that begin with the batch that is taken next, by table."""
        found: dict[int, list[int]] = {}
        if not self._recorded(bags.lookups) or bags is self._repeated:
            return found
        planned = self._planned[0]
        for number, ids_of in self._begin.items():
            looked_up = [each for table, each in zip(
                planned.source.tables, planned.rows, strict=True) if table == number]
            if ids_of and looked_up:
                rows = torch.tensor(sorted(ids_of))
                found[number] = rows[torch.isin(rows, torch.cat(looked_up))].tolist()
        return found

    def begin(self, beginning: Mapping[int, list[int]]) -> None:
        """Write rows that begin, which no lookup has read."""
        for number, rows in beginning.items():
            if rows:
                self._write(number, rows)

    def taken(self, bags: Bags, beginning: Mapping[int, list[int]],
              pending: PendingBackward) -> None:
        """A batch was taken, and rows have begun with it."""
        for number, rows in beginning.items():
            for row in rows:
                del self._begin[number][row]
        planned = None
        if self._recorded(bags.lookups) and bags is not self._repeated:
            planned = self._planned.popleft()
        self._taken = [*self._not_done(), (planned, pending)]

    def trained(self) -> None:
        """A step has followed all batches that were taken."""
        planned = next(iter(self.maps.values())).batch
        self._trained = planned - len(self._not_taken())
        self._taken = self._not_done()

    def state(self) -> bytes:
        """All that the same future needs; batches that were prefetched get their rows again."""
        return id_state.packed({self._tables[number].name: (each, self._begin[number])
                                for number, each in self.maps.items()}, self._not_taken())

    def load(self, state: bytes) -> None:
        """Continue from `state`; errors as in `loading`."""
        self.loading(state)()

    def loading(self, state: bytes) -> Callable[[], None]:
        """A call that continues from `state`.

        Raises
        ------
        Error
            It is the state of other tables, or damaged; nothing changed.
        """
        maps, begin, again = id_state.unpacked(
            state, {number: self._tables[number] for number in self.maps})

        def load() -> None:
            for each in maps.values():
                each.completed = 0  # until the next batch is planned
            self.maps, self._begin, self._again = maps, begin, deque(again)
            self._planned.clear()
            self.trained()

        return load

    def loading_saved(self, key: str, prefixes: Mapping[str, str], state_dict: Mapping[str, Any],
                      missing: list[str], messages: list[str]) -> Callable[[], None] | None:
        """As `loading`, where `nn.Module` loads: what is missing or wrong goes into the lists.

        Rows whose ids are unknown are wrong, and ids without their rows, also where `nn.Module`
        takes what there is.
        """
        keys = [key, *(prefixes[self._tables[number].name] + "weight" for number in self.maps
                       if not self._contents.on_disk(self._tables[number].name))]
        lacking = [each for each in keys if each not in state_dict]
        if lacking and len(lacking) < len(keys):
            messages.append(f"{', '.join(lacking)} missing: rows of tables with ids='any' and "
                            f"{key}, which has their ids, load together or not at all")
        if key not in state_dict:
            missing.append(key)
            return None
        try:
            return self.loading(state_dict[key])
        except Error as error:
            messages.append(f"{key}: {error}")
            return None

    @on_host
    def changes(self, since: int = 0) -> dict[str, TableChanges]:
        """What an export lacks that was made after batch `since`; of several processes all get the
        same.

        Parameters
        ----------
        since : int
            `until` of the changes of the last export; 0 exports every id.

        Returns
        -------
        dict of str to TableChanges
            By the table's name.

        Raises
        ------
        Error
            The log has forgotten those batches, or `since` is a batch to come, of before a load.
        """
        self._lifecycle.flush()
        found = {}
        for number, each in self.maps.items():
            name, changes = self._tables[number].name, each.changes(since)
            rows = torch.from_numpy(changes.rows)
            weights = self._contents.rows(name, rows)
            begin = self._begin[number]
            for place in (place for place, row in enumerate(rows.tolist()) if row in begin):
                weights[place] = self._initial(number, [int(rows[place])])[0].to(weights.dtype)
            found[name] = TableChanges(since, self._trained, torch.from_numpy(
                changes.ids.view(np.int64)), rows, weights,
                torch.from_numpy(changes.removed.view(np.int64)))
        return found

    def forget(self, until: int, name: str | None = None) -> None:
        """Drop what `changes` keeps of batches up to `until`, which every export has.

        Later calls of `changes` begin at `until` or after it, or with `since=0` for every id.

        Parameters
        ----------
        until : int
            Of the changes that were exported.
        name : str, optional
            Of a table; by default all tables.

        Raises
        ------
        Error
            There is no such table, or these batches have not trained.
        """
        until = whole(until, "until")
        names = {self._tables[number].name: each for number, each in self.maps.items()}
        if name is not None and name not in names:
            raise Error(f"there is no table {name!r} with ids='any': expected one of "
                        f"{', '.join(names)}")
        if not 0 <= until <= self._trained:
            raise Error(f"changes of batches up to {until} cannot be forgotten: {self._trained} "
                        f"batches have trained. Give `until` of the changes that were exported")
        for each in names.values() if name is None else [names[name]]:
            each.log.forget(until)

    # Parts that are others where several processes share the rows.

    def _ids(self, bags: Bags) -> AnyIds:
        """The ids of a batch that have a map, of all processes."""
        ids = [each.long() for table, each in zip(
            bags.tables, bags.ids.split(bags.counts), strict=True) if table in self.maps]
        tables = tuple(table for table in bags.tables if table in self.maps)
        return AnyIds(tables, [len(each) for each in ids],
                      torch.cat(ids) if ids else torch.empty(0, dtype=torch.int64), bags.lookups,
                      [0] * len(ids))

    def _recorded(self, lookups: int) -> bool:
        """Whether the store records a batch with so many lookups here."""
        return lookups > 0

    def _repetition(self, bags: Bags) -> PlannedIds | None:
        """The batch with these Bags that activation checkpointing looks up again inside its
        backward, where the store did not recognise it; None without one."""
        taken = [planned for planned, _ in reversed(self._not_done()) if planned is not None]
        if not taken or backward_number() < 0:
            return None
        return next((each for each in taken
                     if each.bags is not None and each.bags.equals(bags)), None)

    def _write(self, number: int, rows: list[int]) -> None:
        """Write rows of a table that begin."""
        group, first = self._contents.first(self._tables[number].name)
        self._store.apply(group, torch.tensor(rows) + first,
                          self._initial(number, rows).to(self._store.slot_memory.device),
                          Assignment(self._initial_state))

    def _not_done(self) -> list[tuple[PlannedIds | None, PendingBackward]]:
        """Batches that were taken, and whose backward has not run and may run."""
        return [each for each in self._taken if not each[1].done]

    def _not_taken(self) -> list[PlannedIds]:
        """Batches that were planned, and not taken."""
        return [each for each in (*self._planned, *self._again) if each.source.lookups]

    def _own(self, bags: Bags, rows: Sequence[torch.Tensor],
             first: Sequence[int]) -> list[torch.Tensor | None]:
        """The rows of this process's Bags, by feature, None for those without a map."""
        mapped = iter(zip(rows, first, strict=True))
        found: list[torch.Tensor | None] = []
        for table, count in zip(bags.tables, bags.counts, strict=True):
            if table in self.maps:
                part, start = next(mapped)
                found.append(part[start:start + count])
            else:
                found.append(None)
        return found

    def _plan(self, ids: AnyIds, bags: Bags) -> PlannedIds:
        """Rows of the next batch, which is recorded as the store records it."""
        planned = PlannedIds(ids, self._rows(ids), bags)
        if self._recorded(ids.lookups):
            self._planned.append(planned)
        return planned

    def _rows(self, ids: AnyIds) -> list[torch.Tensor]:
        by_feature = list(ids.ids.split(ids.counts))
        if not ids.lookups:
            return by_feature
        if self._again:
            before = self._again.popleft()
            if before.source.equals(ids):
                return before.rows
            self._again.clear()
        rows = by_feature.copy()
        for number, each in self.maps.items():
            places = [place for place, table in enumerate(ids.tables) if table == number]
            own = [by_feature[place] for place in places]
            each.done(max(each.completed, min(self._trained, each.batch - KEPT)))
            planned = each.plan(torch.cat(own).numpy() if own else np.empty(0, np.int64))
            begin = self._begin[number]
            for row in planned.expired_rows.tolist():
                begin.pop(row, None)
            begin.update(zip(planned.admitted_rows.tolist(), planned.admitted_ids.tolist(),
                             strict=True))
            found = torch.from_numpy(planned.rows)
            for place, part in zip(places, found.split([len(part) for part in own]), strict=True):
                rows[place] = part
        return rows

    def _check_window(self) -> None:
        """Raise Error if the rows of the next batch would depend on what is prefetched."""
        for number, each in self.maps.items():
            if each.expiry is not None and each.batch - self._trained > KEPT:
                raise Error(f"table {self._tables[number].name!r} has an expiry, and no step has "
                            f"followed {each.batch - self._trained} batches: an id keeps its row "
                            f"for {KEPT}, so prefetch fewer, or step the optimizer more often")

    def _found(self, number: int, ids: torch.Tensor) -> torch.Tensor:
        rows = self.maps[number].find(ids.numpy())
        if self._begin[number]:
            rows[np.isin(rows, list(self._begin[number]))] = 0  # not written yet
        return torch.from_numpy(rows)

    def _initial(self, number: int, rows: list[int]) -> torch.Tensor:
        known, ids = self.maps[number], self._begin[number]
        return torch.from_numpy(initial_rows(
            np.array([ids[row] for row in rows], np.uint64), self._tables[number].embedding_dim,
            known.seed, known.first_rows ** -0.5))
