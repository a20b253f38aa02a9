"""Slots for the rows of coming batches: PLAN, MARK and retirement, on a card with a planner."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..contract.errors import BatchError, DeviceError
from ..contract.generated import (
    FaultBits,
    Opcode,
    PlanFlag,
    PlanPolicy,
    Status,
)
from ..memory.buffer import Held
from ..operands.integers import whole
from ..operands.results import Observation, Plan
from ..queues.commands import Commands, cycles_of
from ..queues.futures import Completion, Future
from ..system.forks import cached_property
from .batch_operands import BatchLike, BatchOperands
from .plan_lists import PlanLists

_WORD = 0xFFFF_FFFF
_PLANNED = (Status.OK, Status.ROW_OUT_OF_RANGE)  # the lists are valid
_ADMIT, _COUNT, _READ_ONLY = map(int, (PlanFlag.ADMIT, PlanFlag.COUNT, PlanFlag.READ_ONLY))
_POLICIES = {each.name.lower(): int(PlanFlag.POLICY_LOW) * each.value for each in PlanPolicy}
# Maybe planned, the lists are not valid.
_UNKNOWN = Status.SLVERR, Status.DECERR, Status.TIMEOUT, Status.PARITY


@dataclass
class BatchNumbers:
    """The batches since every slot was free.

    Attributes
    ----------
    known_next : int
        The batch after the last one that a completion reported.
    under_way : dict of int to None
        Batches whose PLAN is under way, in order.
    retired : int
        The batch retired last, -1 for none.
    lost : bool
        A plan's lists did not reach the host: the directory has slots for rows that were never
        gathered.
    """

    known_next: int = 0
    under_way: dict[int, None] = field(default_factory=dict)
    retired: int = -1
    lost: bool = False

    @property
    def next(self) -> int:
        """The batch to be planned next."""
        return max(self.under_way, default=self.known_next - 1) + 1

    def lose(self) -> None:
        """Nobody will receive the lists of a plan."""
        self.lost = True
        self.under_way.clear()

    def note(self, completion: Completion, number: int) -> None:
        """Read the next batch from the completion of a plan."""
        status = completion["status"]
        if status in _UNKNOWN:
            self.lost = True
        elif status == Status.BATCH_ORDER:
            self.known_next = completion["error_index"]
        else:
            self.known_next = number + (status in _PLANNED)
        self.under_way.pop(number, None)


class Planner:
    """Part of `Device`: the calls return futures."""

    def __init__(self, commands: Commands, batches: BatchOperands):
        self._commands, self._batches = commands, batches
        self.numbers = BatchNumbers()

    @cached_property
    def window(self) -> int:
        """Batches that may be planned or marked and not retired."""
        self.check("a window of batches")
        with self._commands.lock:
            self._commands.check_open()
            return self._commands.registers.read("PLAN_WINDOW")

    def plan(self, batch: BatchLike, number: int | None = None, policy: str = "lru",
             admission: bool = False, writes: bool = True, observe: bool = False,
             lists: Held | None = None) -> Future[Plan]:
        """Give every row of a batch a slot, or a place in the bypass area after the slots.

        The rows of `evictions` leave the slots that rows of `fills` get: scatter `evictions`, then
        gather `fills`, into one buffer of `geometry.slots` rows plus one row per bypass. Once the
        batch has trained, scatter its bypassed rows, then `retire` it.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        number : int, optional
            Number of the batch, counted from 0. By default the next one.
        policy : str
            Which row is evicted among the rows that no batch needs: the one with the lowest number,
            on a tie the one used least recently. "lru": no number; "rrip": how soon the row is
            expected again; "lfu": its access count at every use; "freq": its access count when it
            got the slot.
        admission : bool
            A row replaces another only if its number by the policy is not lower.
        writes : bool
            The batch trains, so the device reports its rows in `evictions` when they leave their
            slots. Otherwise rows keep their state, changed or unchanged.
        observe : bool
            Count the lookups in the same pass; not with `admission`.
        lists : Held, optional
            Gets the memory in which the device wrote the plan's lists, which are views of it until
            its `release`: GATHER and SCATTER read them there. By default they are copies.

        Raises
        ------
        BatchError
            If the batch is not the next one, or too many batches before it are not retired. With
            `check_ids` off, if an id does not exist: the error's `plan` holds the plan of the other
            ids, which must be carried out.
        DeviceError
            If an earlier plan was lost: call `clear_directory()`.
        """
        if admission and observe:
            raise BatchError("a plan with admission cannot observe: a row's count would rise "
                             "between its lookups; call observe(batch) before")
        flags = (policy_flags(policy) | _ADMIT * bool(admission) | _COUNT * bool(observe)
                 | _READ_ONLY * (not writes))
        commands, numbers = self._commands, self.numbers
        with commands.open(Opcode.PLAN) as held:
            planned = self.check_number(number)
            staged = self._batches.stage(batch, held)
            made = PlanLists(commands.results, staged.batch.lookups, held)
            operands = staged.operands | made.operands(made.lease.address)
            operands |= {"value": planned, "flags": staged.operands["flags"] | flags}

            def finish(c: Completion) -> Plan:
                numbers.note(c, planned)
                if observe:
                    self._batches.count(staged.tables, c)
                commands.tables.in_directory.update(staged.tables.numbers)
                plan = None
                if c["status"] in _PLANNED:
                    plan = made.read(c, planned, staged.tables, commands.geometry.slots, lists)
                try:
                    self._batches.check(staged.batch, staged.tables, c)
                except BatchError as error:
                    error.plan = plan
                    raise
                assert plan is not None  # the status is OK
                return plan

            try:
                numbers.under_way[planned] = None
                return commands.submit(Opcode.PLAN, operands, finish, held, lost=numbers.lose)
            except BaseException:
                if commands.queue("lookup").owns(held):
                    numbers.lose()  # an interrupt came before the caller had the future
                else:
                    numbers.under_way.pop(planned, None)
                raise

    def mark(self, batch: BatchLike, number: int) -> Future[Observation]:
        """Hold the slots that rows of a coming batch have, until the batch is retired.

        Parameters
        ----------
        batch : Batch or integers [samples, tables]
        number : int
            Number of the batch, which is planned later, or not at all.
        """
        with self._commands.open(Opcode.MARK) as held:
            number = self.check_number(number, marked=True)
            staged = self._batches.stage(batch, held)

            def finish(c: Completion) -> Observation:
                self._batches.check(staged.batch, staged.tables, c)
                return observation(c)

            return self._commands.submit(
                Opcode.MARK, staged.operands | {"value": number}, finish, held)

    def retire(self, number: int) -> None:
        """Release the slots that batches up to `number` hold.

        These batches have trained. Their evicted rows were read from the slots and their bypassed
        rows are back in the tables, or both will be before the rows of a later plan are gathered.

        Parameters
        ----------
        number : int
            Number of a batch that was planned, not before the one retired last.
        """
        number, numbers = whole(number, "number"), self.numbers
        with self._commands.lock:
            self._commands.check_open()
            self.check("batches")
            if not numbers.retired <= number < numbers.next:
                raise BatchError(
                    f"batch {number} cannot be retired: expected one from {numbers.retired}, "
                    f"retired last, to {numbers.next - 1}, planned last")
            registers = self._commands.registers
            registers.write("PLAN_RETIRED", number & _WORD)
            if registers.read("PLAN_RETIRED") != number & _WORD:
                registers.write("FAULT", FaultBits.RETIREMENT)
                raise BatchError(f"batch {number} cannot be retired, as it is not planned yet: "
                                 f"take the result of its plan first")
            numbers.retired = number

    def check(self, what: str) -> None:
        """Raise DeviceError if the card has no planner."""
        if not self._commands.geometry.planner:
            raise DeviceError(f"this card has no planner, which {what} needs: split the batch, or "
                              f"use a card built with planner=True")

    def check_number(self, number: int | None, marked: bool = False,
                     retired: int | None = None) -> int:
        """The batch's number, by default the next one, if the card will accept it once batches up
        to `retired` are."""
        first = self.numbers.next
        number = first if number is None else whole(number, "number")
        self.check("MARK" if marked else "PLAN")
        if self.numbers.lost:
            raise DeviceError("the lists of a plan were lost, so the directory has slots for rows "
                              "that were never gathered: free them with clear_directory(), and "
                              "begin again with batch 0")
        if number < first or (number != first and not marked):
            raise BatchError(
                f"batch {number} cannot be {'marked' if marked else 'planned'}: "
                f"expected {'at least ' if marked else ''}{first}, the next to be "
                f"planned; clear_directory() begins again with 0")
        retired = self.numbers.retired if retired is None else retired
        ahead = number - retired
        if ahead > self.window:
            raise BatchError(
                f"batch {number} is {ahead} batches ahead of the one retired last, "
                f"{retired}: this card follows {self.window} at a time, retire some")
        return number


def policy_flags(policy: str) -> int:
    """Bits of a policy in a command's flags."""
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise BatchError(f"policy must be {', '.join(map(repr, _POLICIES))}, not {policy!r}")
    return _POLICIES[policy]


def observation(completion: Completion) -> Observation:
    """The lookups of an OBSERVE or a MARK."""
    return Observation(completion["lookups"], completion["hits"],
                       completion["misses"], cycles_of(completion), completion["end"])
