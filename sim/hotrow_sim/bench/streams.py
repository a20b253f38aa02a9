"""Streams under cocotb: payloads sent with gaps, and accepted with back-pressure.

A transfer takes place in a cycle in which `valid` and `ready` are high. A valid payload holds until
it is accepted.
"""

from collections import deque
from random import Random
from typing import Any

import cocotb
from amaranth.hdl import Shape
from amaranth.lib import data
from cocotb.triggers import Event, RisingEdge


def to_bits(shape: Any, payload: Any) -> int:
    """A payload as a number: of a layout a dict, or lists of dicts for arrays."""
    if isinstance(shape, data.Layout):
        return payload.as_bits() if isinstance(payload, data.Const) else (
            shape.const(payload).as_bits())
    return int(payload) & (1 << Shape.cast(shape).width) - 1


class _Stream:
    """The three signals of a stream, and its transfers.

    Attributes
    ----------
    transfers : int
        So far.
    """

    def __init__(self, dut: Any, name: str, shape: Any, clock: Any):
        self.name, self.shape, self._clock = name, shape, clock
        self._payload, self._valid, self._ready = (
            getattr(dut, f"{name}_{part}") for part in ("payload", "valid", "ready"))
        self.transfers = 0


class StreamSource(_Stream):
    """Sends payloads over an input stream of a unit.

    While no payload is valid, the payload signal has random bits.

    Parameters
    ----------
    dut : simulator handle
    name : str
        Prefix of the signals `NAME_payload`, `NAME_valid` and `NAME_ready`.
    shape : ShapeCastable
        Of the payload: with a layout, payloads are dicts of its fields.
    idle : float
        Share of the cycles in which no payload is offered.
    seed : int or str
    clock : simulator handle, optional
        By default `dut.clk`.
    """

    def __init__(self, dut: Any, name: str, shape: Any, *, idle: float = 0.0,
                 seed: int | str = 0, clock: Any = None):
        super().__init__(dut, name, shape, clock or dut.clk)
        self.idle, self._rng, self._queue = idle, Random(f"{name} {seed}"), deque()
        self._empty = Event()
        self._valid.value = 0
        self._task = cocotb.start_soon(self._drive())

    def put(self, *payloads: Any) -> None:
        """Send payloads in order; returns at once."""
        self._queue.extend(to_bits(self.shape, payload) for payload in payloads)
        if payloads:
            self._empty.clear()

    async def drained(self) -> None:
        """Wait until every payload is accepted."""
        if self._queue:
            await self._empty.wait()

    def drop(self) -> None:
        """Forget the payloads that are not accepted, the one that is offered too: for a restart."""
        self._task.cancel()
        self._queue.clear()
        self._empty.set()
        self._valid.value = 0
        self._task = cocotb.start_soon(self._drive())

    def _accepted(self):
        assert self._ready.value.is_resolvable, f"{self.name}: ready is undefined"
        return bool(int(self._ready.value))

    async def _drive(self):
        bits = len(self._payload)
        while True:
            if not self._queue or self._rng.random() < self.idle:
                self._valid.value = 0
                self._payload.value = self._rng.getrandbits(bits)
                await RisingEdge(self._clock)
                continue
            self._payload.value, self._valid.value = self._queue[0], 1
            await RisingEdge(self._clock)
            while not self._accepted():
                await RisingEdge(self._clock)
            self._queue.popleft()
            self.transfers += 1
            if not self._queue:
                self._empty.set()


class StreamSink(_Stream):
    """Accepts payloads from an output stream of a unit, and checks that each holds until then.

    Parameters
    ----------
    dut, name, shape, seed, clock
        See `StreamSource`.
    stall : float
        Share of the cycles in which `ready` is low.

    Attributes
    ----------
    received : deque
        Payloads that were accepted and not taken by `get`: of a layout with its fields as
        attributes, otherwise numbers.
    paused : bool
        `ready` stays low.
    ignores : bool
        Payloads are neither received nor checked.
    """

    def __init__(self, dut: Any, name: str, shape: Any, *, stall: float = 0.0,
                 seed: int | str = 0, clock: Any = None):
        super().__init__(dut, name, shape, clock or dut.clk)
        self.stall, self._rng = stall, Random(f"{name} {seed}")
        self.received: deque[Any] = deque()
        self.paused, self.ignores = False, False
        self._arrived, self._held = Event(), None
        self._ready.value = 0
        cocotb.start_soon(self._drain())

    async def get(self) -> Any:
        """The next payload."""
        while not self.received:
            self._arrived.clear()
            await self._arrived.wait()
        return self.received.popleft()

    def drop(self) -> None:
        """Forget the payloads received, and one that waits: for a restart."""
        self.received.clear()
        self._held = None

    async def _drain(self):
        while True:
            ready = not self.paused and self._rng.random() >= self.stall
            self._ready.value = int(ready)
            await RisingEdge(self._clock)
            if self.ignores:
                continue
            assert self._valid.value.is_resolvable, f"{self.name}: valid is undefined"
            valid = bool(int(self._valid.value))
            assert valid or self._held is None, (
                f"{self.name}: valid fell before payload {self.transfers} was accepted")
            if not valid:
                continue
            assert self._payload.value.is_resolvable, f"{self.name}: the payload is undefined"
            bits = int(self._payload.value)
            assert self._held in (None, bits), (
                f"{self.name}: payload {self.transfers} changed before it was accepted")
            self._held = None if ready else bits
            if ready:
                self.transfers += 1
                self.received.append(self.shape.from_bits(bits)
                                     if isinstance(self.shape, data.Layout) else bits)
                self._arrived.set()
