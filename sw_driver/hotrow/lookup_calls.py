"""Calls that the lookup queue serves: counters, directory and splitter."""

from operator import index

import numpy as np

from .batch import Batch
from .contract import HARVEST_ENTRY, MISS_FLAG, NO_SLOT, ROW_ENTRY, AllFlag, BatchFlag, Opcode
from .errors import BatchError
from .futures import Future
from .plan_calls import policy_flags
from .results import Done, HotRows, Installed, Observation, Removed, RowList, Split
from .row_lists import check_rows, row_list
from .whole_tables import with_whole_tables


class LookupCalls:
    """Part of `Device`; each call has a form X_async that returns a `Future`."""

    def observe(self, batch) -> Observation:
        """Count every lookup of a batch.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        """
        return self.observe_async(batch).result()

    def observe_async(self, batch) -> Future:
        with self._command() as held:
            batch, tables, operands = self._stage_batch(batch, held)

            def finish(c):
                self._raise_for(c, batch=batch, tables=tables)
                return Observation(int(c["lookups"]), int(c["hits"]), int(c["misses"]), _cycles(c),
                                   int(c["end"]))

            self._count_observed(batch, tables)
            return self._submit(Opcode.OBSERVE, operands, finish, held)

    def decay(self, shift=1) -> Done:
        """Shift every count right; a count of zero frees its entry."""
        return self.decay_async(shift).result()

    def decay_async(self, shift=1) -> Future:
        shift = index(shift)
        if not 0 <= shift <= NO_SLOT:
            raise BatchError(f"shift must be 0 or more binary places, not {shift}")
        self._observed /= 2.0 ** shift
        return self._simple(Opcode.DECAY, {"shift": shift})

    def clear_counters(self) -> Done:
        """Forget every count."""
        return self.clear_counters_async().result()

    def clear_counters_async(self) -> Future:
        self._observed[:] = 0
        return self._simple(Opcode.DECAY, {"flags": AllFlag.ALL})

    def clear_directory(self) -> Done:
        """Free every slot; the next batch to be planned is 0."""
        return self.clear_directory_async().result()

    def clear_directory_async(self) -> Future:
        self._forget_batches()
        self._tables.free_slots()
        return self._simple(Opcode.REMOVE, {"flags": AllFlag.ALL})

    def harvest(self, k, threshold=1, whole_tables=False) -> HotRows:
        """The `k` most accessed rows over all tables, those counted at least `threshold` times.

        Fewer where the counters hold fewer. The counters keep their contents.

        Parameters
        ----------
        k, threshold : int
        whole_tables : bool
            Make small tables wholly hot where more samples become popular by it; see
            `with_whole_tables`.

        Raises
        ------
        BatchError
            If the directory has fewer than `k` slots.
        """
        return self.harvest_async(k, threshold, whole_tables).result()

    def harvest_async(self, k, threshold=1, whole_tables=False) -> Future:
        k, threshold = index(k), index(threshold)
        self._fits_directory(k, "k")
        if not 0 <= threshold <= NO_SLOT:
            raise BatchError(f"threshold must be a count of 32 bits, not {threshold}")
        with self._command() as held:
            found = held.enter_context(self._results.lease(k * HARVEST_ENTRY.itemsize))
            rows, observed = np.zeros(self.geometry.tables, np.int64), self._observed.copy()
            for table in self._tables.registered:
                rows[table.number] = table.rows

            def finish(c):
                self._raise_for(c)
                entries = found.view(HARVEST_ENTRY, int(c["entries"]))
                order = np.argsort(-entries["count"].astype(np.int64), kind="stable")
                entries = entries[order]
                hot = HotRows(*(np.ascontiguousarray(entries[name])
                                for name in ("table", "row", "count")), cycles=_cycles(c))
                return with_whole_tables(hot, k, rows, observed) if whole_tables else hot

            return self._submit(Opcode.HARVEST, {
                "destination": found.address, "count": k, "threshold": threshold}, finish, held)

    def install(self, rows, policy=None) -> Installed:
        """Give each listed row a slot of the directory.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
        policy : str, optional
            On a card with a planner: by which the rows leave again, as of `plan`; "lru" by default.

        Raises
        ------
        BatchError
            If there are more rows than slots, or one does not exist; nothing is installed then.
        """
        return self.install_async(rows, policy).result()

    def install_async(self, rows, policy=None) -> Future:
        rows, flags = row_list(rows), 0
        if policy is not None:
            self._check_planner("a policy")
            flags = policy_flags(policy)
        if not len(rows):
            return Future.of(Installed(np.empty(0, np.uint32), 0, 0, 0, 0))
        self._fits_directory(len(rows), "the number of rows to install")
        return self._list_command(Opcode.INSTALL, rows, lambda c, slots: Installed(
            slots, int(c["entries"]), int(c["hits"]), int(c["refused"]), _cycles(c)), flags)

    def remove(self, rows) -> Removed:
        """Free the slot of each listed row.

        Parameters
        ----------
        rows : HotRows, RowList or (table, row)
        """
        return self.remove_async(rows).result()

    def remove_async(self, rows) -> Future:
        rows = row_list(rows)
        if not len(rows):
            return Future.of(Removed(np.empty(0, np.uint32), 0, 0, 0))
        return self._list_command(Opcode.REMOVE, rows, lambda c, slots: Removed(
            slots, int(c["entries"]), int(c["misses"]), _cycles(c)))

    def split(self, batch, observe=False) -> Split:
        """Tell hits from misses, and popular samples, all of whose lookups hit, from the others.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        observe : bool
            Count the lookups in the same pass, which costs no time.
        """
        return self.split_async(batch, observe).result()

    def split_async(self, batch, observe=False) -> Future:
        with self._command() as held:
            batch, tables, operands = self._stage_batch(batch, held)
            if observe:
                operands["flags"] |= BatchFlag.COUNT
                self._count_observed(batch, tables)
            lease = {name: held.enter_context(self._results.lease(size)) for name, size in (
                ("slots", 4 * batch.lookups), ("misses", ROW_ENTRY.itemsize * batch.lookups),
                ("popular", 4 * batch.samples), ("nonpopular", 4 * batch.samples))}
            operands |= {name: part.address for name, part in lease.items()}

            def finish(c):
                self._raise_for(c, batch=batch, tables=tables)
                popular, unique = int(c["popular"]), int(c["unique"])
                order = np.empty(batch.samples, np.int64)
                order[:popular] = lease["popular"].view("<u4", popular)
                order[popular:] = lease["nonpopular"].view("<u4", batch.samples - popular)
                slots = lease["slots"].view("<u4", batch.lookups).copy()
                entries = lease["misses"].view(ROW_ENTRY, unique)
                misses = RowList(entries["table"].copy(), entries["row"].copy())
                if c["refused"]:
                    misses = _fold_repeats(slots, misses)
                return Split(order, popular, slots, misses, int(c["lookups"]), int(c["hits"]),
                             _cycles(c), int(c["end"]))

            return self._submit(Opcode.SPLIT, operands, finish, held)

    def _list_command(self, opcode, rows, result, flags=0):
        """INSTALL or REMOVE: a list in, a slot per entry out."""
        with self._command() as held:
            if self.check_ids:
                check_rows(rows, self._tables)
            slots = held.enter_context(self._results.lease(4 * len(rows)))
            if opcode is Opcode.INSTALL:
                self._tables.give_slots(np.unique(rows.table).tolist())

            def finish(c):
                self._raise_for(c, rows=rows)
                return result(c, slots.view("<u4", len(rows)).copy())

            return self._submit(opcode, {
                "source": self._staging.stage_rows(rows, held), "slots": slots.address,
                "count": len(rows), "flags": flags}, finish, held)

    def _stage_batch(self, batch, held):
        """Where the device finds a batch: the batch, its tables, and the operands."""
        if not isinstance(batch, Batch):
            batch = Batch.dense(batch)
        tables = self._tables.resolve(batch)
        if batch.samples > self.geometry.batch_samples:
            raise BatchError(f"the batch has {batch.samples} samples: this card takes at most "
                             f"{self.geometry.batch_samples}, send it in parts")
        if batch.lookups > self.geometry.batch_lookups:
            raise BatchError(f"the batch has {batch.lookups} lookups: this card takes at most "
                             f"{self.geometry.batch_lookups}, send it in parts")
        if self.check_ids:
            batch.check(tables)
        operands = {"source": self._staging.stage(batch.ids, held), "flags": batch.flags,
                    "count": batch.lookups, "samples": batch.samples,
                    "first_table": tables[0].number, "table_count": batch.table_count}
        if batch.lengths is not None:
            operands["lengths"] = self._staging.stage(batch.lengths, held)
        return batch, tables, operands

    def _count_observed(self, batch, tables):
        np.add.at(self._observed, [table.number for table in tables], batch.column_lookups)

    def _fits_directory(self, count, what):
        slots = self.geometry.slots
        if not 1 <= count <= slots:
            raise BatchError(f"{what} = {count} must be 1 to {slots}, the slots of this card's "
                             f"directory")


def _fold_repeats(slots, misses):
    """List each missed row once, in order of first appearance; re-point `slots` in place."""
    key = misses.table.astype(np.uint64) << np.uint64(32) | misses.row
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    place = np.empty(len(first), np.uint32)
    place[by_appearance] = np.arange(len(first), dtype=np.uint32)
    missed = np.flatnonzero(slots & np.uint32(MISS_FLAG))
    listed = slots[missed] & ~np.uint32(MISS_FLAG)
    slots[missed] = np.uint32(MISS_FLAG) | place[group[listed]]
    kept = first[by_appearance]
    return RowList(misses.table[kept], misses.row[kept])


def _cycles(completion):
    return int(completion["end"]) - int(completion["start"])
