"""The commands of the lookup queue: the golden models applied to lists in memory."""

import numpy as np
from hotrow_rtl.contract.encoding import NO_SLOT, AllFlag, BatchFlag, Opcode, Status

from ..golden.lookup.counters import Counters
from ..golden.lookup.directory import Directory
from ..golden.lookup.planner_directory import PlannerDirectory
from ..golden.lookup.reader import beats_of, read_batch
from ..golden.lookup.splitter import split
from ..golden.outcome import Outcome, fault_status, first_error
from ..golden.records import HARVEST_RECORD, ROW_RECORD
from .memory import Memory
from .planner import PlanEngine


class LookupEngine:
    """Counters, directory, splitter and planner of the lookup queue.

    Parameters
    ----------
    config : Config
    memory : Memory
    tables : dict of int to Table
        As registered; shared with the register block.

    Attributes
    ----------
    planning : PlanEngine or None
    """

    def __init__(self, config, memory: Memory, tables):
        self.config, self.memory, self.tables = config, memory, tables
        self.counters, self.directory, self.planning = Counters(config), Directory(config), None
        if config.planner:
            self.planning = PlanEngine(config, self.counters)
            self.directory = PlannerDirectory(self.planning.planner, self.counters)
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

    def execute(self, command, addresses) -> Outcome:
        """Execute a validated command.

        Parameters
        ----------
        command : dict of str to int
        addresses : dict of str to int
            Byte address of each list, by operand.
        """
        return self._serve[command["opcode"]](command, addresses)

    def _observe(self, command, addresses):
        batch, served, beat, outcome = self._read_batch(command, addresses)
        if batch is not None:
            outcome.hits = self._count(batch, served, beat)
            outcome.misses = outcome.lookups - outcome.hits
        return outcome

    def _count(self, batch, served, beat):
        return self.counters.observe(batch.table[served], batch.row[served], beat[served])

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
            self.planning.set_policy(command["flags"])
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
        batch, served, beat, outcome = self._read_batch(command, addresses)
        if batch is None:
            return outcome
        if command["flags"] & BatchFlag.COUNT:
            self._count(batch, served, beat)
        found = self.directory.lookup(batch.table, batch.row & np.uint64(0xFFFF_FFFF),
                                      *self._partitions(batch.table))
        result = split(self.config, batch, found, ~served, beat)
        misses = np.zeros(len(result.miss_row), ROW_RECORD)
        misses["table"], misses["row"] = result.miss_table, result.miss_row
        outcome.hits = int(np.count_nonzero((found != NO_SLOT) & served))
        outcome.misses = outcome.lookups - outcome.hits
        outcome.unique, outcome.popular = len(misses), len(result.popular)
        outcome.refused = result.unkept
        for operand, values in (("slots", result.slots), ("popular", result.popular),
                                ("nonpopular", result.nonpopular), ("misses", misses)):
            self._write(outcome, addresses[operand], values)
        return outcome

    def _plan(self, command, addresses):
        outcome = self.planning.refusal(command)
        if outcome:
            return outcome
        batch, served, beat, outcome = self._read_batch(command, addresses)
        if batch is None:
            return outcome
        table = batch.table[served]
        lookups = table, batch.row[served], *self._partitions(table)
        results = self.planning.plan(command, lookups, beat[served], outcome)
        slots = np.full(len(served), NO_SLOT, np.uint32)
        slots[served] = results["slots"]
        for operand, values in (results | {"slots": slots}).items():
            self._write(outcome, addresses[operand], values)
        return outcome

    def _mark(self, command, addresses):
        outcome = self.planning.refusal(command)
        if outcome:
            return outcome
        batch, served, _, outcome = self._read_batch(command, addresses)
        if batch is not None:
            outcome.hits = self.planning.mark(command, batch.table[served], batch.row[served])
            outcome.misses = outcome.lookups - outcome.hits
        return outcome

    def _read_batch(self, command, addresses):
        """The lookups, which of them are served (not refused), the beat of each, and the outcome so
        far.

        The lookups are None if the bag lengths have a fault or do not add up.
        """
        flags, count, samples = command["flags"], command["count"], command["samples"]
        lengths = None
        if flags & BatchFlag.JAGGED:
            lengths, faults = self.memory.read_list(
                addresses["lengths"], np.dtype("<u2"), samples * command["table_count"])
            if faults.any():
                status = Status(int(fault_status(faults[faults > 0][0])))
                return None, None, None, Outcome(status)
            total = int(lengths.sum(dtype=np.uint64))
            if total != count:
                return None, None, None, Outcome(Status.LOOKUPS, error_index=total)
        ids, faults = self.memory.read_list(
            addresses["source"], np.dtype("<u8" if flags & BatchFlag.ID64 else "<u4"), count)
        batch = read_batch(
            ids, samples, command["first_table"], command["table_count"], flags, lengths)
        last_rows = np.array([self.tables[t].last_row for t in range(
            command["first_table"], command["first_table"] + command["table_count"])], np.uint64)
        beyond = batch.row > last_rows[batch.table - command["first_table"]]
        errors = np.where(faults > 0, fault_status(faults),
                          np.where(beyond, Status.ROW_OUT_OF_RANGE, Status.OK))
        outcome = first_error(errors)
        served = errors == Status.OK
        outcome.lookups = int(np.count_nonzero(served))
        return batch, served, beats_of(self.config.lanes, count, flags), outcome

    def _read_rows(self, command, addresses):
        """Table and row of each list entry, which entries are valid, and the outcome so far."""
        entries, faults = self.memory.read_list(addresses["source"], ROW_RECORD, command["count"])
        errors = np.zeros(len(entries), np.uint8)
        for number in np.unique(entries["table"]):
            here, table = entries["table"] == number, self.tables.get(int(number))
            errors[here] = Status.TABLE_UNKNOWN if table is None else np.where(
                entries["row"][here] > table.last_row, Status.ROW_OUT_OF_RANGE, Status.OK)
        errors = np.where(faults > 0, fault_status(faults), errors)
        return entries["table"], entries["row"], errors == Status.OK, first_error(errors)

    def _write(self, outcome, address, values):
        if not values.size:
            return
        fault = self.memory.write(address, values.view(np.uint8))
        if fault and outcome.status == Status.OK:
            outcome.status, outcome.error_address = Status(int(fault_status(fault))), address

    def _partitions(self, table):
        """`parts_log2` and `part` of each row's table."""
        tables, at = np.unique(table, return_inverse=True)
        return np.array([self._partition(t) for t in tables], np.int64).reshape(-1, 2)[at].T

    def _partition(self, table):
        descriptor = self.tables[int(table)]
        return descriptor.parts_log2, descriptor.part
