"""Calls of a card with a planner: slots for the rows of coming batches."""

from dataclasses import dataclass
from functools import cached_property
from operator import index

import numpy as np

from .contract import NO_BATCH, ROW_ENTRY, Opcode, PlanFlag, PlanPolicy, Status
from .errors import BatchError, DeviceError
from .futures import Future
from .results import Marked, PlacedRows, Plan

_WORD = 0xFFFF_FFFF
_REFUSED_RETIREMENT = 8  # bit of FAULT
_PLANNED = (Status.OK, Status.ROW_OUT_OF_RANGE)  # the lists are sound
_UNKNOWN = (Status.SLVERR, Status.DECERR, Status.TIMEOUT)  # perhaps planned, the lists are not


@dataclass
class _Batches:
    """Since every slot was free: the batch planned `next`, the one `retired` last, the plans that
    are `under_way`, and whether one was `lost`."""

    next: int = 0
    retired: int = -1
    under_way: int = 0
    lost: bool = False


class PlanCalls:
    """Part of `Device`; each call but `retire` has a form X_async that returns a `Future`."""

    @property
    def next_batch(self) -> int:
        """The batch to be planned next."""
        return self._batches.next

    @property
    def retired_batch(self) -> int:
        """The batch retired last, -1 if there is none."""
        return self._batches.retired

    @cached_property
    def plan_window(self) -> int:
        """Batches that may be planned or marked and not retired."""
        self._check_planner("a window of batches")
        return self.registers.read("PLAN_WINDOW")

    def plan(self, batch, number=None, policy="lru", admission=False, writes=True,
             observe=False) -> Plan:
        """Give every row of a batch a slot, or a place in the bypass area behind the slots.

        The rows of `evictions` leave slots that the rows of `fills` take: scatter the former, then
        gather the latter, into one buffer of `geometry.slots` rows and as many more as are
        bypassed. Once the batch has trained, scatter its bypassed rows, then `retire` it.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        number : int, optional
            Of the batch: from 0 on, one after another. By default the next one.
        policy : str
            Which row leaves of those that no batch needs, see `PlanPolicy`: "lru", "rrip", "lfu" or
            "freq". Of equal rows the one goes that was used longest ago.
        admission : bool
            A row takes the place of another only if its number by the policy is not less.
        writes : bool
            The batch trains: its rows must be written back when they leave. Else they stay as
            they are, clean or not.
        observe : bool
            Count the lookups in the same pass; not with `admission`.

        Raises
        ------
        BatchError
            If the batch is not the next one, or too many before it are not retired. With
            `check_ids` off, if an id does not exist: what became of the others is the error's
            `plan`, to be carried out all the same.
        """
        return self.plan_async(batch, number, policy, admission, writes, observe).result()

    def plan_async(self, batch, number=None, policy="lru", admission=False, writes=True,
                   observe=False) -> Future:
        if admission and observe:
            raise BatchError("a plan with admission cannot observe: a row's count would rise "
                             "between its lookups; call observe(batch) before")
        chosen = policy_flags(policy) | PlanFlag.ADMIT * bool(admission)
        chosen |= PlanFlag.COUNT * bool(observe) | PlanFlag.READ_ONLY * (not writes)
        with self._command() as held:
            number = self._may_plan(Opcode.PLAN, self.next_batch if number is None else number)
            batch, tables, operands = self._stage_batch(batch, held)
            if observe:
                self._count_observed(batch, tables)
            lease = {name: held.enter_context(self._results.lease(size * batch.lookups))
                     for name, size in (("slots", 4), ("fill_slots", 4), ("victim_slots", 4),
                                        ("fills", ROW_ENTRY.itemsize),
                                        ("victims", ROW_ENTRY.itemsize))}
            operands |= {name: part.address for name, part in lease.items()}
            operands |= {"value": number, "flags": int(operands["flags"]) | chosen}

            batches = self._batches
            self._tables.give_slots(table.number for table in tables)

            def finish(c):
                _note(batches, c, number)
                plan = None
                if int(c["status"]) in _PLANNED:
                    plan = _read_plan(c, number, batch.lookups, lease, self.geometry.slots)
                try:
                    self._raise_for(c, batch=batch, tables=tables)
                except BatchError as error:
                    error.plan = plan
                    raise
                return plan

            future = self._submit(Opcode.PLAN, operands, finish, held)
            batches.next, batches.under_way = number + 1, batches.under_way + 1
            return future

    def mark(self, batch, number) -> Marked:
        """Keep the slots that rows of a coming batch have, until it is retired.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        number : int
            Of the batch, which is planned later, or not at all.
        """
        return self.mark_async(batch, number).result()

    def mark_async(self, batch, number) -> Future:
        with self._command() as held:
            number = self._may_plan(Opcode.MARK, number)
            batch, tables, operands = self._stage_batch(batch, held)

            def finish(c):
                self._raise_for(c, batch=batch, tables=tables)
                return Marked(int(c["lookups"]), int(c["hits"]), int(c["misses"]),
                              int(c["end"]) - int(c["start"]), int(c["end"]))

            return self._submit(Opcode.MARK, operands | {"value": number}, finish, held)

    def retire(self, number) -> None:
        """No batch up to `number` needs its slots any longer.

        They have trained; their victims were read out of the slots, and their bypassed rows are
        back in their tables, or both will be before what is planned from now on is gathered.

        Parameters
        ----------
        number : int
            Of a batch that was planned, not before the one retired last.
        """
        number = index(number)
        with self.lock:
            self._check_open()
            self._check_planner("batches")
            if not self.retired_batch <= number < self.next_batch:
                raise BatchError(
                    f"batch {number} cannot be retired: expected one from {self.retired_batch}, "
                    f"retired last, to {self.next_batch - 1}, planned last")
            self.registers.write("PLAN_RETIRED", number & _WORD)
            if self.registers.read("PLAN_RETIRED") != number & _WORD:
                self.registers.write("FAULT", _REFUSED_RETIREMENT)
                raise BatchError(f"batch {number} cannot be retired, as it is not planned yet: "
                                 f"take the result of its plan first")
            self._batches.retired = number

    def _forget_batches(self):
        """As the card does when every slot is freed."""
        self._batches = _Batches()

    def _lose_plans(self):
        """Plans that were under way are given up."""
        self._batches.lost |= self._batches.under_way > 0
        self._batches.under_way = 0

    def _may_plan(self, opcode, number):
        """The batch's number if the card will take it."""
        number = index(number)
        self._check_planner(opcode.name)
        if self._batches.lost:
            raise DeviceError("slots were given to rows whose fills were never told: free them "
                              "with clear_directory(), and begin again with batch 0")
        first = self.next_batch
        if number < first or (opcode is Opcode.PLAN and number != first):
            raise BatchError(
                f"batch {number} cannot be {'planned' if opcode is Opcode.PLAN else 'marked'}: "
                f"expected {'' if opcode is Opcode.PLAN else 'at least '}{first}, the next to be "
                f"planned; clear_directory() begins again with 0")
        window = self.plan_window
        if number - self.retired_batch > window:
            raise BatchError(
                f"batch {number} is {number - self.retired_batch} batches ahead of the one retired "
                f"last, {self.retired_batch}: this card follows {window} at a time, retire some")
        return number

    def _check_planner(self, what):
        if not self.geometry.planner:
            raise DeviceError(f"this card has no planner, so {what} is not to be had: split the "
                              f"batch, or use a card built with planner=True")


