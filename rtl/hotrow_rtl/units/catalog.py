"""The units that `hotrow generate --unit` knows, and their parameters. Loads without Amaranth."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..config import Config, preset

LANES = (1, 2, 4, 8, 16)
_WIDEST = max(LANES)
# What a unit does not use is small, and fits any number of lanes.
_BASE = replace(
    preset("tiny"), name="unit", burst_beats=8, directory_partitions=1, batch_samples=64,
    row_ports=1, arithmetic=0, planner=False)
_ARITHMETIC = replace(_BASE, bus_bytes=_WIDEST * 4, arithmetic=1, arithmetic_lanes=4)
_LOOKUPS = (
    "lanes", "lane_banks", "address_width", "tables", "counter_sets", "counter_ways",
    "counter_bits", "directory_choices", "directory_sets", "directory_ways",
    "directory_partitions", "batch_samples", "batch_lookups", "miss_entries", "burst_beats",
    "window_beats")


@dataclass(frozen=True)
class Unit:
    """A unit that stands alone.

    Parameters
    ----------
    name : str
    component : str
        Module and class, as "hotrow_rtl.units.counters:AccessCounters"; it takes a Config.
    golden : str
        What its bench compares it with, as "hotrow_sim.golden.lookup.counters:Counters".
    parameters : tuple of str
        The parameters of a Config that the unit uses, and "lanes".
    base : Config
        Where they start.
    lanes : tuple of int
        The numbers of lanes that it may have.
    """

    name: str
    component: str
    golden: str
    parameters: tuple[str, ...]
    base: Config = field(default=_BASE)
    lanes: tuple[int, ...] = LANES

    @property
    def module(self) -> str:
        """Name of the top module, and of the files."""
        return f"hotrow_{self.name}"

    def config(self, settings: Mapping[str, str | int | bool]) -> Config:
        """The configuration with some parameters set; see `configured`."""
        return configured(self.base, settings, self.parameters, f"the unit {self.name}",
                          self.lanes)

    def make(self, config: Config) -> Any:
        """The component."""
        module, _, kind = self.component.partition(":")
        return getattr(importlib.import_module(module), kind)(config)

    def describe(self, config: Config) -> dict[str, int | bool]:
        """The unit's parameters by name."""
        return {name: getattr(config, name) for name in self.parameters}


UNITS = {unit.name: unit for unit in (
    Unit("counters", "hotrow_rtl.units.counters:AccessCounters",
         "hotrow_sim.golden.lookup.counters:Counters",
         ("lanes", "lane_banks", "tables", "counter_sets", "counter_ways", "counter_bits",
          "window_beats")),
    Unit("splitter", "hotrow_rtl.units.lookups:HotColdSplitter",
         "hotrow_sim.model.lookup_engine:LookupEngine", _LOOKUPS),
    Unit("planner", "hotrow_rtl.units.lookups:LookAheadPlanner",
         "hotrow_sim.model.lookup_engine:LookupEngine", (*_LOOKUPS, "stamp_bits"),
         replace(_BASE, planner=True)),
    Unit("row_mover", "hotrow_rtl.units.row_mover:RowMoverUnit",
         "hotrow_sim.model.device:MoveEngine",
         ("lanes", "address_width", "tables", "handles", "row_ports", "row_bytes", "outstanding",
          "burst_beats")),
    Unit("pooling", "hotrow_rtl.units.arithmetic:RowPooling",
         "hotrow_sim.golden.arithmetic.pooling:pool", ("arithmetic_lanes", "row_bytes"),
         _ARITHMETIC),
    Unit("update", "hotrow_rtl.units.arithmetic:RowSteps",
         "hotrow_sim.golden.arithmetic.optimizer:rowwise_adagrad",
         ("arithmetic_lanes", "row_bytes"), _ARITHMETIC),
    Unit("list_writer", "hotrow_rtl.units.list_writer:ListWriter", "numpy:concatenate",
         ("lanes", "address_width", "burst_beats")),
    Unit("bridge", "hotrow_rtl.units.bridge:PcieBridge", "cocotbext.pcie.core:RootComplex",
         ("lanes", "address_width"), lanes=(2, 4)),  # the link has 8 or 16 bytes a cycle
)}


def unit(name: str) -> Unit:
    """The unit of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in UNITS:
        raise ValueError(f"unknown unit {name!r}: expected one of {', '.join(UNITS)}")
    return UNITS[name]


def configured(base: Config, settings: Mapping[str, str | int | bool],
               choices: tuple[str, ...] = (), owner: str = "a card",
               lanes_choices: tuple[int, ...] = LANES) -> Config:
    """A configuration with some parameters set.

    Parameters
    ----------
    base : Config
    settings : dict of str to str, int or bool
        By parameter. `lanes` of 2 or more sets `bus_bytes` to 4 for every lane; of 1 it sets
        `lookup_lanes` and `lane_banks` to 1.
    choices : tuple of str
        The parameters that may be set, by default all and `lanes`.
    owner : str
        For messages.
    lanes_choices : tuple of int
        What `lanes` may be.

    Raises
    ------
    ValueError
        If a parameter is unknown, or a value is no number or out of its range.
    """
    kinds = {each.name: each.type for each in fields(Config)}
    choices = choices or ("lanes", *kinds)
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in choices:
            raise ValueError(f"{owner} has no parameter {name!r}: expected one of "
                             f"{', '.join(choices)}")
        values[name] = _value(name, text, kinds.get(name, int))
    if (lanes := values.pop("lanes", None)) is not None:
        if lanes not in lanes_choices:
            *some, last = map(str, lanes_choices)
            raise ValueError(f"lanes must be {', '.join(some)} or {last}, not {lanes}")
        one = {"lookup_lanes": 1, "lane_banks": 1, "bus_bytes": 8}
        values = {**(one if lanes == 1 else {"lookup_lanes": 0, "bus_bytes": 4 * lanes}), **values}
    return replace(base, **values)


def _value(name, text, kind):
    """A value of the type of its parameter."""
    if kind is str or not isinstance(text, str):
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, not {text!r}") from None
