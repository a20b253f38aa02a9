"""Memory for `Fetch` and `Deposit` interfaces in Amaranth's simulator, in place of the ports."""

from itertools import cycle

import numpy as np
from hotrow_rtl.config import LIST_ALIGNMENT, Config

from .streambench import STEADY

UNWRITTEN = 0xA5  # what the room for results holds until it is written


async def _until(ctx, flag, *values):
    """Tick until `flag`; the values sampled then. Unlike `until`, may be abandoned midway."""
    while True:
        _, _, held, *sampled = await ctx.tick().sample(flag, *values)
        if held:
            return sampled


class ListMemory:
    """Bytes that a unit's list interfaces read and write.

    Parameters
    ----------
    bench : StreamBench
    config : Config
    gaps, pauses : sequence of int
        Idle cycles before each word of a fetch, and deaf ones before each word of a deposit.
    latency : int
        Cycles from a request to its first word, and from the last word to the outcome.

    Members
    -------
    read_faults : dict
        Fault of the fetched word at that byte address.
    write_faults : dict
        Fault in the outcome of the sequence that starts at that byte address.
    fetches, deposits : list
        (address, bytes) of each request to read, address of each sequence written.
    open : set
        Addresses of the sequences that have begun and not ended.
    """

    def __init__(self, bench, config: Config, gaps=STEADY, pauses=STEADY, latency=3):
        self.bench, self.config = bench, config
        self.gaps, self.pauses, self.latency = gaps, pauses, latency
        self.bytes = bytearray()
        self.read_faults, self.write_faults = {}, {}
        self.fetches, self.deposits, self.open = [], [], set()

    def place(self, array):
        """Lay an array into the memory and return its byte address."""
        address = self.room(array.nbytes)
        self.bytes[address:address + array.nbytes] = array.tobytes()
        return address

    def room(self, size):
        """Byte address of `size` bytes for a result; the bytes around them are watched too."""
        address = len(self.bytes)
        self.bytes += bytes([UNWRITTEN]) * (-(-(size + 1) // LIST_ALIGNMENT) * LIST_ALIGNMENT)
        return address

    def array(self, address, count, dtype=np.uint32):
        """The `count` elements from `address` on; what follows them must not have been written."""
        end = address + count * np.dtype(dtype).itemsize
        assert self.bytes[end] == UNWRITTEN, f"byte {end:#x} behind a result was written"
        return np.frombuffer(self.bytes, dtype, count, address).copy()

    def serve(self, fetch):
        """Answer the requests of a `Fetch`, in the background."""
        word_bytes = self.config.bus_bytes

        async def run(ctx):
            gaps = cycle(self.gaps)
            while True:
                ctx.set(fetch.request.ready, 1)
                request, = await _until(ctx, fetch.request.valid, fetch.request.p)
                ctx.set(fetch.request.ready, 0)
                address, size = request.address, request.bytes
                assert address % LIST_ALIGNMENT == 0 and size, f"fetch of {size} at {address:#x}"
                assert address + size <= len(self.bytes), f"fetch of {size} at {address:#x}"
                self.fetches.append((address, size))
                for _ in range(self.latency):
                    await ctx.tick()
                end = address + size
                for at in range(address, end, word_bytes):
                    for _ in range(next(gaps)):
                        await ctx.tick()
                    fault = self.read_faults.get(at, 0)
                    data = int.from_bytes(self.bytes[at:at + word_bytes], "little")
                    ctx.set(fetch.words.p, {"data": 0 if fault else data, "fault": fault,
                                            "last": int(at + word_bytes >= end)})
                    ctx.set(fetch.words.valid, 1)
                    await _until(ctx, fetch.words.ready)
                    ctx.set(fetch.words.valid, 0)
        self.bench.background(run)

    def accept(self, deposit):
        """Take the sequences of a `Deposit`, in the background."""
        word_bytes = self.config.bus_bytes

        async def run(ctx):
            pauses = cycle(self.pauses)
            while True:
                ctx.set(deposit.request.ready, 1)
                request, = await _until(ctx, deposit.request.valid, deposit.request.p)
                ctx.set(deposit.request.ready, 0)
                start = at = request.address
                assert at % LIST_ALIGNMENT == 0, f"deposit at {at:#x}"
                self.deposits.append(start)
                self.open.add(start)
                last = 0
                while not last:
                    for _ in range(next(pauses)):
                        await ctx.tick()
                    ctx.set(deposit.words.ready, 1)
                    word, = await _until(ctx, deposit.words.valid, deposit.words.p)
                    ctx.set(deposit.words.ready, 0)
                    for lane in range(word_bytes):
                        if word.strobe >> lane & 1:
                            self.bytes[at + lane] = word.data >> 8 * lane & 0xFF
                    at, last = at + word_bytes, word.last
                for _ in range(self.latency):
                    await ctx.tick()
                ctx.set(deposit.outcome.p, {"fault": self.write_faults.get(start, 0)})
                ctx.set(deposit.outcome.valid, 1)
                await _until(ctx, deposit.outcome.ready)
                ctx.set(deposit.outcome.valid, 0)
                self.open.remove(start)
        self.bench.background(run)
