"""A list port and its memory in Amaranth's simulator: one word per cycle for all clients."""

from collections import deque
from contextlib import suppress
from itertools import cycle

from .list_bench import ListMemory, _Restarted
from .stream_bench import STEADY


class ListBus(ListMemory):
    """Read clients that share one bus.

    As with `DmaReadPort`, a client may have two lists in flight and `depth` words in its buffer. A
    word arrives at least `latency` cycles after its request, one per cycle, round robin among the
    clients.

    Attributes
    ----------
    carried : int
        Words that have arrived.
    """

    depth = 512
    carried = 0

    def share(self, fetches, gaps=STEADY):
        """Serve the requests of `fetches` in the background, with `gaps` before words."""
        async def run(ctx):
            while True:
                for fetch in fetches:
                    ctx.set(fetch.words.valid, 0)
                with suppress(_Restarted):
                    await self._share(ctx, [_Client(fetch, gaps) for fetch in fetches])
        self.bench.background(run)

    async def _share(self, ctx, clients):
        signals = [signal for client in clients for signal in client.signals]
        turn = deque(clients)
        for now in range(1 << 62):
            for client in clients:
                client.show(ctx)
            sampled = await self._tick(ctx, *signals)
            for number, client in enumerate(clients):
                valid, ready, request, taken = sampled[4 * number:4 * number + 4]
                client.end_cycle(taken)
                if valid and ready:
                    end = request.address + request.bytes
                    assert request.address % 64 == 0 and request.address < end <= len(self.bytes)
                    self.fetches.append((request.address, request.bytes))
                    client.lists.append([request.address, end, now + self.latency])
                    client.under_way += 1
            for client in turn:
                if client.lists and client.lists[0][2] <= now and len(client.words) < self.depth:
                    client.words.append(self._read(client.lists))
                    self.carried += 1
                    turn.remove(client)
                    turn.append(client)
                    break

    def _read(self, lists):
        at, end, _ = lists[0]
        after = lists[0][0] = at + self.config.bus_bytes
        if after >= end:
            lists.popleft()
        fault = self.read_faults.get(at, 0)
        return {"data": self.data(at, after, fault), "fault": fault, "last": int(after >= end)}


class _Client:
    """Lists and words in flight of one client."""

    def __init__(self, fetch, gaps):
        self.signals = (fetch.request.valid, fetch.request.ready, fetch.request.p,
                        fetch.words.ready)
        self.fetch, self.gaps = fetch, cycle(gaps)
        self.lists, self.words = deque(), deque()  # [address, end, first cycle]; buffered words
        self.under_way, self.wait, self.shown = 0, next(self.gaps), None

    def show(self, ctx):
        ctx.set(self.fetch.request.ready, self.under_way < 2)
        if self.shown is None and self.words and not self.wait:
            self.shown = self.words.popleft()
            ctx.set(self.fetch.words.p, self.shown)
        ctx.set(self.fetch.words.valid, self.shown is not None)

    def end_cycle(self, taken):
        if self.shown is None:
            self.wait -= self.wait > 0
        elif taken:
            self.under_way -= self.shown["last"]
            self.shown, self.wait = None, next(self.gaps)
