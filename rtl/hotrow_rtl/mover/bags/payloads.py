"""Payloads that the parts of the row arithmetic hand to one another.

A *bag* is what becomes one row: the listed rows that are pooled, or the gradients of one row that
is updated with the row itself and its state. Its *reads* follow one another in the order of the
list.
"""

from amaranth.lib import data, enum

from ...config import Config
from ...interfaces.records import packed_address
from ..port.payloads import addressed_copy


class ReadKind(enum.Enum, shape=2):
    """What a read is for."""

    SUMMAND = 0  # a row that is pooled, or a gradient
    ROW = 1  # the row that is updated
    STATE = 2  # and its state


def bag_setting() -> data.StructLayout:
    """What holds for all bags of a command.

    updates
        UPDATE, else POOL.
    listed
        Targets are listed: slots of bags (POOL), numbers of gradients (UPDATE).
    weighted, mean
        Of a POOL.
    adagrad, typed, lr, eps
        Of an UPDATE; `typed` gradients have the rows' type, else fp32.
    items
        Summands in all.
    """
    return data.StructLayout({
        "updates": 1, "listed": 1, "weighted": 1, "mean": 1, "adagrad": 1, "typed": 1,
        "lr": 32, "eps": 32, "items": 32})


def bag_item() -> data.StructLayout:
    """What is known of a read beside its addresses.

    `last`: of its bag; `closes`: the last summand; `empty`: nothing is read, the bag has none.
    `index`: its place in the list. `stray`: what ends the lists before their end, else OK.
    `slot_fault`: of its target.
    """
    return data.StructLayout({
        "kind": ReadKind, "weight": 32, "last": 1, "closes": 1, "empty": 1, "index": 32,
        "stray": 8, "slot_fault": 2})


def bag_read(config: Config) -> data.StructLayout:
    """A read in order.

    reads, port
        Its words come from that row port; else nothing is read for it.
    kind, last, closes, empty, index, weight
        As of `bag_item`.
    status, address
        Why it is refused; if it is not, the address is that to tell of a fault.
    drops
        The bag is not written, even if nothing else is wrong.
    slot_status, destination, two_writes, packed
        Where the row of the bag goes, `packed` as the host names it, or why it cannot.
    """
    return data.StructLayout({
        "port": range(max(2, config.row_ports)),
        "reads": 1,
        "kind": ReadKind,
        "last": 1,
        "closes": 1,
        "empty": 1,
        "weight": 32,
        "index": 32,
        "status": 8,
        "address": packed_address,
        "drops": 1,
        "slot_status": 8,
        "destination": config.address_width,
        "two_writes": 1,
        "packed": packed_address,
    })


def bag_end(config: Config) -> data.StructLayout:
    """What becomes of a bag: it `drops`, for which a completion tells `status`, `index` and
    `address`, or is written to `destination`; then `index` is that of its first read. With state
    there are two, that of the row and then the `last`, which `is_state`."""
    return data.StructLayout({
        "drops": 1,
        "last": 1,
        "is_state": 1,
        "status": 8,
        "index": 32,
        "address": packed_address,
        "destination": config.address_width,
        "two_writes": 1,
        "packed": packed_address,
    })


def asked_read(config: Config) -> data.StructLayout:
    """A read, and the copy that a row port carries for it."""
    return data.StructLayout({"read": bag_read(config), "copy": addressed_copy(config)})