def policy_flags(policy):
    """Bits of a policy in a command's flags."""
    known = {each.name.lower(): each for each in PlanPolicy}
    if policy not in known:
        raise BatchError(f"policy must be {', '.join(map(repr, known))}, not {policy!r}")
    return int(PlanFlag.POLICY_LOW * known[policy])


def _note(batches, completion, number):
    """What the completion of a plan says about the next batch."""
    status = Status(int(completion["status"]))
    batches.under_way -= 1
    if status in _UNKNOWN:
        batches.lost = True
    elif status is Status.BATCH_ORDER:
        batches.next = int(completion["error_index"])
    elif status not in _PLANNED:
        batches.next = number


def _read_plan(completion, number, lookups, lists, first_bypassed):
    """What the lists say, each bypassed row once."""
    told = {name: int(completion[name])
            for name in ("entries", "evictions", "refused", "lookups", "hits", "start", "end")}
    slots = lists["slots"].view("<u4", lookups).copy()
    fills = _placed(lists["fills"], lists["fill_slots"], told["entries"])
    evictions = _placed(lists["victims"], lists["victim_slots"], told["evictions"])
    if told["refused"]:
        fills = _fold_bypassed(slots, fills, first_bypassed)
    again, wait_for = told["entries"] - len(fills), int(completion["wait_for"])
    return Plan(number, slots, fills, evictions, int(completion["bypasses"]) - again,
                None if wait_for == NO_BATCH else wait_for, int(completion["unique"]) - again,
                told["lookups"], told["hits"], told["end"] - told["start"], told["end"])


def _placed(rows, slots, count):
    entries = rows.view(ROW_ENTRY, count)
    return PlacedRows(entries["table"].copy(), entries["row"].copy(),
                      slots.view("<u4", count).copy())


def _fold_bypassed(slots, fills, first):
    """List each bypassed row once, in order of first appearance; re-point `slots` in place.

    `first` is the first place of the bypass area.
    """
    bypassed = fills.slots >= first
    key = fills.table.astype(np.uint64) << np.uint64(32) | fills.row
    _, at, group = np.unique(key, return_index=True, return_inverse=True)
    listed = at[group] == np.arange(len(fills))  # not one that comes again
    place = first + np.cumsum(listed & bypassed) - 1  # of those
    number = np.where(bypassed, place[at[group]], fills.slots).astype(np.uint32)
    missed = np.flatnonzero((slots >= first) & (slots < first + np.count_nonzero(bypassed)))
    slots[missed] = number[bypassed][slots[missed] - np.uint32(first)]
    return PlacedRows(fills.table[listed], fills.row[listed], number[listed])
