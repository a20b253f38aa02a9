"""How many rows a training run keeps in slots, and which: options of the collection by mode."""

import math
from typing import Any

from ...contract.errors import Error
from ...device import Device
from ...traces.trace import Trace
from ..store.placement_policy import share_of
from .learning import LearningSchedule
from .options import TrainOptions

LEARNING_SHARE = 0.05  # of all batches, in which the device counts which rows are hot


def schedule_of(options: TrainOptions, trace: Trace, slots: int) -> LearningSchedule:
    """When mode hotline learns rows for the slots of a card, and how many."""
    return LearningSchedule(
        math.ceil(LEARNING_SHARE * options.total_batches(trace)),
        options.hot_budget.resolve(trace.rows, options.row_bytes, slots),
        options.relearn_every, options.relearn_decay)


def cached_options(options: TrainOptions, trace: Trace, device: Device | None) -> dict[str, Any]:
    """Options of a collection in modes scratchpipe and freqcache.

    Raises
    ------
    Error
        A budget is asked for that is no part of the card's directory.
    """
    budget, share = options.hot_budget, 1
    if budget.asked:
        assert device is not None, "TrainOptions refuses a budget with --memory"
        slots, parts = device.geometry.slots, device.geometry.directory_partitions
        wanted = budget.resolve(trace.rows, options.row_bytes, slots)
        share = share_of(slots, wanted)
        if share > parts:
            raise Error(f"{budget.asked} is {wanted:,} rows, and mode {options.mode} takes "
                        f"the {slots:,} slots of the card's directory or one of its parts, of "
                        f"which this card has {parts}: ask for {slots // parts:,} rows "
                        f"({slots // parts * options.row_bytes:,} bytes) or more, or name "
                        f"another --preset")
    return {"policy": options.policy, "share": share, "depth": options.depth,
            "look_ahead": options.look_ahead, "workers": options.workers}
