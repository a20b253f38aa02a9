"""The options of a collection: `Options`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...contract.errors import Error
from ...operands.integers import whole
from ..features.configs import TableGroup

_LEAST = {"share": 1, "workers": 0}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a collection, beside its tables, device, mode and optimizer.

    Parameters
    ----------
    preset : str, optional
        Preset of a device that the collection opens.
    policy : str, optional
        Choice of victims in scratchpipe and freqcache: "lru", "rrip", "lfu" or "freq".
    cold : str
        Rows without a slot in mode hotline: "gathered" fetches them, "pooled" has the card update
        them in the tables, and pool the bags that have no others.
    bounds_check_mode : str
        For ids that are no row of their table, by FBGEMM's names: "fatal" raises, "warning" warns
        and looks up row 0 instead, "ignore" looks up row 0.
    is_weighted : bool
        Whether the weights of a KeyedJaggedTensor are used, as in TorchRec.
    slots_device : str or torch.device
        Memory of the slots: "cpu", or a GPU, which then has embeddings and gradients, too; tables
        of "resident" are in host memory.
    cache_load_factor : float, optional
        Most slots per row of all tables; the collection uses the card's slots, or a half, a
        quarter or an eighth of them, as far as the directory has parts. It replaces `share`.
    share : int
        The slots are one of this many parts of the card's directory, a power of two.
    depth : int
        Batches that may be planned and not trained.
    look_ahead : int
        Batches that are marked beyond the planned one, while plans evict rows.
    workers : int, optional
        Threads that run the stages of coming batches while one trains; with 0 the stages run when a
        batch is used. By default 1 with a card in software and two cores or more, else 0.
    seed : int, optional
        Seed of the tables' contents, uniform in +-1/sqrt(rows); by default drawn from PyTorch's
        generator.
    groups : list of TableGroup, optional
        Existing tables.
    initialise : bool
        False leaves the rows undefined, for a caller who writes all of them.

    Raises
    ------
    Error
        A number is not whole, or out of its range.
    """

    preset: str | None = None
    policy: str | None = None
    cold: str = "gathered"
    bounds_check_mode: str = "fatal"
    is_weighted: bool = False
    slots_device: str | torch.device = "cpu"
    cache_load_factor: float | None = None
    share: int = 1
    depth: int = 4
    look_ahead: int = 2
    workers: int | None = None
    seed: int | None = None
    groups: list[TableGroup] | None = None
    initialise: bool = True

    def __post_init__(self) -> None:
        for name in ("share", "depth", "look_ahead", "workers", "seed"):
            value, least = getattr(self, name), _LEAST.get(name, -1 << 63)
            if value is None:
                continue
            number = whole(value, name)
            if not least <= number < 1 << 63:
                raise Error(f"{name} is {least} or more, and below 2**63, not {value}")
            object.__setattr__(self, name, number)


DEFAULTS = Options()
