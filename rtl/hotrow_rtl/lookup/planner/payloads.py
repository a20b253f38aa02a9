"""What the planner keeps with every slot, what it is asked, and what it answers."""

from amaranth.lib import data, enum

from ...config import Config, log2
from ...contract.encoding import PlanPolicy
from ...interfaces.lookup_payloads import NUMBER_WIDTH, DirectoryOp, slot_in_bank


class Policy(enum.Enum, shape=2):
    """Which row leaves: the least number; of equals the one used longest ago."""

    LRU = PlanPolicy.LRU
    RRIP = PlanPolicy.RRIP
    LFU = PlanPolicy.LFU
    FREQ = PlanPolicy.FREQ


def slot_state(config: Config) -> data.StructLayout:
    """Beside the tag: the last batch that `needed` the slot and the last that `used` it, modulo
    their width, and the policy's `number`."""
    return data.StructLayout({
        "number": NUMBER_WIDTH,
        "used": config.stamp_bits,
        "needed": config.stamp_bits,
        "dirty": 1,
    })


def slot_way(config: Config) -> data.StructLayout:
    """One way of a set as it lies in memory."""
    return data.StructLayout({
        "tag": config.directory_tag_width, "state": slot_state(config), "valid": 1})


def plan_setting(config: Config) -> data.StructLayout:
    """What all rows of a command have in common, stable while any is inside.

    `batch` is the one that is planned, or that is marked; `retired` the newest retired one.
    """
    return data.StructLayout({
        "batch": config.stamp_bits,
        "retired": config.stamp_bits,
        "policy": Policy,
        "admission": 1,
        "writes": 1,
    })


def slot_place(config: Config) -> data.StructLayout:
    """Where a row of this bank may lie in one choice: the set, and the tag that it has there."""
    return data.StructLayout({"set": set_width(config), "tag": config.directory_tag_width})


def plan_request(config: Config) -> data.StructLayout:
    """A row of this bank: where it may lie in each choice, and what is asked of it."""
    return data.StructLayout({
        "places": data.ArrayLayout(slot_place(config), config.directory_choices),
        "op": DirectoryOp})


def plan_answer(config: Config) -> data.StructLayout:
    """`hit`, `placed` and `slot` as of `directory_answer`.

    `first`: no row of the batch came to the slot before. `evicts`: the row of that `tag` left it,
    and must be written back if `dirty`.
    """
    return data.StructLayout({
        "hit": 1, "placed": 1, "slot": slot_in_bank(config), "first": 1, "evicts": 1, "dirty": 1,
        "tag": config.directory_tag_width})


def set_width(config: Config) -> int:
    """Bits of a set's number within a bank and a choice."""
    return log2(config.directory_sets // config.banks)
