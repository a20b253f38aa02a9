"""What a copy of a collection takes along, also to another process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch

from ..features.configs import TableConfig
from ..optim.rules import Rule
from ..store.options import Options
from .contents import TableContents
from .id_maps import IdMaps
from .named_tables import NamedTables


class ResidentCopy:
    """The contents of a collection, up to date, for a collection in mode resident.

    Attributes
    ----------
    tables : list of TableConfig
        In memory.
    rule : Rule
    options : Options
        Of lookups; a copy has no device.
    training, allow_fewer_rows : bool
    trains : list of bool
        Whether each table trains.
    group : dict
        The optimizer's parameter group, without tensors.
    ids : bytes or None
        Of tables with `ids="any"`.
    """

    def __init__(self, tables: Sequence[TableConfig], rule: Rule, options: Options, training: bool,
                 allow_fewer_rows: bool, shown: NamedTables, group: Mapping[str, Any],
                 id_maps: IdMaps | None) -> None:
        self.tables = [replace(config, path=None) for config in tables]
        self.rule, self.training, self.allow_fewer_rows = copy(rule), training, allow_fewer_rows
        self.options = Options(bounds_check_mode=options.bounds_check_mode,
                               is_weighted=options.is_weighted, seed=0, initialise=False)
        self.trains = [each.requires_grad for each in shown.parameters()]
        self.group = {name: value for name, value in group.items() if name != "params"}
        self.ids = None if id_maps is None else id_maps.state()
        self._packed = {name: (_packed(shown[name].weight.detach()), _packed(shown[name].state))
                        for name in shown}

    def fill(self, contents: TableContents, shown: NamedTables, group: dict[str, Any],
             id_maps: IdMaps | None) -> None:
        """Give the parts of a new collection what was copied."""
        for name, packed in self._packed.items():
            weights, state = map(_unpacked, packed)
            contents.assign(name, weights, state)
        if id_maps is not None and self.ids is not None:
            id_maps.load(self.ids)
        group.update(self.group)
        for parameter, trains in zip(shown.parameters(), self.trains, strict=False):
            parameter.requires_grad_(trains)


def _packed(tensor: torch.Tensor | None) -> Any:
    """A tensor without memory that multiprocessing would share, to which it moves a tensor."""
    if tensor is None:
        return None
    return tensor.dtype, tensor.shape, tensor.reshape(-1).clone().view(torch.uint8).numpy()


def _unpacked(packed: Any) -> torch.Tensor | None:
    if packed is None:
        return None
    dtype, shape, array = packed
    return torch.from_numpy(array).view(dtype).view(shape)
