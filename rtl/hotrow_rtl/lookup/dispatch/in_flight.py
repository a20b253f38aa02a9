"""Lookup jobs: the commands between their issue and their completion."""

from amaranth.lib import data, enum

from ...config import Config
from ...interfaces.lookup_payloads import STATUS_WIDTH
from ..reader.length_sum import sum_width
from .result_addresses import list_count


class Unit(enum.Enum, shape=2):
    """The unit that reports the outcome of a command."""

    NONE = 0  # the batch was refused
    BATCH = 1
    SCAN = 2
    LIST = 3


def lookup_job(config: Config) -> data.StructLayout:
    """A command that has started.

    `unit` reports its outcome. `splits`, `plans`: the opcode is SPLIT or PLAN. `opened`: the lists
    that it opened, by number. With `Unit.NONE`, its `status` and
    `error_index`.
    """
    return data.StructLayout({
        "unit": Unit,
        "splits": 1,
        **({"plans": 1} if config.planner else {}),
        "opened": list_count(config),
        "status": STATUS_WIDTH,
        "error_index": max(sum_width(config), 32 if config.planner else 0),
    })
