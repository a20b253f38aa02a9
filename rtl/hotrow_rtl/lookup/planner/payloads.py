"""Payloads of the planner: slot state, requests and answers."""

from amaranth.lib import data, enum

from ...config import Config, log2
from ...contract.encoding import PlanPolicy
from ...interfaces.lookup_payloads import NUMBER_WIDTH, DirectoryOp, slot_in_bank


class Policy(enum.Enum, shape=2):
    """The victim is the row with the lowest number; on a tie the least recently used row."""

    LRU = PlanPolicy.LRU
    RRIP = PlanPolicy.RRIP
    LFU = PlanPolicy.LFU
    FREQ = PlanPolicy.FREQ


def slot_state(config: Config) -> data.StructLayout:
    """State of a slot: the last batch that `needed` it and the last batch that `used` it, modulo
    2**stamp_bits, and the policy's `number`."""
    return data.StructLayout({
        "number": NUMBER_WIDTH,
        "used": config.stamp_bits,
        "needed": config.stamp_bits,
        "dirty": 1,
    })


def slot_way(config: Config) -> data.StructLayout:
    """One way of a set in memory."""
    return data.StructLayout({
        "tag": config.directory_tag_width, "state": slot_state(config), "valid": 1})


def plan_setting(config: Config) -> data.StructLayout:
    """Setting of a command, stable while a row of it is inside.

    `batch` is the batch that is planned or marked, `retired` the newest retired batch.
    """
    return data.StructLayout({
        "batch": config.stamp_bits,
        "retired": config.stamp_bits,
        "policy": Policy,
        "admission": 1,
        "writes": 1,
    })


def slot_place(config: Config) -> data.StructLayout:
    """Set and tag of a row for one hash choice."""
    return data.StructLayout({"set": set_width(config), "tag": config.directory_tag_width})


def plan_request(config: Config) -> data.StructLayout:
    """A row of this bank: set and tag for each hash choice, and the operation."""
    return data.StructLayout({
        "places": data.ArrayLayout(slot_place(config), config.directory_choices),
        "op": DirectoryOp})


def plan_answer(config: Config) -> data.StructLayout:
    """`hit`, `placed` and `slot` as in `directory_answer`.

    `first`: the first lookup of the batch in the slot. `evicts`: the slot's previous row, with that
    `tag`, is evicted and, if `dirty`, must be written back.
    """
    return data.StructLayout({
        "hit": 1, "placed": 1, "slot": slot_in_bank(config), "first": 1, "evicts": 1, "dirty": 1,
        "tag": config.directory_tag_width})


def set_width(config: Config) -> int:
    """Bits of a set index within a bank and a choice."""
    return log2(config.directory_sets // config.banks)
