"""Payloads of a slot table: its memory word, its requests and answers."""

from amaranth import Cat, Value
from amaranth.lib import data, enum

from ...config import Config, log2
from ...contract.encoding import PlanPolicy
from ...interfaces.lookup_payloads import NUMBER_WIDTH, DirectoryOp, slot_in_bank


class Policy(enum.Enum, shape=2):
    """Replacement policy. The victim has the lowest priority; on a tie it was used least
    recently."""

    LRU = PlanPolicy.LRU
    RRIP = PlanPolicy.RRIP
    LFU = PlanPolicy.LFU
    FREQ = PlanPolicy.FREQ


def slot_state(config: Config) -> data.StructLayout:
    """State of a slot on a card with a planner.

    The priority of its row, and modulo their width the last batch that used the slot and the last
    batch that needs it.
    """
    return data.StructLayout({
        "priority": NUMBER_WIDTH,
        "last_used": config.stamp_bits,
        "last_needed": config.stamp_bits,
        "dirty": 1,
    })


def slot_way(config: Config) -> data.StructLayout:
    """One way of a set in memory; the number of its ones is even."""
    return data.StructLayout({
        "tag": config.directory_tag_width,
        **({"state": slot_state(config)} if config.planner else {}),
        "valid": 1,
        "parity": 1,
    })


def with_parity(way: data.View) -> Value:
    """The bits of a way, with the parity that they need."""
    bits = way.as_value()
    return Cat(bits[:-1], bits[:-1].xor())


def plan_setting(config: Config) -> data.StructLayout:
    """Parameters of a PLAN or MARK command that hold for all of its rows.

    `batch` is the batch that is planned or marked, `retired` the newest retired batch.
    """
    return data.StructLayout({
        "batch": config.stamp_bits,
        "retired": config.stamp_bits,
        "policy": Policy,
        "admission": 1,
        "writes": 1,
    })


def set_tag(config: Config) -> data.StructLayout:
    """The set of a row in one hash choice, and the tag of the row in that set."""
    return data.StructLayout({"set": set_width(config), "tag": config.directory_tag_width})


def slot_request(config: Config) -> data.StructLayout:
    """A row of this bank, with its set and tag in each hash choice, and the operation."""
    return data.StructLayout({
        "choices": data.ArrayLayout(set_tag(config), config.directory_choices),
        "op": DirectoryOp,
    })


def slot_answer(config: Config) -> data.StructLayout:
    """`hit`, `placed` and `slot` as in `directory_answer`.

    With a planner, `first`: no row of the batch came to the slot before; `evicts`: the row with the
    tag `tag` lost the slot, and must be written back if `dirty`.
    """
    planned = {"first": 1, "evicts": 1, "dirty": 1, "tag": config.directory_tag_width}
    return data.StructLayout({
        "hit": 1, "placed": 1, "slot": slot_in_bank(config),
        **(planned if config.planner else {})})


def set_width(config: Config) -> int:
    """Bits of the number of a set within a bank and a choice."""
    return log2(config.directory_sets // config.banks)
