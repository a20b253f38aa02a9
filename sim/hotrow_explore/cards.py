"""Cards: geometry from the presets, rates from results of `hotrow bench --json`.

The results are the files `benchmarks/<preset>-<bench>.json` of this package, written by the
benchmark; a card without them has no rates.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hotrow_rtl.config import PRESETS, Config

from .constants import read
from .systems import ExploreError

FOLDER = "benchmarks"


class NoResult(ExploreError):
    """A benchmark result of the card is missing."""


@dataclass(frozen=True)
class Card:
    """A card and its rates.

    Attributes
    ----------
    config : Config
    split, observe : float
        Lookups per cycle of the simulated hardware with the memory of the benchmark.
    memory_gbps, link_gbps : float
        Random rows, and the link to the host, from cards.toml.
    """

    config: Config
    observe: float
    split: float
    memory_gbps: float
    link_gbps: float

    @property
    def name(self):
        return self.config.name

    @property
    def slots(self):
        return self.config.slots

    def lookup_seconds(self, lookups):
        """Time to split and observe that many lookups in one pass, at the preset's clock
        (projected)."""
        clock = self.config.clock_mhz * 1e6
        return lookups / clock / min(self.observe, self.split)


@dataclass(frozen=True)
class PublishedAccelerator:
    """The accelerator of a published system, assumed to be no bottleneck except for links."""

    name: str = "as published"
    slots: int = 2**62
    memory_gbps: float = float("inf")
    link_gbps: float = float("inf")

    def lookup_seconds(self, lookups):
        return 0.0


def find(name, folder=None) -> Card:
    """A card with its results.

    Raises
    ------
    ExploreError
        If there is no such card; `NoResult` if a benchmark result of it is missing.
    """
    known = read("cards")
    if name not in known:
        raise ExploreError(f"unknown card {name!r}: expected one of {', '.join(known)}")
    folder = files(__package__) / FOLDER if folder is None else Path(folder)
    rates = {bench: _rate(folder, name, bench) for bench in ("observe", "split")}
    return Card(PRESETS[name], rates["observe"], rates["split"], known[name]["memory_gbps"],
                known[name]["link_gbps"])


def _rate(folder, name, bench):
    path = folder / f"{name}-{bench}.json"
    if not path.is_file():
        raise NoResult(f"no benchmark result for card {name}: {path.name} is missing; make it "
                           f"with `hotrow bench {bench} --preset {name} --json > {path.name}`")
    try:
        result = json.loads(path.read_text())
        rate = float(result["lookups_per_cycle"])
    except (ValueError, KeyError, TypeError) as error:
        raise ExploreError(f"{path.name} is no result of hotrow bench {bench}: {error}") from None
    if result.get("preset") != name or not rate > 0:
        raise ExploreError(f"{path.name}: expected preset {name!r} at more than 0 lookups per "
                           f"cycle, not {result.get('preset')!r} at {rate}")
    return rate
