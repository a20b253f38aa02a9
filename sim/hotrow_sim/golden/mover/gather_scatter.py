"""Golden model of GATHER and SCATTER: copies of listed rows, and the first refused row."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hotrow_rtl.config import ROW_ALIGNMENT, STATE_ALIGNMENT, Config
from hotrow_rtl.contract.encoding import GatherFlag, Opcode, Status

from ..outcome import FAULT_DECERR, fault_status, first_error
from .addressing import Errors, Items


def move_rows(command, entries, slots, tables, regions, memory, config: Config,
              entry_faults=0, slot_faults=0):
    """Copy the listed rows, and their state with flag STATE, to slots (GATHER) or back (SCATTER).

    Of several entries with one destination the last wins, as with one row port; with several
    ports the hardware may keep any of them. The bytes of rows and states that overlap each other
    or the source are undefined.

    Parameters
    ----------
    command : mapping of str to int
        `opcode`, `flags`, `stride`, and the packed addresses of slot 0 of rows and of state:
        `destination` and `state_destination` of a GATHER, `rows` and `state_rows` of a SCATTER.
    entries : ROW_RECORD[n]
    slots : uint32[n]
        Slot of each entry: its target, or its position.
    tables : dict of int to Table
    regions : dict of int to Region
    memory : object
        `view(address, size, write=False)` returns the bytes as uint8 without a copy, or None if
        the access answers DECERR. `write(address, octets)` returns 0 or the bus fault.
    config : Config
    entry_faults, slot_faults : uint8[n] or 0
        Fault of the bus word of each list element.

    Returns
    -------
    Outcome
    """
    errors = Errors(len(entries))
    errors.note(fault_status(entry_faults))
    with_state = bool(command["flags"] & GatherFlag.STATE)
    to_tables = command["opcode"] == Opcode.SCATTER
    slot_bases = [command[name] for name in (
        ("rows", "state_rows") if to_tables else ("destination", "state_destination"))]
    slots = np.asarray(slots, np.uint64)
    copies = []
    for number in np.unique(entries["table"]):
        at = np.flatnonzero(entries["table"] == number)
        table = tables.get(int(number))
        if table is None:
            errors.note(Status.TABLE_UNKNOWN, at)
            continue
        rows = entries["row"][at].astype(np.uint64)
        errors.note(np.where(rows > table.last_row, Status.ROW_OUT_OF_RANGE, Status.OK), at)
        errors.note(fault_status(np.broadcast_to(slot_faults, len(entries))[at]), at)
        fits = 0 < table.row_bytes <= min(command["stride"], config.row_bytes)
        errors.note(Status.OK if fits else Status.STRIDE, at)
        kinds = [(table.weights, table.stride, slot_bases[0], command["stride"], table.row_bytes,
                  ROW_ALIGNMENT)]
        if with_state and table.state_bytes:
            kinds.append((table.state, table.state_bytes, slot_bases[1], table.state_bytes,
                          table.state_bytes, STATE_ALIGNMENT))
        for base, stride, slot_base, slot_stride, size, alignment in kinds:
            table_end = Items(regions, base, stride, rows, size, write=to_tables)
            slot_end = Items(regions, slot_base, slot_stride, slots[at], size, not to_tables,
                             alignment)
            ends = (slot_end, table_end) if to_tables else (table_end, slot_end)
            copies.append(_Copies(at, size, *ends))
            errors.note(copies[-1].source.status, at, copies[-1].source.packed)
            errors.note(copies[-1].destination.status, at, copies[-1].destination.packed)

    moved = _move_at_once(copies, errors, memory)
    if moved is None:
        moved = _move_in_order(copies, errors, memory)
    outcome = first_error(errors.status)
    if outcome.status != Status.OK:
        outcome.error_address = int(errors.address[outcome.error_index])
    outcome.entries, outcome.bytes = int(np.count_nonzero(errors.status == Status.OK)), moved
    return outcome


@dataclass(frozen=True)
class _Copies:
    """Copies of `size` bytes, rows or state, for the entries at positions `at`."""

    at: np.ndarray
    size: int
    source: Items
    destination: Items


def _order_matters(work):
    """Whether the copies, pairs (copies, chosen), may write a byte twice."""
    arrays, spans = {}, []
    for part, chosen in work:
        end = part.destination
        arrays.setdefault((end.base, end.stride), []).append((end, chosen))
    for ends in arrays.values():
        numbers = np.concatenate([end.number[chosen] for end, chosen in ends])
        if len(np.unique(numbers)) < len(numbers):
            return True
        spans.append((min(int(end.address[chosen].min()) for end, chosen in ends),
                      max(int(end.address[chosen].max()) + end.size for end, chosen in ends)))
    spans.sort()
    return any(stop > start for (_, stop), (start, _) in pairwise(spans))


def _move_at_once(copies, errors, memory):
    """Copy table by table; return the bytes moved.

    None, with nothing moved, if the order matters or memory does not answer for every byte.
    """
    work = [(part, errors.status[part.at] == Status.OK) for part in copies]
    work = [(part, chosen) for part, chosen in work if chosen.any()]
    if _order_matters(work):
        return None
    ends = [(part.source.array(memory, chosen), part.destination.array(memory, chosen))
            for part, chosen in work]
    if any(items is None for pair in ends for items in pair):
        return None
    sources = [items[place] for (items, place), _ in ends]
    for octets, (_, (items, place)) in zip(sources, ends, strict=True):
        items[place] = octets
    return sum(octets.size for octets in sources)


def _move_in_order(copies, errors, memory):
    """Copy one by one in the order of the list; record bus faults, return the bytes moved."""
    order = sorted((position, step, number) for number, part in enumerate(copies)
                   for step, position in enumerate(part.at.tolist()))
    accepted = errors.status == Status.OK
    moved = 0
    for position, step, number in order:
        if not accepted[position]:
            continue
        part = copies[number]
        octets = memory.view(int(part.source.address[step]), part.size)
        if octets is None:
            errors.note(fault_status(FAULT_DECERR), position, part.source.packed[step])
            continue
        fault = memory.write(int(part.destination.address[step]), octets.copy())
        errors.note(fault_status(fault), position, part.destination.packed[step])
        moved += 0 if fault else part.size
    return moved
