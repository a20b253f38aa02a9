"""Golden model of POOL: bags of listed rows to one row each, in memory."""

import numpy as np
from hotrow_rtl.config import ROW_ALIGNMENT, Config
from hotrow_rtl.contract.encoding import PoolFlag, Status

from ..arithmetic.pooling import pool
from ..command_validator import pools_batch
from ..outcome import Outcome, fault_status
from ..records import ROW_RECORD
from .addressing import Errors, Items, ListedRows


def complete_bags(lengths, length_faults, room, least=0):
    """Number of bags before the first invalid bag, and the error of that bag.

    Parameters
    ----------
    lengths : uint16[bags]
    length_faults : uint8[bags] or 0
        Fault of the bus word of each length.
    room : int
        Sum that the lengths must have.
    least : int
        Shortest valid length.

    Returns
    -------
    bags : int
    status : Status
        LOOKUPS if a bag exceeds `room` or is too short, or if the sum is less than `room`; the
        fault of a length's word; else OK.
    index : int
        LOOKUPS: the sum of the lengths including that bag. Fault: the sum before that bag. Else 0.
    """
    lengths = lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    faults = np.broadcast_to(length_faults, len(lengths))
    wrong = np.flatnonzero((faults != 0) | (ends > room) | (lengths < least))
    if len(wrong):
        bag = int(wrong[0])
        if faults[bag]:
            return bag, Status(int(fault_status(faults[bag]))), int(ends[bag] - lengths[bag])
        return bag, Status.LOOKUPS, int(ends[bag])
    if ends[-1] < room:
        return len(lengths), Status.LOOKUPS, int(ends[-1])
    return len(lengths), Status.OK, 0


def batch_entries(command, ids, lengths):
    """The rows that a POOL of a batch looks up: ROW_RECORD[n].

    Parameters
    ----------
    command : mapping of str to int
        `first_table`, and `bags`, the samples of the batch.
    ids : uint32[n]
    lengths : uint16[samples * columns]
        Column after column; ids beyond their sum belong to the first column.
    """
    bags = np.searchsorted(lengths.cumsum(dtype=np.int64), np.arange(len(ids)), "right")
    columns = np.where(bags < len(lengths), bags // command["bags"], 0)
    entries = np.zeros(len(ids), ROW_RECORD)
    entries["row"], entries["table"] = ids, command["first_table"] + columns
    return entries


def pool_rows(command, entries, lengths, slots, weights, tables, regions, memory, config: Config,
              entry_faults=0, length_faults=0, slot_faults=0, weight_faults=0):
    """Pool bags of listed rows to slots.

    A bag is not written if one of its rows is refused, and no bag is written from the first
    invalid one on (`complete_bags`). The bytes of a row that is both source and destination are
    undefined. Of several bags with one slot the last wins, as with one row port.

    Parameters
    ----------
    command : mapping of str to int
        `opcode`, `flags`, `stride`, and `destination`, the packed address of slot 0; of a batch
        `first_table`, whose rows set the shape.
    entries : ROW_RECORD[n]
    lengths : uint16[bags]
    slots : uint32[bags]
        Slot of each bag: its target, or its position.
    weights : uint32[n]
        fp32, of each row.
    tables, regions, memory, config
        As for `gather_scatter.move_rows`.
    entry_faults, length_faults, slot_faults, weight_faults : uint8 arrays or 0
        Fault of the bus word of each list element.

    Returns
    -------
    Outcome
        The error of the first bag that is refused or has a refused row, else of the first invalid
        bag. A bag's error has the position of its first row, or of the next bag's if it is empty.
    """
    bags, ended, ended_at = complete_bags(lengths, length_faults, len(entries))
    lengths = lengths[:bags].astype(np.int64)
    count = int(lengths.sum())
    listed = slice(max(1, count))  # includes the first row, which sets the shape
    entry_faults, weight_faults = (
        np.broadcast_to(faults, len(entries))[listed] for faults in (entry_faults, weight_faults))
    rows = ListedRows(
        entries[listed], entry_faults, tables,
        lambda table: 0 < table.row_bytes <= min(command["stride"], config.row_bytes),
        operand_faults=weight_faults,
        shape_table=command["first_table"] if pools_batch(command) else None)
    octets = rows.read(rows.items(regions), rows.row_bytes, memory)
    refused = (rows.errors.status != Status.OK)[:count]

    errors = Errors(bags)
    first = np.cumsum(lengths) - lengths
    before = np.r_[0, np.cumsum(refused)]
    pooled = (before[first + lengths] == before[first]) & (rows.kind is not None)
    numbers = np.asarray(slots[:bags], np.uint64)
    places = Items(regions, command["destination"], command["stride"], numbers, rows.row_bytes,
                   True, ROW_ALIGNMENT)
    errors.note(fault_status(np.broadcast_to(slot_faults, len(slots))[:bags]))
    errors.note(places.status, address=places.packed)
    written = pooled & (errors.status == Status.OK)
    if written.any():
        chosen = np.repeat(written, lengths)
        results = pool(
            octets[:count][chosen].view(np.uint32 if rows.kind == "fp32" else np.uint16),
            lengths[written], rows.kind, weights[:count][chosen],
            bool(command["flags"] & PoolFlag.MEAN))
        faults = places.store(memory, written, results.view(np.uint8))
        errors.note(fault_status(faults), np.flatnonzero(written), places.packed[written])

    done = int(np.count_nonzero(written & (errors.status == Status.OK)))
    outcome = Outcome(ended, ended_at, entries=done, bytes=done * rows.row_bytes)
    wrong = [(int(np.searchsorted(first + lengths, at, "right")), int(at), int(at), rows.errors)
             for at in np.flatnonzero(refused)[:1]]
    failed = np.flatnonzero(pooled & (errors.status != Status.OK))
    wrong += [(int(bag), int(first[bag]), int(bag), errors) for bag in failed[:1]]
    if wrong:
        _, outcome.error_index, at, found = min(wrong, key=lambda each: each[0])
        outcome.status = Status(int(found.status[at]))
        outcome.error_address = int(found.address[at])
    return outcome
