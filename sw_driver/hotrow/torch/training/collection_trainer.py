"""A model on a `HotEmbeddingBagCollection`, in any of its modes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ...device import Device
from ...ids import Expiry
from ...ids.log import ADMITTED, EXPIRED
from ...traces.trace import Samples
from ..collection.collection import HotEmbeddingBagCollection
from ..features.bags import Bags
from ..features.configs import TableConfig, TableGroup
from ..memory.rows import Rows
from ..memory.slots import SlotStorage
from ..memory.tables import EmbeddingTables
from ..optim.rules import Rule
from ..pipeline.micro_batch import backward, refuse_batch_coupled
from ..store.cached import CachedStore
from ..store.opening import Mode
from ..store.options import Options
from ..store.placement_policy import HotlinePolicy
from .trainer import StepResult, Trainer


class CollectionTrainer(Trainer):
    """Trains click probabilities on existing tables.

    Parameters
    ----------
    model, tables, optimizer
        As in `Trainer`. In mode hotline the model must treat each sample alone.
    device : Device, optional
    mode : str
        A mode of the collection.
    any_ids : bool
        Whether the tables have `ids="any"`; the one looked up least recently loses its row.
    id_maps : bytes, optional
        State of the collection's `id_maps` to continue from.
    path, memory : optional
        As in `TableConfig`, of tables on disk: `tables` is then one of their shape, without memory.
    **options
        Of the collection.

    Attributes
    ----------
    collection : HotEmbeddingBagCollection
    cache : CachedStore or None
        The collection's store, but for mode resident.
    counting : bool
        Whether steps of mode hotline count their lookups.
    most_bytes : int
        Largest memory beside the tables in any step: slots, bypass area, rows on their way, staged
        gradients and metadata.

    Raises
    ------
    Error
        In mode hotline, a layer that couples the samples of a batch.
    """

    def __init__(self, model: nn.Module, tables: EmbeddingTables, optimizer: Rule,
                 device: Device | None = None, mode: Mode = "resident",
                 any_ids: bool = False, id_maps: bytes | None = None, path: str | None = None,
                 memory: int | None = None, **options: Any):
        super().__init__(model, tables, optimizer)
        if mode == "hotline":
            refuse_batch_coupled(model)
        more: dict[str, Any] = {"path": path, "memory": memory}
        if any_ids:
            more |= {"ids": "any", "expiry": Expiry()}
        configs = [TableConfig(f"table {number}", rows, tables.dim, **more)
                   for number, rows in enumerate(tables.cardinalities)]
        groups = None if path else [TableGroup(range(len(configs)), configs, optimizer, tables)]
        self.collection = HotEmbeddingBagCollection(
            configs, device, mode, optimizer, options=Options(groups=groups, **options))
        self.tables = self.collection.store.groups[0].tables
        if self.collection.id_maps is not None and id_maps is not None:
            self.collection.id_maps.load(id_maps)
        store = self.collection.store
        self.cache = store if isinstance(store, CachedStore) else None
        self.most_bytes, self.counting = 0, True
        self._counted: dict[str, int] = {}

    @property
    def storage(self) -> SlotStorage | None:
        """The slots: SlotStorage, or None in mode resident."""
        return None if self.cache is None else self.cache.storages[0]

    def bags(self, samples: Samples) -> Bags:
        """Lookups of samples: Bags."""
        tables = tuple(range(self.tables.count))
        ids: NDArray[Any] = samples.ids
        # PyTorch indexes with signed integers; those of 32 bits halve what the device reads.
        narrow = max(self.tables.cardinalities) <= 1 << 31 and ids.dtype == np.uint32
        ids = ids.view(np.int32) if narrow else ids.astype(np.int64, copy=False)
        if samples.lengths is None:
            return Bags.of(tables, ids)
        order = np.argsort(samples.lookup_columns, kind="stable")
        return Bags(tables, torch.from_numpy(ids[order]),
                    torch.from_numpy(samples.lengths.T.astype(np.int64).ravel()))

    def observe(self, samples: Samples) -> None:
        """Let the device count the lookups of samples."""
        self.collection.observe(self.bags(samples))

    def learn(self, limit: int | None = None, decay: int = 0) -> int:
        """Give the most accessed rows their slots; arguments as in the collection's `learn`.

        Returns
        -------
        int
            Rows that did not have a slot before.
        """
        storage = self.storage
        assert storage is not None  # mode resident has nothing to learn
        before = storage.resident
        self.collection.learn(limit=limit, decay=decay)
        return int((~torch.isin(storage.resident, before)).sum())

    def prefetch(self, samples: Samples) -> None:
        """Begin to fetch the rows of samples; `step` takes batches in the order of these calls."""
        self.collection.prefetch(self.bags(samples))

    def step(self, samples: Samples) -> StepResult:
        collection, bags = self.collection, self.bags(samples)
        logits = torch.empty(len(samples))

        def loss(part: tuple[torch.Tensor, Bags, torch.Tensor, torch.Tensor]) -> torch.Tensor:
            dense, here, label, at = part
            predicted = self.model(dense, torch.stack(collection.lookups.by_feature(
                here, collection.training, collection.train_rows), dim=1))
            logits[at] = predicted.detach()
            return binary_cross_entropy_with_logits(predicted, label)

        batch = (torch.from_numpy(samples.dense), bags, torch.from_numpy(samples.label),
                 torch.arange(len(samples)))
        self.model.zero_grad()
        if len(bags.ids):
            policy = self.cache and self.cache.policy
            if isinstance(policy, HotlinePolicy) and not collection.store.waiting:
                policy.counting = self.counting
                collection.prefetch(bags)
            backward(collection, batch, loss)
        else:
            loss(batch).backward()
        memory = collection.memory
        memory.pop("metadata_bits_per_slot", None)
        self.most_bytes = max(self.most_bytes, int(sum(memory.values())))
        self.dense_optimizer.step()
        collection.optimizer.step()
        done = self.counted()
        return StepResult(logits.numpy(), samples.ids.size,
                          done.get("hits") if self.cache else None, done.get("popular", 0),
                          done.get("rows_moved", 0), done.get("link_bytes", 0))

    def rehearse(self, samples: Samples) -> StepResult:
        counting, self.counting = self.counting, False
        try:
            return self.step(samples)
        finally:
            self.collection.batches.count -= 1
            self.counting = counting

    def counted(self) -> dict[str, int]:
        """Counts of the collection since the last call: dict, empty in mode resident."""
        counts = self.collection.statistics
        if self.cache and self.collection.mode == "hotline":
            counts["popular"] = self.cache.micro_batches.popular
        before, self._counted = self._counted, counts
        return {name: count - before.get(name, 0) for name, count in counts.items()}

    def id_figures(self) -> dict[str, int]:
        """Of a whole run with any ids, all tables together: dict of `rows_used`, `ids_admitted`,
        `ids_expired`, `default_lookups`."""
        if self.collection.id_maps is None:
            return {}
        maps = self.collection.id_maps.maps.values()
        kinds = np.concatenate([each.log.events()["kind"] for each in maps])
        return {"rows_used": sum(map(len, maps)), "ids_admitted": int((kinds == ADMITTED).sum()),
                "ids_expired": int((kinds == EXPIRED).sum()),
                "default_lookups": sum(each.default_lookups for each in maps)}

    def flush(self) -> None:
        """Bring the tables up to date."""
        self.collection.flush()

    def read_rows(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.cache is not None:
            self.cache.device.flush()
        weights, state = super().read_rows(rows)
        if self.storage is not None:
            where, slots = self.storage.find(rows)
            weights[where], here = self.storage.rows.read(slots)
            if state is not None and here is not None:
                state[where] = here
        return weights, state

    def write_rows(self, rows: torch.Tensor, weights: torch.Tensor,
                   state: torch.Tensor | None) -> None:
        if self.cache is None or self.storage is None:
            super().write_rows(rows, weights, state)
            return
        self.cache.device.flush()
        where, slots = self.storage.find(rows)
        cold = torch.ones(len(rows), dtype=torch.bool)
        cold[where] = False
        source = Rows(weights, state)
        self.storage.rows.write(slots, *source.read(where))
        self.storage.dirty[slots] = True
        super().write_rows(rows[cold], *source.read(cold))
        self.cache.device.upload()
        self.collection.lifecycle.expect_writes()
