"""Lookup jobs: what is kept of a command of the lookup queue from its start to its end."""

from amaranth.lib import data, enum

from ...config import Config
from ...interfaces.lookup_payloads import STATUS_WIDTH
from ..reader.length_sum import sum_width
from .result_addresses import LISTS, lists_of

# Who writes them: the misses of a SPLIT have two, of which one writes the victims of a PLAN.
DEPOSITS = (*LISTS[:-1], "even_misses", "odd_misses")
UNDER_WAY = 4  # commands between their start and their outcome


class Unit(enum.Enum, shape=2):
    """Who tells how a command ended."""

    NONE = 0  # the batch was refused
    TALLY = 1
    SCANS = 2
    ENTRIES = 3


def lookup_job(config: Config) -> data.StructLayout:
    """A command that has started, as its end needs it.

    Fields: unit; whether it splits, and plans; by number in `lists_of(config)` which lists it has
    opened; and with `Unit.NONE` the status, and where the error is.
    """
    return data.StructLayout({
        "unit": Unit,
        "splits": 1,
        **({"plans": 1} if config.planner else {}),
        "opened": len(lists_of(config)),
        "status": STATUS_WIDTH,
        "error_index": max(sum_width(config), 32 if config.planner else 0),
    })
