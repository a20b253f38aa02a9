"""Timelines that https://ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .contract.errors import Error
from .contract.generated import QUEUES, Opcode, Status
from .device import Device
from .queues.futures import Completion
from .system.files import replaced

LOOKUP, MOVE, LINK, TRAINER = "lookup queue", "move queue", "link", "trainer"
LANES = (LOOKUP, MOVE, LINK, TRAINER)
_COUNTS = ("lookups", "hits", "misses", "unique", "popular", "entries", "refused", "bytes",
           "evictions", "bypasses")
_DEVICE_CALLS = ("read_register", "write_register", "wait")


class Slices:
    """Slices on named lanes, as a trace in the JSON format of Chrome.

    Parameters
    ----------
    title : str
        What the times are, for the top of the trace.
    """

    def __init__(self, title: str, lanes: Iterable[str] = LANES):
        self._lanes = {name: number for number, name in enumerate(lanes, 1)}
        self._events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": title}}]
        for name, number in self._lanes.items():
            about = {"ph": "M", "pid": 1, "tid": number}
            self._events.append(about | {"name": "thread_name", "args": {"name": name}})
            self._events.append(about | {"name": "thread_sort_index", "args": {
                "sort_index": number}})

    def add(self, lane: str, name: str, start: float, end: float, /, **details: Any) -> None:
        """Add a slice from `start` to `end`, in seconds."""
        self._events.append({"ph": "X", "pid": 1, "tid": self._lanes[lane], "name": name,
                             "ts": start * 1e6, "dur": (end - start) * 1e6, "args": details})

    def write(self, path: str | Path) -> None:
        """Write the trace."""
        with replaced(path) as file:
            file.write(json.dumps({"displayTimeUnit": "ns", "traceEvents": self._events},
                                  allow_nan=False).encode())


class Timeline:
    """Records the commands of a device, and writes them as a trace; a context manager.

    Lanes are the lookup queue and the move queue, each command from its start to its end by the
    card's own cycle counter at the clock of its preset, the link, with the bytes of each move
    command at the link's rate, and the trainer.

    The clock of a simulated card stands still while the host computes. The trainer's steps (`step`)
    therefore have the time that the host measured, or a given one, and what the card did afterwards
    is drawn later by as much.

    Parameters
    ----------
    device : Device
    path : str or Path, optional
        File to write at the end of the `with` block.
    link_gbps : float
        Of the link between host and trainer, in each direction.
    """

    def __init__(self, device: Device, path: str | Path | None = None, link_gbps: float = 24.0):
        if not link_gbps > 0:
            raise Error(f"the link's rate is above 0 GB/s, not {link_gbps:g}")
        self.device, self.path, self.link_gbps = device, path, link_gbps
        self._commands: list[tuple[str, dict[str, Any]]] = []
        self._steps: list[tuple[str, int, int, float, str, bool]] = []
        self._in_device = threading.local()
        self._wrapped: dict[str, Any] = {}

    def __enter__(self) -> Timeline:
        self.device.listeners.append(self._record)
        transport = self.device.transport
        for name in _DEVICE_CALLS:
            self._wrapped[name] = vars(transport).get(name)  # of a timeline around this one
            setattr(transport, name, self._timed(getattr(transport, name)))
        return self

    def __exit__(self, *_: object) -> None:
        self.device.listeners.remove(self._record)
        for name, around in self._wrapped.items():
            delattr(self.device.transport, name)
            if around is not None:
                setattr(self.device.transport, name, around)
        self._wrapped.clear()
        if self.path is not None:
            self.write(self.path)

    @contextmanager
    def step(self, name: str, seconds: float | None = None,
             overlapped: bool = False) -> Iterator[None]:
        """Draw the work inside as a slice of the trainer.

        Parameters
        ----------
        name : str
        seconds : float, optional
            Its time; by default the time measured here, without the calls of the device.
        overlapped : bool
            Other threads use the device meanwhile, so that its time does not add to the step's.
        """
        first, before, began = self.device.cycle(), self._device_seconds, time.perf_counter()
        yield
        took = time.perf_counter() - began - (self._device_seconds - before)
        label = "measured on this host, the card's time left out" if seconds is None else "given"
        self._steps.append((name, first, self.device.cycle(),
                            took if seconds is None else seconds, label, overlapped))

    def write(self, path: str | Path) -> None:
        """Write what was recorded so far."""
        clock = self.device.geometry.clock_mhz * 1e6
        slices = Slices(f"hotrow: cycles of transport {self.device.transport.name} at "
                        f"{self.device.geometry.clock_mhz} MHz, link {self.link_gbps:g} GB/s")
        later = _Shift()
        for name, first, last, seconds, label, overlapped in self._steps:
            start = first / clock + later.at(first)
            device = (last - first) / clock
            end = start + (max(seconds, device) if overlapped else seconds + device)
            slices.add(TRAINER, name, start, end, time=label, seconds=seconds)
            later.add(last, end - last / clock)
        free = 0.0
        for queue, command in sorted(self._commands, key=lambda each: each[1]["start"]):
            shift = later.at(command["start"])
            start, end = (command[each] / clock + shift for each in ("start", "end"))
            lane = LOOKUP if queue == QUEUES[0] else MOVE
            slices.add(lane, command["opcode"], start, end, **command)
            if lane == MOVE and command.get("bytes"):
                free = max(free, start) + command["bytes"] / (self.link_gbps * 1e9)
                slices.add(LINK, f"rows of {command['opcode']}",
                           free - command["bytes"] / (self.link_gbps * 1e9), free,
                           bytes=command["bytes"])
        slices.write(path)

    @property
    def _device_seconds(self) -> float:
        """Time that this thread spent in calls of the device."""
        return getattr(self._in_device, "seconds", 0.0)

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: int | float) -> Any:
            began = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self._in_device.seconds = self._device_seconds + time.perf_counter() - began
        return timed

    def _record(self, queue: str, completion: Completion) -> None:
        found = {name: completion[name] for name in _COUNTS if completion[name]}
        self._commands.append((queue, {
            "opcode": Opcode(completion["opcode"]).name, "start": completion["start"],
            "end": completion["end"],
            "status": Status(completion["status"]).name, **found}))


class _Shift:
    """Seconds by which cycles are drawn later, as a step function of the cycle."""

    def __init__(self) -> None:
        self._cycles: list[int] = []
        self._seconds: list[float] = []

    def add(self, cycle: int, seconds: float) -> None:
        self._cycles.append(cycle)
        self._seconds.append(seconds)

    def at(self, cycle: int) -> float:
        return next((seconds for first, seconds in zip(
            reversed(self._cycles), reversed(self._seconds), strict=True) if first <= cycle), 0.0)
