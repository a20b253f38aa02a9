"""Cards as data: geometry from the presets, rates from results of `hotrow bench --json`.

Results are the files `benchmarks/<preset>-<bench>.json` of this package, as the benchmark wrote
them; nothing is typed in, and a card without them has no rates.
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
    """A card of which no benchmark result is there."""


@dataclass(frozen=True)
class Card:
    """A card and what was measured of it.

    Members
    -------
    config : Config
    split, observe : float
        Lookups per cycle; from the simulated hardware at the benchmark's memory.
    memory_gbps, link_gbps : float
        Rows at random, and the link to the host, from cards.toml.
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
        """To split that many lookups and observe them in the same pass, at the preset's clock
        (projected)."""
        clock = self.config.clock_mhz * 1e6
        return lookups / clock / min(self.observe, self.split)


@dataclass(frozen=True)
class PublishedAccelerator:
    """The accelerator of a published system, taken at its word: never the bound but for links."""

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
        If there is no such card; `NoResult` if there is no benchmark result of it.
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
        raise ExploreError(f"{path.name} tells {result.get('preset')!r} at {rate} lookups per "
                           f"cycle, expected {name!r} at a rate above 0")
    return rate
