"""Counters, directory and splitter: OBSERVE, DECAY, HARVEST, INSTALL, REMOVE and SPLIT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import BatchError
from ..contract.generated import MISS_FLAG, NO_SLOT, AllFlag, BatchFlag, Opcode
from ..contract.records import HARVEST_ENTRY, ROW_ENTRY
from ..operands.batch import LONGEST_BAG, Batch
from ..operands.integers import numbered, vector, whole
from ..operands.results import Done, HotRows, Installed, Observation, Removed, RowList, Split, Words
from ..operands.row_lists import Rows, check_rows, row_list, tables_of
from ..operands.table import Table
from ..queues.commands import Commands, cycles_of
from ..queues.futures import Completion, Future
from .batch_operands import BatchLike, BatchOperands
from .planner import BatchNumbers, Planner, observation, policy_flags

T = TypeVar("T")
_LOOKUPS = 1 << 20  # and bags, of a batch that restores counts
_REMOVED_PER_SLOT = 4  # rows of a table that is unregistered


class Lookup:
    """Part of `Device`: the calls return futures."""

    def __init__(self, commands: Commands, batches: BatchOperands, planner: Planner):
        self._commands, self._batches, self._planner = commands, batches, planner

    def observe(self, batch: BatchLike) -> Future[Observation]:
        """Count every lookup of a batch.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        """
        with self._commands.open(Opcode.OBSERVE) as held:
            staged = self._batches.stage(batch, held)

            def finish(c: Completion) -> Observation:
                self._batches.count(staged.tables, c)
                self._batches.check(staged.batch, staged.tables, c)
                return observation(c)

            return self._commands.submit(Opcode.OBSERVE, staged.operands, finish, held)

    def decay(self, shift: int = 1) -> Future[Done]:
        """Shift every count right by `shift` bits; a count of zero frees its entry."""
        shift = _word(shift, "shift")
        with self._commands.open(Opcode.DECAY) as held:
            return self._commands.submit(Opcode.DECAY, {"shift": shift}, self._commands.done, held)

    def clear_counters(self) -> Future[Done]:
        """Clear every count."""
        def finish(c: Completion) -> Done:
            done = self._commands.done(c)
            self._commands.tables.in_counters.clear()
            self._commands.tables.stale_counts.clear()
            return done

        with self._commands.open(Opcode.DECAY) as held:
            return self._commands.submit(Opcode.DECAY, {"flags": AllFlag.ALL}, finish, held)

    def clear_directory(self) -> Future[Done]:
        """Free every slot; the next batch to be planned is 0."""
        planner, before, cleared = self._planner, self._planner.numbers, BatchNumbers()

        def finish(c: Completion) -> Done:
            done = self._commands.done(c)
            self._commands.tables.in_directory.clear()
            return done

        with self._commands.open(Opcode.REMOVE) as held:
            try:
                planner.numbers = cleared
                return self._commands.submit(Opcode.REMOVE, {"flags": AllFlag.ALL}, finish, held,
                                             lost=cleared.lose)
            except BaseException:
                if not self._commands.queue("lookup").owns(held):
                    planner.numbers = before
                raise

    def harvest(self, k: int, threshold: int = 1) -> Future[HotRows]:
        """The `k` most accessed rows of all tables among those counted at least `threshold` times.

        The result is shorter where the counters hold fewer. The counters keep their contents.

        Parameters
        ----------
        k, threshold : int

        Raises
        ------
        BatchError
            If the directory has fewer than `k` slots, or the counters hold rows of a table that was
            unregistered and whose number another table has.
        """
        k, threshold = whole(k, "k"), _word(threshold, "threshold")
        self._check_slots(k, "k")

        def result(counted: HotRows) -> HotRows:
            order = np.argsort(-counted.count.astype(np.int64), kind="stable")[:k]
            return HotRows(counted.table[order], counted.row[order], counted.count[order],
                           counted.cycles)

        return self._harvest(k, threshold, result)

    def counts(self) -> Future[HotRows]:
        """Every counted row, in the order of the counters: a checkpoint for `set_counts`."""
        return self._harvest(self._commands.geometry.counter_entries, 1, lambda counted: counted)

    def set_counts(self, counted: HotRows) -> None:
        """Restore the result of `counts`: clear the counters, then count each row as often.

        The time is that of observing as many lookups as the sum of the counts.

        Parameters
        ----------
        counted : HotRows

        Raises
        ------
        BatchError
            If a row does not exist; the counters keep their contents.
        """
        geometry, tables = self._commands.geometry, self._commands.tables
        if not isinstance(counted, HotRows):
            raise BatchError(f"expected the result of counts(), not {type(counted).__name__}")
        rows, count = row_list(counted, tables), vector(counted.count, "counts")
        if len(count) != len(rows) or (count < 0).any() or (count > NO_SLOT).any():
            wrong = count[(count < 0) | (count > NO_SLOT)][:1].tolist()
            raise BatchError(f"counts must be 0 to {NO_SLOT}, one for each of {len(rows)} rows, "
                             f"got {f'{wrong[0]} among ' if wrong else ''}{len(count)}")
        # A larger count than the card's largest would take time and change nothing.
        count = np.minimum(count, (1 << geometry.counter_bits) - 1).astype(np.int64)
        tables_of(rows, tables)  # which must be registered
        check_rows(rows, tables)
        self.clear_counters().wait()
        numbers = np.flatnonzero(tables.last_rows >= 0)
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
            chosen = np.isin(rows.table, run) & (count > 0)
            table, row, left = rows.table[chosen], rows.row[chosen], count[chosen]
            while len(row):  # a sample for each row; the lookups of a long bag in several batches
                bags = np.minimum(left, min(LONGEST_BAG, geometry.batch_lookups))
                room = min(_LOOKUPS, geometry.batch_lookups)
                fit = min(geometry.batch_samples, _LOOKUPS // len(run),
                          int(np.searchsorted(np.cumsum(bags), room, side="right")))
                lengths = np.zeros((fit, len(run)), np.uint16)
                lengths[np.arange(fit), table[:fit] - run[0]] = bags[:fit]
                self.observe(Batch.jagged(
                    np.repeat(row[:fit], bags[:fit]), lengths.ravel(), fit,
                    [each for each in tables.registered if each.number in run])).wait()
                left[:fit] -= bags[:fit]
                table, row, left = table[left > 0], row[left > 0], left[left > 0]

    def install(self, rows: Rows, policy: str | None = None) -> Future[Installed]:
        """Give each listed row a slot of the directory.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
        policy : str, optional
            On a card with a planner: the policy by which rows are evicted, see `Device.plan`;
            "lru" by default.

        Raises
        ------
        BatchError
            If there are more rows than slots, or one does not exist; no row is installed then, or
            with `check_ids` off the others are.
        """
        flags, listed = 0, row_list(rows, self._commands.tables)
        if policy is not None:
            self._planner.check("a policy")
            flags = policy_flags(policy)
        if not len(listed):
            return Future.of(Installed(np.empty(0, np.uint32), 0, 0, 0, 0))
        self._check_slots(len(listed), "the number of rows to install")
        return self._edit_directory(Opcode.INSTALL, listed, lambda c, slots: Installed(
            slots, c["entries"], c["hits"], c["refused"], cycles_of(c)), flags)

    def remove(self, rows: Rows) -> Future[Removed]:
        """Free the slot of each listed row.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
        """
        listed = row_list(rows, self._commands.tables)
        if not len(listed):
            return Future.of(Removed(np.empty(0, np.uint32), 0, 0, 0))
        return self._edit_directory(Opcode.REMOVE, listed, lambda c, slots: Removed(
            slots, c["entries"], c["misses"], cycles_of(c)))

    def forget(self, table: Table) -> None:
        """Free the slots of a table that is to be unregistered.

        A table of very many rows keeps them, and its number is not used again until
        `clear_directory`.
        """
        if table.rows <= _REMOVED_PER_SLOT * self._commands.geometry.slots:
            rows = RowList(np.full(table.rows, table.number, np.uint32),
                           np.arange(table.rows, dtype=np.uint32))
            self._edit_directory(Opcode.REMOVE, rows, lambda c, slots: slots, check=False).wait()
            self._commands.tables.in_directory.discard(table.number)

    def split(self, batch: BatchLike, observe: bool = False) -> Future[Split]:
        """Look up every id in the directory, and separate popular samples from the others.

        A sample is popular if all of its lookups hit.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        observe : bool
            Count the lookups in the same pass, which costs no time.
        """
        commands = self._commands
        with commands.open(Opcode.SPLIT) as held:
            staged = self._batches.stage(batch, held)
            samples, lookups = staged.batch.samples, staged.batch.lookups
            lists = {name: commands.results.lease(size, held) for name, size in (
                ("slots", 4 * lookups), ("misses", ROW_ENTRY.itemsize * lookups),
                ("popular", 4 * samples), ("nonpopular", 4 * samples))}
            operands = staged.operands | {name: part.address for name, part in lists.items()}
            operands["flags"] |= int(BatchFlag.COUNT) * bool(observe)

            def finish(c: Completion) -> Split:
                if observe:
                    self._batches.count(staged.tables, c)
                self._batches.check(staged.batch, staged.tables, c)
                popular, unique = c["popular"], c["unique"]
                order = np.empty(samples, np.int64)
                order[:popular] = lists["popular"].written("<u4", popular)
                order[popular:] = lists["nonpopular"].written("<u4", samples - popular)
                slots = lists["slots"].written("<u4", lookups).copy()
                entries = lists["misses"].written(ROW_ENTRY, unique).copy()
                misses = RowList(entries["table"], entries["row"], tables=staged.tables,
                                 entries=entries.view(np.uint64))
                if c["refused"]:
                    misses = _fold_repeats(slots, misses)
                return Split(order, popular, slots, misses, c["lookups"], c["hits"],
                             cycles_of(c), c["end"])

            return commands.submit(Opcode.SPLIT, operands, finish, held)

    def _harvest(self, k: int, threshold: int,
                 result: Callable[[HotRows], HotRows]) -> Future[HotRows]:
        """HARVEST: the rows of registered tables, in the order of the counters."""
        commands, tables = self._commands, self._commands.tables
        with commands.open(Opcode.HARVEST) as held:
            for each in tables.registered:
                if each.number in tables.stale_counts:
                    raise BatchError(
                        f"the counters may hold rows of the table that had the number "
                        f"{each.number} before {each.name!r}: call clear_counters() first")
            if tables.stale_counts:  # rows that the result leaves out may have higher counts
                k = commands.geometry.counter_entries
            found = commands.results.lease(k * HARVEST_ENTRY.itemsize, held)

            def finish(c: Completion) -> HotRows:
                commands.check(c)
                entries = found.written(HARVEST_ENTRY, c["entries"])
                entries = entries[entries["row"] <= tables.last_rows[entries["table"]]]
                table, row, count = (np.ascontiguousarray(entries[name])
                                     for name in ("table", "row", "count"))
                return result(HotRows(table, row, count, cycles_of(c)))

            return commands.submit(Opcode.HARVEST, {
                "destination": found.address, "count": k, "threshold": threshold}, finish, held)

    def _edit_directory(self, opcode: Opcode, rows: RowList,
                        result: Callable[[Completion, NDArray[np.uint32]], T],
                        flags: int = 0, check: bool = True) -> Future[T]:
        """INSTALL or REMOVE: a list in, a slot per entry out."""
        commands, tables = self._commands, self._commands.tables
        with commands.open(opcode) as held:
            if check and commands.settings.check_ids:
                tables_of(rows, tables).hold(held)
                check_rows(rows, tables)
            slots = commands.results.lease(4 * len(rows), held)

            def finish(c: Completion) -> T:
                if opcode is Opcode.INSTALL:
                    tables.in_directory.update(np.unique(rows.table).tolist())
                commands.check(c, rows)
                return result(c, slots.written("<u4", len(rows)).copy())

            return commands.submit(opcode, {
                "source": commands.staging.stage_rows(rows, held), "slots": slots.address,
                "count": len(rows), "flags": flags}, finish, held)

    def _check_slots(self, count: int, what: str) -> None:
        slots = self._commands.geometry.slots
        if not 1 <= count <= slots:
            raise BatchError(f"{what} = {count} must be 1 to {slots}, the slots of this card's "
                             f"directory")


def _word(value: int, what: str) -> int:
    """`value`, if an operand of 32 bits holds it."""
    value = whole(value, what)
    if not 0 <= value <= NO_SLOT:
        raise BatchError(f"{what} must be 0 to {NO_SLOT}, not {value}")
    return value


def _fold_repeats(slots: Words, misses: RowList) -> RowList:
    """List each missed row once, in order of first appearance; correct `slots` in place."""
    kept, number = numbered(misses.keys)
    if len(kept) == len(misses):
        return misses
    missed = np.flatnonzero(slots & np.uint32(MISS_FLAG))
    listed = slots[missed] & ~np.uint32(MISS_FLAG)
    slots[missed] = np.uint32(MISS_FLAG) | number.astype(np.uint32)[listed]
    return RowList(misses.table[kept], misses.row[kept], tables=misses.tables)
