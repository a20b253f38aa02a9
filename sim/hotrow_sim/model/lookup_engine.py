"""What the commands of the lookup queue do: the golden models, applied to lists in memory."""

import numpy as np
from hotrow_rtl.contract.encoding import NO_SLOT, AllFlag, BatchFlag, Opcode, Status

from ..golden.lookup.counters import Counters
from ..golden.lookup.directory import Directory
from ..golden.lookup.planner_directory import SlotDirectory
from ..golden.lookup.reader import beats_of, read_batch
from ..golden.lookup.splitter import split
from ..golden.records import HARVEST_RECORD, ROW_RECORD
from .memory import SLVERR
from .outcome import Outcome, list_errors, lowest
from .planner import Planning, all_slots


class LookupEngine:
    """Counters, directory, splitter and planner behind the lookup queue.

    Parameters
    ----------
    config : Config
    memory : Memory
    tables : dict of int to Table
        As registered; shared with the registers.

    Members
    -------
    planning : Planning or None
    """

    def __init__(self, config, memory, tables):
        self.config, self.memory, self.tables = config, memory, tables
        self.counters, self.directory, self.planning = Counters(config), Directory(config), None
        if config.planner:
            self.planning = Planning(config, self.counters)
            self.directory = SlotDirectory(self.planning.planner, self.counters)
        self._serve = {
            Opcode.OBSERVE: self._observe,
            Opcode.DECAY: self._decay,
            Opcode.HARVEST: self._harvest,
            Opcode.INSTALL: self._install,
            Opcode.REMOVE: self._remove,
            Opcode.SPLIT: self._split,
            Opcode.PLAN: self._plan,
            Opcode.MARK: self._mark,
        }

    def execute(self, command, addresses):
        """Carry out a command that passed validation.

        Parameters
        ----------
        command : dict of str to int
        addresses : dict of str to int
            Byte address of each list, by operand.

        Returns
        -------
        Outcome
        """
        return self._serve[command["opcode"]](command, addresses)

    def _observe(self, command, addresses):
        batch, refused, beat, outcome = self._read_batch(command, addresses)
        if batch is not None:
            outcome.hits = self._count(batch, refused, beat)
            outcome.misses = outcome.lookups - outcome.hits
        return outcome

    def _count(self, batch, refused, beat):
        return self.counters.observe(batch.table[~refused], batch.row[~refused], beat[~refused])

    def _decay(self, command, addresses):
        if command["flags"] & AllFlag.ALL:
            self.counters.clear()
        else:
            self.counters.decay(command["shift"])
        return Outcome()

    def _harvest(self, command, addresses):
        table, row, count = self.counters.harvest(command["count"], command["threshold"])
        entries = np.zeros(len(row), HARVEST_RECORD)
        entries["table"], entries["row"], entries["count"] = table, row, count
        outcome = Outcome(entries=len(entries))
        self._write(outcome, addresses["destination"], entries)
        return outcome

    def _install(self, command, addresses):
        table, row, valid, outcome = self._read_rows(command, addresses)
        slots = np.full(len(row), NO_SLOT, np.uint32)
        if self.planning:
            self.planning.choose(command["flags"])
        table, row = table[valid], row[valid]
        slots[valid], present = self.directory.install_each(table, row, *self._partitions(table))
        outcome.hits = int(np.count_nonzero(present))
        outcome.entries = int(np.count_nonzero(slots != NO_SLOT))
        outcome.refused = int(np.count_nonzero(valid)) - outcome.entries
        self._write(outcome, addresses["slots"], slots)
        return outcome

    def _remove(self, command, addresses):
        if command["flags"] & AllFlag.ALL:
            self.directory.clear()
            return Outcome()
        table, row, valid, outcome = self._read_rows(command, addresses)
        slots = np.full(len(row), NO_SLOT, np.uint32)
        for i in np.flatnonzero(valid):
            slots[i] = self.directory.remove(table[i], row[i], self._partition(table[i]))
        outcome.entries = int(np.count_nonzero(slots != NO_SLOT))
        outcome.misses = int(np.count_nonzero(valid)) - outcome.entries
        self._write(outcome, addresses["slots"], slots)
        return outcome

    def _split(self, command, addresses):
        batch, refused, beat, outcome = self._read_batch(command, addresses)
        if batch is None:
            return outcome
        if command["flags"] & BatchFlag.COUNT:
            self._count(batch, refused, beat)
        found = self.directory.lookup(batch.table, batch.row & np.uint64(0xFFFF_FFFF),
                                      *self._partitions(batch.table))
        result = split(self.config, batch, found, refused, beat)
        misses = np.zeros(len(result.miss_row), ROW_RECORD)
        misses["table"], misses["row"] = result.miss_table, result.miss_row
        outcome.hits = int(np.count_nonzero((found != NO_SLOT) & ~refused))
        outcome.misses = outcome.lookups - outcome.hits
        outcome.unique, outcome.popular = len(misses), len(result.popular)
        outcome.refused = result.unkept
        for operand, values in (("slots", result.slots), ("popular", result.popular),
                                ("nonpopular", result.nonpopular), ("misses", misses)):
            self._write(outcome, addresses[operand], values)
        return outcome

    def _plan(self, command, addresses):
        batch, served, beat, outcome = self._read_next(command, addresses)
        if batch is None:
            return outcome
        table = batch.table[served]
        lookups = table, batch.row[served], *self._partitions(table)
        results = self.planning.plan(command, lookups, beat[served], outcome)
        results["slots"] = all_slots(results["slots"], ~served)
        for operand, values in results.items():
            self._write(outcome, addresses[operand], values)
        return outcome

    def _mark(self, command, addresses):
        batch, served, _, outcome = self._read_next(command, addresses)
        if batch is not None:
            outcome.hits = self.planning.mark(command, batch.table[served], batch.row[served])
            outcome.misses = outcome.lookups - outcome.hits
        return outcome

    def _read_next(self, command, addresses):
        """As `_read_batch`, but which lookups are served; none of a batch out of turn."""
        outcome = self.planning.refusal(command)
        if outcome:
            return None, None, None, outcome
        batch, refused, beat, outcome = self._read_batch(command, addresses)
        return batch, None if batch is None else ~refused, beat, outcome

    def _partitions(self, table):
        """`parts_log2` and `part` of each row's table."""
        tables, at = np.unique(table, return_inverse=True)
        return np.array([self._partition(t) for t in tables], np.int64).reshape(-1, 2)[at].T

    def _read_batch(self, command, addresses):
        """The lookups, which of them are refused, the beat of each, and the outcome so far.

        No lookups where the lengths of the bags cannot be read or do not add up.
        """
        flags, count, samples = command["flags"], command["count"], command["samples"]
        lengths = None
        if flags & BatchFlag.JAGGED:
            lengths, faults = self.memory.read_list(
                addresses["lengths"], np.dtype("<u2"), samples * command["table_count"])
            if faults.any():
                worst = int(faults[faults > 0][0])
                return None, None, None, Outcome(status=Status(Status.SLVERR - 1 + worst))
            total = int(lengths.sum(dtype=np.uint64))
            if total != count:
                return None, None, None, Outcome(status=Status.LOOKUPS, error_index=total)
        ids, faults = self.memory.read_list(
            addresses["source"], np.dtype("<u8" if flags & BatchFlag.ID64 else "<u4"), count)
        batch = read_batch(
            ids, samples, command["first_table"], command["table_count"], flags, lengths)
        last_rows = np.array([self.tables[t].last_row for t in range(
            command["first_table"], command["first_table"] + command["table_count"])], np.uint64)
        beyond = batch.row > last_rows[batch.table - command["first_table"]]
        errors = np.where(faults > 0, faults + (Status.SLVERR - SLVERR),
                          np.where(beyond, Status.ROW_OUT_OF_RANGE, Status.OK))
        outcome = lowest(errors)
        refused = errors != Status.OK
        outcome.lookups = int(np.count_nonzero(~refused))
        return batch, refused, beats_of(self.config.lanes, count, flags, lengths), outcome

    def _read_rows(self, command, addresses):
        """Table and row of each entry of a list, which are valid, and the outcome so far."""
        entries, faults = self.memory.read_list(addresses["source"], ROW_RECORD, command["count"])
        errors = list_errors(entries, faults, self.tables)
        return entries["table"], entries["row"], errors == Status.OK, lowest(errors)

    def _write(self, outcome, address, values):
        if not values.size:
            return
        fault = self.memory.write(address, values.view(np.uint8))
        if fault and outcome.status == Status.OK:
            outcome.status, outcome.error_address = Status(Status.SLVERR - 1 + fault), address

    def _partition(self, table):
        descriptor = self.tables[int(table)]
        return descriptor.parts_log2, descriptor.part
