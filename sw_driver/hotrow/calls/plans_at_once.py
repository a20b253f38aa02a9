"""PLAN by one call of the transport, beside the ring: retirement, marks and places with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..contract.generated import Opcode, PlanFlag
from ..contract.records import COMMAND, COMPLETION, Record
from ..memory.buffer import Held
from ..operands.batch import Batch
from ..operands.results import Plan
from ..operands.tables import TableSet
from ..queues.commands import Commands
from .batch_operands import BatchOperands, batch_operands
from .plan_lists import NO_ROWS, PlanLists, plan_of
from .planner import Planner, policy_flags

_WORD, _COUNT = 0xFFFF_FFFF, int(PlanFlag.COUNT)
_COMMAND, _COMPLETION = Record(COMMAND), Record(COMPLETION)


class Places(Protocol):
    """Where a transport that plans at once writes the places of a batch's lookups.

    Attributes
    ----------
    address : int
        On the host, of what the transport takes.
    placed : int
        Not 0 if it wrote them: every row of the batch had a slot.
    """

    address: int
    placed: int


class PlansAtOnce:
    """Part of `Device`.

    Parameters
    ----------
    commands : Commands
    batches : BatchOperands
    planner : Planner
    execute : callable, optional
        `Transport.plan`.
    """

    def __init__(self, commands: Commands, batches: BatchOperands, planner: Planner,
                 execute: Callable[[int, int, int, int, int], int] | None) -> None:
        self._commands, self._batches, self._planner = commands, batches, planner
        self._execute = execute

    def plan_at_once(self, batch: Batch, number: int, policy: str, observe: bool, lists: Held,
                     retired: int, coming: Sequence[tuple[int, Batch]],
                     places: Places) -> Plan | None:
        """`retire` batches, `mark` those that come, and `plan` one, by one call of the transport.

        Parameters
        ----------
        batch, number, policy, observe, lists
            As in `plan`.
        retired : int
            The last batch that has trained.
        coming : sequence of (int, Batch)
            Batches to be marked, by number.
        places : Places
            If they were written, the plan has no `slots`, and no rows in its lists.

        Returns
        -------
        Plan, or None if the transport has no such call, or executes other commands: nothing changed

        Raises
        ------
        BatchError, CommandError, DeviceError
        """
        commands, numbers = self._commands, self._planner.numbers
        batches = [*coming, (number, batch)]
        held, begun = Held(), False
        try:
            with commands.lock:
                commands.check_open()
                if (self._execute is None or commands.queue("lookup").outstanding
                        or not all(_in_host(each) for _, each in batches)):
                    return None
                number = self._planner.check_number(number, retired=retired)
                tables = [self._batches.check_batch(each) for _, each in batches]
                made = PlanLists(commands.results, batch.lookups, held)
                records = _records(
                    batches, tables, policy_flags(policy) | _COUNT * observe,
                    made.operands(made.lease.slab.host + made.lease.offset))
                numbers.under_way[number], begun = None, True
            completions, plan = records[len(batches) * _COMMAND.size:], None
            done = self._execute(retired & _WORD, _host(records), len(batches),
                                 _host(completions), places.address)
            with commands.lock:
                if done:
                    numbers.retired = retired
                for at in range(done):
                    completion = _COMPLETION.read(completions.data, at)
                    commands.account("lookup", completion)
                    self._batches.check(batches[at][1], tables[at], completion)
                if done == len(batches):
                    numbers.note(completion, number)
                    commands.tables.in_directory.update(tables[-1].numbers)
                    if observe:
                        self._batches.count(tables[-1], completion)
                    plan = plan_of(completion, number, NO_ROWS.slots) if places.placed else (
                        made.read(completion, number, tables[-1], commands.geometry.slots, lists))
                numbers.under_way.pop(number, None)
                begun = False
                return plan
        finally:
            held.release()
            if begun:
                numbers.lose()


def _records(batches: Sequence[tuple[int, Batch]], tables: Sequence[TableSet], flags: int,
             lists: dict[str, int]) -> NDArray[np.uint8]:
    """MARKs and a last PLAN, with its flags and lists, and room for their completions."""
    records = np.zeros(len(batches) * (_COMMAND.size + _COMPLETION.size), np.uint8)
    for at, ((number, batch), of) in enumerate(zip(batches, tables, strict=True)):
        fields = batch_operands(batch, of) | {
            "opcode": Opcode.MARK, "value": number & _WORD, "source": _host(batch.ids),
            "lengths": 0 if batch.lengths is None else _host(batch.lengths)}
        if at + 1 == len(batches):
            fields |= lists | {"opcode": Opcode.PLAN, "flags": fields["flags"] | flags}
        _COMMAND.write(records.data, at, fields)
    return records


def _in_host(batch: Batch) -> bool:
    """Whether the lists of a batch lie in one piece."""
    return batch.ids.flags.c_contiguous and (
        batch.lengths is None or batch.lengths.flags.c_contiguous)


def _host(array: NDArray[Any]) -> int:
    """Address of an array's memory on the host."""
    address: int = array.__array_interface__["data"][0]
    return address
