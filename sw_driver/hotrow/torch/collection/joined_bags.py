"""The arguments of a model's bags as one batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...contract.errors import BatchError, Error
from ..features.bags import Bags, GridBags
from .embedding_bag import HotEmbeddingBag


def joined_bags(modules: Mapping[str, HotEmbeddingBag], inputs: Mapping[str, Any]) -> Bags:
    """The Bags of all calls of a model's bags that train.

    Parameters
    ----------
    modules : dict of str to HotEmbeddingBag
        By their names in the model.
    inputs : dict of str to Tensor, tuple or list
        By the same names, in the order of the calls: the arguments of a call, or a list with those
        of each call of the bag.

    Raises
    ------
    Error, BatchError
    """
    unknown = [name for name in inputs if name not in modules]
    if unknown:
        raise Error(f"the model has no HotEmbeddingBag {unknown[0]!r}: expected inputs of "
                    f"{', '.join(modules)}")
    grid = _joined_grid(modules, inputs)
    if grid is not None:
        return grid
    calls: list[Bags] = []
    for name, given in inputs.items():
        module = modules[name]
        if module.training and module.train_rows:
            calls += [module.bags(*(each if isinstance(each, tuple) else (each,)))
                      for each in (given if isinstance(given, list) else [given])]
    if any(each.weights is not None for each in calls):
        raise BatchError("bags that are looked up as one batch take no weights per sample: leave "
                         "inputs out")
    samples = {each.samples for each in calls}
    if len(samples) > 1:
        raise BatchError(f"bags that are looked up as one batch have one number of samples, got "
                         f"{sorted(samples)}")
    tables = tuple(table for each in calls for table in each.tables)
    grids = [each.grid for each in calls if isinstance(each, GridBags)]
    if grids and len(grids) == len(calls):
        return GridBags(tables, _joined(grids))
    no_ids = torch.empty(0, dtype=torch.int64)
    return Bags(tables, torch.cat([each.ids for each in calls] or [no_ids]),
                torch.cat([each.lengths for each in calls] or [no_ids]))


def _joined_grid(modules: Mapping[str, HotEmbeddingBag],
                 inputs: Mapping[str, Any]) -> GridBags | None:
    """The Bags of one call per bag with ids int64[samples, 1] each; None of other calls."""
    columns = list(inputs.values())
    if not columns or not all(
            isinstance(each, torch.Tensor) and each.dtype == torch.int64 and each.dim() == 2
            and each.shape[1] == 1 and each.shape[0] == columns[0].shape[0]
            and each.device.type == "cpu" for each in columns):
        return None
    used = [modules[name] for name in inputs]
    if not all(each.padding_idx is None and each.training and each.train_rows
               for each in used):
        return None
    return GridBags(tuple(each.table for each in used), _joined(columns))


def _joined(columns: Sequence[torch.Tensor]) -> torch.Tensor:
    """Ids [samples, k] side by side, each column contiguous."""
    return torch.cat([each.T for each in columns]).T
