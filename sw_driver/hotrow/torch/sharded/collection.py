"""Embedding tables that several processes train together: `ShardedEmbeddingBagCollection`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from ...contract.errors import Error
from ...device import Device
from ..collection.collection import HotEmbeddingBagCollection
from ..features.configs import table_config
from ..memory.slot_memory import memory_on
from ..optim.on_host import entries_on_host
from ..optim.rules import OptimizerName, Rule
from ..store.opening import Mode
from ..store.options import DEFAULTS, Options
from .parts import SharedParts
from .ranks import Ranks


@entries_on_host
class ShardedEmbeddingBagCollection(HotEmbeddingBagCollection):
    """A `HotEmbeddingBagCollection` whose rows the ranks of `torch.distributed` share out.

    Every row lies in the host memory of one rank, its owner, and gets slots from the owner's
    device. Each rank calls the collection with samples of its own. Lookups and, at
    `optimizer.step()`, gradients go to the owners: an owner adds the ranks' gradients of a row in
    rank order, divides by the number of ranks and only then squares and updates. An owner's device
    counts the lookups of all ranks, so that the ranks agree on hot rows.

    Tables, state and, with `average_gradients` for the dense part, losses have the bits of one rank
    that takes the ranks' batches one after the other, adds up their gradients and divides the loss
    of each by their number, if that is a power of two; one rank that takes all samples as one batch
    adds in another order, and differs by rounding.

    Tables with `ids="any"` have the rows of one process that takes all samples as one batch, as
    `SharedIdMaps` says.

    Tables with a `path` have their rows in a folder of each rank in it, so that the ranks may be on
    several machines. A commit counts when all ranks have it; where some end before, all open the
    one before it. As many ranks open the folder as have trained it.

    All ranks make the same calls in the same order, with as many batches each: forward, prefetch,
    step, learn, `state_dict`, `changes`, `commit` and the like are collective, `close`, `abandon`
    and `flush` are not. `learn` returns the rows that have a slot at all ranks. Clipping and
    `statistics` see a rank's own gradients and lookups.

    Parameters
    ----------
    tables, device, mode, optimizer, lr, options
        As in `HotEmbeddingBagCollection`; every rank has a device of its own.
    ranks : ProcessGroup, optional
        All processes by default.

    Attributes
    ----------
    ranks : Ranks

    Raises
    ------
    Error
    """

    several_ranks = True

    def __init__(self, tables: Iterable[Any], device: Device | str | None = None,
                 mode: Mode | None = None, optimizer: OptimizerName | Rule = "sgd",
                 lr: float = 0.01, options: Options = DEFAULTS, *,
                 ranks: dist.ProcessGroup | None = None, **fields: Any) -> None:
        options = replace(options, **fields)
        tables, self.ranks = tuple(table_config(each) for each in tables), Ranks(ranks)
        if memory_on(options.slots_device).asynchronous:
            raise Error("ranks exchange rows through host memory, where the slots of tables of "
                        "several processes are, too: leave slots_device out")
        if options.cold != "gathered":
            raise Error("cold rows of several processes are gathered: leave cold out")
        super().__init__(tables, device, mode, optimizer, lr, options)

    def _assembled(self, *given: Any) -> SharedParts:
        return SharedParts(*given, ranks=self.ranks)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error("a ShardedEmbeddingBagCollection of hotrow cannot be copied or pickled: save "
                    "its state_dict(), which has whole tables")

    def abandon(self) -> None:
        """Release prefetched batches that will not be trained; not collective."""
        if self.id_maps is not None:
            self.id_maps.keep(0)
        self.store.abandon()
