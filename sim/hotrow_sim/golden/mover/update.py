"""Golden model of UPDATE: a step of SGD or row-wise Adagrad on listed rows, in memory."""

import numpy as np
from hotrow_rtl.config import ROW_ALIGNMENT, Config
from hotrow_rtl.contract.encoding import Element, Status, UpdateFlag

from ..arithmetic.optimizer import rowwise_adagrad, sgd
from ..arithmetic.pooling import bag_sums
from ..float import widen
from ..outcome import Outcome, fault_status, first_error
from .addressing import Errors, Items, ListedRows
from .pool import complete_bags

STATE_BYTES = 4  # of row-wise Adagrad


def update_rows(command, entries, counts, numbers, tables, regions, memory, config: Config,
                entry_faults=0, count_faults=0, number_faults=0):
    """Update listed rows by the sums of their gradients.

    A row is not written if the row or one of its gradients is refused, and no row is written from
    the first one with an invalid number of gradients on (`complete_bags`; 0 is invalid). The bytes
    of a row that is listed twice, or is also a gradient, are undefined.

    Parameters
    ----------
    command : mapping of str to int
        `flags`, `gradient_count`, `stride`, `lr`, `eps`, and `gradients`, the packed address of
        gradient 0.
    entries : ROW_RECORD[n]
    counts : uint16[n]
        Gradients of each row.
    numbers : uint32[...]
        Array index of each gradient: its target, or its position.
    tables, regions, memory, config
        As for `gather_scatter.move_rows`.
    entry_faults, count_faults, number_faults : uint8 arrays or 0
        Fault of the bus word of each list element.

    Returns
    -------
    Outcome
        The error of the first refused row, else of the first invalid count. Of one row the order is
        its own error, those of its gradients, the addresses of row and state, then bus faults in
        the same order.
    """
    flags, total = command["flags"], command["gradient_count"]
    adagrad, typed = bool(flags & UpdateFlag.ADAGRAD), bool(flags & UpdateFlag.TYPED)
    count, ended, ended_at = complete_bags(counts, count_faults, total, least=1)
    counts = counts[:count].astype(np.int64)
    used = int(counts.sum())
    if not count:
        return Outcome(ended, ended_at)

    def gradient_bytes(table):
        wide = not typed and table.type != Element.FP32
        return table.row_bytes * (2 if wide else 1)

    rows = ListedRows(
        entries[:count], np.broadcast_to(entry_faults, len(entries))[:count], tables,
        lambda table: 0 < gradient_bytes(table) <= min(command["stride"], config.row_bytes),
        state_bytes=STATE_BYTES if adagrad else None)
    kind, gradient_kind = rows.kind, rows.kind if typed else "fp32"
    size = rows.row_bytes * (2 if gradient_kind != kind else 1)
    owner = np.repeat(np.arange(count), counts)
    gradients = Items(regions, command["gradients"], command["stride"],
                      np.asarray(numbers[:used], np.uint64), size, False, ROW_ALIGNMENT)
    refused = Errors(used)
    refused.note(fault_status(np.broadcast_to(number_faults, len(numbers))[:used]))
    refused.note(gradients.status, address=gradients.packed)
    _note_first(rows.errors, refused, owner)
    places = rows.items(regions, write=True)
    states = rows.states(regions) if adagrad else []

    wanted = (rows.errors.status == Status.OK)[owner]
    gradient_octets, faults = gradients.read(memory, wanted)
    failed = Errors(used)
    failed.note(fault_status(faults), np.flatnonzero(wanted), gradients.packed[wanted])
    _note_first(rows.errors, failed, owner)
    octets = rows.read(places, rows.row_bytes, memory)
    state_octets = rows.read(states, STATE_BYTES, memory)

    chosen = rows.errors.status == Status.OK
    moved = 0
    if chosen.any():
        dtype = np.uint32 if kind == "fp32" else np.uint16
        given = gradient_octets[chosen[owner[wanted]]].view(
            np.uint32 if gradient_kind == "fp32" else np.uint16)
        sums = bag_sums(widen(given, gradient_kind), counts[chosen])
        weights, lr = octets[chosen].view(dtype), np.uint32(command["lr"])
        if adagrad:
            weights, after = rowwise_adagrad(
                weights, sums, state_octets[chosen].view(np.uint32).ravel(), lr,
                np.uint32(command["eps"]), kind)
            state_octets[chosen] = after[:, None].view(np.uint8)
        else:
            weights = sgd(weights, sums, lr, kind)
        octets[chosen] = weights.view(np.uint8)
        moved += rows.store(places, octets, chosen, memory) * rows.row_bytes
        moved += rows.store(states, state_octets, chosen, memory) * STATE_BYTES
    outcome = first_error(rows.errors.status)
    if outcome.status == Status.OK:
        outcome = Outcome(ended, ended_at)
    else:
        outcome.error_address = int(rows.errors.address[outcome.error_index])
    outcome.entries = int(np.count_nonzero(rows.errors.status == Status.OK))
    outcome.bytes = moved
    return outcome


def _note_first(errors, gradient_errors, owner):
    """Record the first error among the gradients of each row."""
    at, first = np.unique(owner[gradient_errors.status != Status.OK], return_index=True)
    found = np.flatnonzero(gradient_errors.status)[first]
    errors.note(gradient_errors.status[found], at, gradient_errors.address[found])
