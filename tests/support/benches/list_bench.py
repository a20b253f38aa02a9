"""Memory for `ReadClient` and `WriteClient` interfaces in Amaranth's simulator."""

from itertools import cycle

import numpy as np
from hotrow_rtl.config import LIST_ALIGNMENT, Config

from .stream_bench import STEADY

UNWRITTEN = 0xA5  # initial bytes of result buffers


class _Restarted(Exception):
    """The unit restarted."""


class ListMemory:
    """Memory that a unit's list interfaces read and write.

    Parameters
    ----------
    bench : StreamBench
    config : Config
    gaps, pauses : sequence of int
        Idle cycles before each word of a read, and cycles without `ready` before each word of a
        write.
    latency : int
        Cycles from a request to its first word, and from the last word to the outcome.

    Attributes
    ----------
    read_faults : dict
        Fault by byte address of a word that is read.
    write_faults : dict
        Fault of the outcome by byte address of the first word that is written.
    fetches, deposits : list
        (address, bytes) of each read request; address of each write.
    open : list
        Addresses of the writes in progress.
    """

    def __init__(self, bench, config: Config, gaps=STEADY, pauses=STEADY, latency=3):
        self.bench, self.config, self.latency = bench, config, latency
        self._gaps, self._pauses, self._restarts = cycle(gaps), cycle(pauses), 0
        self.bytes = bytearray()
        self.read_faults, self.write_faults = {}, {}
        self.fetches, self.deposits, self.open = [], [], []

    def place(self, array):
        """Copy an array to the memory and return its byte address."""
        address = self.room(array.nbytes)
        self.bytes[address:address + array.nbytes] = array.tobytes()
        return address

    def room(self, size):
        """Byte address of `size` bytes for a result, followed by at least one guard byte."""
        address = len(self.bytes)
        self.bytes += bytes([UNWRITTEN]) * (-(-(size + 1) // LIST_ALIGNMENT) * LIST_ALIGNMENT)
        return address

    def array(self, address, count, dtype=np.uint32):
        """The `count` elements at `address`; checks that the next byte is unwritten."""
        end = address + count * np.dtype(dtype).itemsize
        assert self.bytes[end] == UNWRITTEN, f"byte {end:#x} after a result was written"
        return np.frombuffer(self.bytes, dtype, count, address).copy()

    def restart(self):
        """Drop requests and words in flight, as the ports do when the unit restarts."""
        self._restarts += 1
        self.open.clear()

    def serve(self, fetch):
        """Serve the requests of a `ReadClient` in the background."""
        self._repeat(self._fetch, fetch, (fetch.request.ready, fetch.words.valid))

    def accept(self, deposit, *, striped=False, whole=None):
        """Serve the requests of a `WriteClient` in the background; `striped` and, on a card with a
        planner, the signal `whole` as for `DmaWritePort`."""
        self._repeat(self._deposit, deposit,
                     (deposit.request.ready, deposit.words.ready, deposit.outcome.valid), striped,
                     whole)

    def _repeat(self, once, interface, driven, *options):
        async def run(ctx):
            while True:
                try:
                    await once(ctx, interface, *options)
                except _Restarted:
                    for flag in driven:
                        ctx.set(flag, 0)
        self.bench.background(run)

    async def _ticks(self, ctx, count):
        for _ in range(count):
            await self._tick(ctx)

    async def _tick(self, ctx, *values):
        restarts = self._restarts
        _, _, *sampled = await ctx.tick().sample(*values)
        if restarts != self._restarts:
            raise _Restarted
        return sampled

    async def _until(self, ctx, flag, *values):
        """Tick until `flag`; returns the values sampled then."""
        while True:
            held, *sampled = await self._tick(ctx, flag, *values)
            if held:
                return sampled

    def data(self, start, end, fault):
        """A word; with a fault zeros, ones or what the memory holds."""
        word = int.from_bytes(self.bytes[start:end], "little")
        ones = (1 << 8 * (end - start)) - 1
        return (0, ones, word)[start // (end - start) % 3] if fault else word

    async def _fetch(self, ctx, fetch):
        ctx.set(fetch.request.ready, 1)
        request, = await self._until(ctx, fetch.request.valid, fetch.request.p)
        ctx.set(fetch.request.ready, 0)
        address, end = request.address, request.address + request.bytes
        assert address % LIST_ALIGNMENT == 0 and address < end <= len(self.bytes), (
            f"fetch of {request.bytes} bytes at {address:#x}")
        self.fetches.append((address, request.bytes))
        await self._ticks(ctx, self.latency)
        for at in range(address, end, self.config.bus_bytes):
            await self._ticks(ctx, next(self._gaps))
            after = at + self.config.bus_bytes
            fault = self.read_faults.get(at, 0)
            ctx.set(fetch.words.p, {
                "data": self.data(at, after, fault), "fault": fault, "last": int(after >= end)})
            ctx.set(fetch.words.valid, 1)
            await self._until(ctx, fetch.words.ready)
            ctx.set(fetch.words.valid, 0)

    async def _deposit(self, ctx, deposit, striped, whole):
        ctx.set(deposit.request.ready, 1)
        request, = await self._until(ctx, deposit.request.valid, deposit.request.p)
        ctx.set(deposit.request.ready, 0)
        start = at = request.address
        block = self.config.burst_beats * self.config.bus_bytes
        assert start % LIST_ALIGNMENT == 0, f"deposit at {start:#x}"
        striped = striped and not (whole is not None and ctx.get(whole))
        self.deposits.append(start)
        self.open.append(start)
        last = 0
        while not last:
            await self._ticks(ctx, next(self._pauses))
            ctx.set(deposit.words.ready, 1)
            word, = await self._until(ctx, deposit.words.valid, deposit.words.p)
            ctx.set(deposit.words.ready, 0)
            for lane in range(self.config.bus_bytes):
                if word.strobe >> lane & 1:
                    self.bytes[at + lane] = word.data >> 8 * lane & 0xFF
            at, last = at + self.config.bus_bytes, word.last
            if striped and at % block == 0:
                at += block
        await self._ticks(ctx, self.latency)
        ctx.set(deposit.outcome.p, {"fault": self.write_faults.get(start, 0)})
        ctx.set(deposit.outcome.valid, 1)
        await self._until(ctx, deposit.outcome.ready)
        ctx.set(deposit.outcome.valid, 0)
        self.open.remove(start)
