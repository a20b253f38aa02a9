"""Golden model of POOL: bags of listed rows to one row each, in memory."""

import numpy as np
from hotrow_rtl.config import ROW_ALIGNMENT, Config
from hotrow_rtl.contract.encoding import PoolFlag, Status

from ..arithmetic.pooling import pool
from .addressing import Errors, Items, Moved, fault_status
from .listed_rows import ListedRows


def complete_bags(lengths, length_faults, room, least=0):
    """How many bags come before the first that cannot be taken, and the error that ends the list.

    Parameters
    ----------
    lengths : uint16[bags]
    length_faults : uint8[bags] or 0
        Of the words they stand in.
    room : int
        What the lengths should add up to.
    least : int
        Of a length.

    Returns
    -------
    bags : int
    status : Status
        LOOKUPS if a bag ends beyond `room` or is too short, or the bags end before; the fault of a
        length's word; else OK.
    index : int
        The sum of the lengths up to that one; with a fault, up to the one before; else 0.
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


def pool_rows(command, entries, lengths, slots, weights, tables, regions, memory, config: Config,
              entry_faults=0, length_faults=0, slot_faults=0, weight_faults=0):
    """Pool bags of listed rows to slots.

    A bag is not written if one of its rows is refused, nor is any from the first bag on that
    `complete_bags` leaves out. What a row holds that is source and destination is undefined. Of
    bags with one slot the last one wins, as with one row port.

    Parameters
    ----------
    command : mapping of str to int
        `flags`, `stride`, and `destination`, slot 0 as a packed address.
    entries : ROW_RECORD[n]
    lengths : uint16[bags]
    slots : uint32[bags]
        Slot of each bag: its target, or its position.
    weights : uint32[n]
        fp32, of each row.
    tables, regions, memory, config
        As of `rows.move_rows`.
    entry_faults, length_faults, slot_faults, weight_faults : uint8 arrays or 0
        How the bus words of the lists answered; 0 is well.

    Returns
    -------
    Moved
        The error is that of the first refused row, or of a bag, which has the position of its
        first row, and goes after the row's; else what ends the list.
    """
    bags, ended, ended_at = complete_bags(lengths, length_faults, len(entries))
    lengths = lengths[:bags].astype(np.int64)
    taken = int(lengths.sum())
    listed = slice(max(1, taken))  # with the first, which gives the shape
    entry_faults, weight_faults = (
        np.broadcast_to(faults, len(entries))[listed] for faults in (entry_faults, weight_faults))
    rows = ListedRows(
        entries[listed], entry_faults, tables,
        lambda table: 0 < table.row_bytes <= min(command["stride"], config.row_bytes),
        operand_faults=weight_faults)
    octets = rows.read(rows.items(regions), rows.row_bytes, memory)
    refused = (rows.errors.status != Status.OK)[:taken]

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
            octets[:taken][chosen].view(np.uint32 if rows.kind == "fp32" else np.uint16),
            lengths[written], rows.kind, weights[:taken][chosen],
            bool(command["flags"] & PoolFlag.MEAN))
        faults = places.store(memory, written, results.view(np.uint8))
        errors.note(fault_status(faults), np.flatnonzero(written), places.packed[written])
    done = int(np.count_nonzero(written & (errors.status == Status.OK)))

    wrong = [(int(at), 0, int(at), rows.errors) for at in np.flatnonzero(refused)[:1]]
    at_fault = np.flatnonzero(pooled & (errors.status != Status.OK))
    wrong += [(int(first[bag]), 1, int(bag), errors) for bag in at_fault[:1]]
    if wrong:
        index, _, at, found = min(wrong, key=lambda each: each[:3])
        status, address = Status(int(found.status[at])), int(found.address[at])
    else:
        status, index, address = ended, ended_at, 0
    return Moved(status, index, address, done, done * rows.row_bytes)
