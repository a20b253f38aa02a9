"""Sums over a training run, and the figures of its report."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...device import Device
from .metrics import auc, log_loss
from .trainer import StepResult


class Predictions:
    """Labels, and the predictions of two trainers before they trained on the batch.

    Attributes
    ----------
    label, logit, reference : list of float32[B], one per batch; no reference without a run beside
    """

    def __init__(self) -> None:
        self.label: list[NDArray[np.float32]] = []
        self.logit: list[NDArray[np.float32]] = []
        self.reference: list[NDArray[np.float32]] = []

    def add(self, label: NDArray[np.float32], logit: NDArray[np.float32],
            reference: NDArray[np.float32] | None) -> None:
        self.label.append(label)
        self.logit.append(logit)
        if reference is not None:
            self.reference.append(reference)

    def score(self, first: int) -> dict[str, float | None]:
        """Loss and AUC over the batches from `first` on: dict, by the names of the report."""
        label = np.concatenate(self.label[first:])
        found: dict[str, float | None] = {}
        for name, column in (("", self.logit), ("_reference", self.reference)):
            logit = np.concatenate(column[first:]) if column else None
            found["loss" + name] = None if logit is None else log_loss(label, logit)
            found["auc" + name] = None if logit is None else auc(label, logit)
        return found


class Traffic:
    """Sums of hits, popular samples and the traffic of the link."""

    def __init__(self) -> None:
        self.samples = self.lookups = self.hits = self.popular = 0
        self.rows_moved = self.link_bytes = 0

    def add(self, result: StepResult, scored: bool) -> None:
        """Add a StepResult; rates cover the `scored` steps only."""
        if scored and result.hits is not None:
            self.samples += len(result.logits)
            self.lookups += result.lookups
            self.hits += result.hits
            self.popular += result.popular
        self.carry(result.rows_moved, result.link_bytes)

    def carry(self, rows: int, link_bytes: int) -> None:
        """Add traffic between steps."""
        self.rows_moved += rows
        self.link_bytes += link_bytes

    def figures(self) -> dict[str, float | None]:
        return {"hit_rate": self.hits / self.lookups if self.lookups else None,
                "popular_fraction": self.popular / self.samples if self.samples else None,
                "rows_moved": self.rows_moved, "link_bytes": self.link_bytes}


class CycleMeter:
    """Cycles and commands of a device by opcode, inside its `with` blocks.

    Parameters
    ----------
    device : Device
        Its statistics come from completions, and so from the card's own cycle counter.
    """

    def __init__(self, device: Device):
        self._device = device
        self.commands: Counter[str] = Counter()
        self.cycles: Counter[str] = Counter()

    def __enter__(self) -> "CycleMeter":
        self._before = self._device.statistics
        return self

    def __exit__(self, *_: object) -> None:
        for name, (commands, cycles) in self._device.statistics.items():
            before = self._before.get(name, (0, 0))
            self.commands[name] += commands - before[0]
            self.cycles[name] += cycles - before[1]

    def figures(self, batches: int) -> dict[str, Any]:
        """Cycles of all commands and by command, cycles of waits for events, projected time."""
        clock_mhz = self._device.geometry.clock_mhz
        total = self.cycles.total()
        return {
            "device_cycles": total,
            "device_commands": {
                name: {"commands": commands, "cycles": self.cycles[name],
                       "cycles_per_batch": self.cycles[name] / batches}
                for name, commands in sorted(self.commands.items()) if commands},
            "stall_cycles": self.cycles["WAIT"],
            "clock_mhz": clock_mhz,
            "seconds_at_clock": total / (clock_mhz * 1e6),
        }


NO_DEVICE = dict.fromkeys(("device_cycles", "device_commands", "stall_cycles", "clock_mhz",
                           "seconds_at_clock"))
