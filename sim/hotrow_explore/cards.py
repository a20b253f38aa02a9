"""Cards: geometry from the presets, rates from `hotrow bench` on their Verilated hardware.

The results are the files `benchmarks/<preset>.json` of this package, written by `measure`; a card
without one has no rates.
"""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hotrow_rtl.config import PRESETS, Config

from .constants import driver_seconds, read
from .systems import ExploreError

FOLDER, BENCHES = "benchmarks", ("observe", "split")


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
    memory_gbps, link_gbps, memory_gb : float
        Random rows, the link to the host, and the card's own memory, from cards.toml.
    """

    moves_rows = True  # GATHER and SCATTER, without the host's cores

    config: Config
    observe: float
    split: float
    memory_gbps: float
    link_gbps: float
    memory_gb: float

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

    def arithmetic_seconds(self, rows, dim):
        """Time to add that many rows to their bags: a row takes dim / lanes cycles (projected)."""
        lanes = self.config.arithmetic_lanes or self.config.bus_bytes // 4
        return rows * -(-dim // lanes) / (self.config.clock_mhz * 1e6)

    driver_seconds = staticmethod(driver_seconds)


@dataclass(frozen=True)
class PublishedAccelerator:
    """The accelerator of a published system, assumed to be no bottleneck except for links."""

    name: str = "as published"
    slots: int = 2**62
    memory_gbps: float = float("inf")
    link_gbps: float = float("inf")
    memory_gb: float = 0.0  # of its own, for tables: none of the systems has any
    moves_rows: bool = False

    def lookup_seconds(self, lookups):
        return 0.0

    def driver_seconds(self, lookups, constants):
        return 0.0


def find(name, folder=None) -> Card:
    """A card with its results.

    Raises
    ------
    ExploreError
        If there is no such card; `NoResult` if it has no benchmark result.
    """
    figures = read("cards").get(name)
    if figures is None:
        raise ExploreError(f"unknown card {name!r}: expected one of {', '.join(read('cards'))}")
    rates = {bench: _rate(result(name, folder), name, bench) for bench in BENCHES}
    return Card(PRESETS[name], rates["observe"], rates["split"], figures["memory_gbps"],
                figures["link_gbps"], figures["memory_gb"])


def result(name, folder=None) -> dict:
    """What `measure` recorded for a card.

    Raises
    ------
    ExploreError
        The file is no such record; `NoResult` if there is none.
    """
    path = (files(__package__) / FOLDER if folder is None else Path(folder)) / f"{name}.json"
    if not path.is_file():
        raise NoResult(f"no benchmark result for card {name}: measure it with "
                       f"`hotrow explore --measure-card --card {name}`")
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ExploreError(f"{path.name} is no JSON: {error}") from None


def measure(name, folder=None) -> Path:
    """Run `hotrow bench` on the Verilated card, and record the rates beside a digest of the Verilog
    that they came from: the path of the record."""
    recorded = {"preset": name, "verilog_sha256": digest(name)}
    for bench in BENCHES:
        done = subprocess.run([sys.executable, "-m", "hotrow.command.cli", "bench", bench,
                               "--preset", name, "--json"],
                              stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise ExploreError(f"hotrow bench {bench} --preset {name} failed, see above")
        recorded[bench] = json.loads(done.stdout)
    path = Path(str(files(__package__) / FOLDER) if folder is None else folder) / f"{name}.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n")
    return path


def digest(name):
    """SHA-256 of the Verilog of a card."""
    from hotrow_sim.verilated.build import cached_verilog

    return hashlib.sha256(cached_verilog(PRESETS[name]).encode()).hexdigest()


def _rate(recorded, name, bench):
    try:
        rate = float(recorded[bench]["lookups_per_cycle"])
    except (ValueError, KeyError, TypeError) as error:
        raise ExploreError(f"{name}.json has no result of hotrow bench {bench}: "
                           f"{error!r}") from None
    if recorded.get("preset") != name or not 0 < rate < float("inf"):
        raise ExploreError(f"{name}.json: expected preset {name!r} at more than 0 lookups per "
                           f"cycle, not {recorded.get('preset')!r} at {rate}")
    return rate
