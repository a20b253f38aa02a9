"""Modes `resident`, `scratchpipe` and `freqcache`: a model on a HotEmbeddingBagCollection."""

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from ..collection.collection import HotEmbeddingBagCollection
from ..features.bags import Bags
from ..features.configs import TableConfig, TableGroup
from .trainer import StepResult, Trainer


class CollectionTrainer(Trainer):
    """Trains click probabilities on tables that are there already.

    Parameters
    ----------
    model, tables, optimizer
        As `Trainer`.
    device : Device, optional
    mode : str
        One of the collection's.
    **options
        Of the collection.

    Members
    -------
    collection : HotEmbeddingBagCollection
    most_bytes : int
        Most that lived beside the tables in any step: slots, rows without one, rows on their way,
        staged gradients and metadata.
    """

    def __init__(self, model, tables, optimizer, device=None, mode="resident", **options):
        super().__init__(model, tables, optimizer)
        configs = [TableConfig(f"table {number}", rows, tables.dim)
                   for number, rows in enumerate(tables.cardinalities)]
        group = TableGroup(range(len(configs)), configs, optimizer, tables)
        self.collection = HotEmbeddingBagCollection(
            configs, device, mode, optimizer, groups=[group], **options)
        self.most_bytes = 0

    def bags(self, samples):
        """What samples look up: Bags."""
        tables = range(self.tables.count)
        if samples.lengths is None:
            return Bags.of(tables, samples.ids)
        order = np.argsort(samples.lookup_columns, kind="stable")
        return Bags(tuple(tables), torch.from_numpy(samples.ids.astype(np.int64)[order]),
                    torch.from_numpy(samples.lengths.T.astype(np.int64).ravel()))

    def prefetch(self, samples):
        """Begin to bring the rows of coming samples, which `step` is called with in this order."""
        self.collection.prefetch(self.bags(samples))

    def step(self, samples):
        before = self.collection.statistics
        pooled = torch.stack(self.collection.lookup(self.bags(samples)), dim=1)
        logits = self.model(torch.from_numpy(samples.dense), pooled)
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label))
        self.model.zero_grad()
        loss.backward()
        memory = self.collection.memory
        memory.pop("metadata_bits_per_slot", None)
        self.most_bytes = max(self.most_bytes, sum(memory.values()))
        self.dense_optimizer.step()
        self.collection.optimizer.step()
        lookups = samples.ids.size
        if not before:
            return StepResult(logits.detach().numpy(), lookups, lookups, len(samples))
        after = self.collection.statistics
        done = {name: after[name] - before.get(name, 0) for name in after}
        return StepResult(logits.detach().numpy(), lookups, done.get("hits", 0), 0,
                          done.get("rows_moved", 0), done.get("link_bytes", 0))

    def flush(self):
        self.collection.flush()
        return 0

    def close(self):
        self.collection.close()
