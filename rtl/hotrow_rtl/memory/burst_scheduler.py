"""One cutter of bursts for all the clients of a port."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import ReadClient
from ..primitives.ram import Ram
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .bursts import burst, less_width, word_width
from .request_scheduler import RequestScheduler


def owned_burst(config: Config, clients) -> data.StructLayout:
    """A burst and the number of its client."""
    return data.StructLayout({
        "client": max(1, (clients - 1).bit_length()), "burst": burst(config)})


class BurstScheduler(wiring.Component):
    """Cut the requests of several clients into bursts, taking turns.

    What is left of a request is kept in memories, one row per client. A burst ends where the
    memory beyond is a multiple of its client's longest burst.

    Parameters
    ----------
    config : Config
    longest : sequence of int
        Beats of each client's longest burst, powers of two.

    Members
    -------
    requests : In(stream).array
        As of `ReadClient`. A client's next request is taken when the one before is cut.
    less : Out
        Bus words of the request that is taken in this cycle, less one.
    room, rooms : In
        One bit per client: its next burst may come; the next two may. Either tells what it told of
        in a burst's own cycle until that burst is `counted`.
    counted : In
        One bit per client: its burst of the cycle before is being counted.
    bursts : Out(stream(owned_burst))
    drop : In(1)
        Requests are taken and forgotten.
    clear : In(1)
        Forget all requests, one that is being taken included.

    Timing
    ------
    A burst 3 cycles after its request was taken or its `room` is there; one burst a cycle in all,
    one every 3 cycles of the same client, 8 from one request to its next. Another's request may
    cost 2 cycles. Requests as in `RequestScheduler`.
    """

    def __init__(self, config: Config, longest):
        self.config, self.longest = config, longest
        count = len(longest)
        super().__init__({
            "requests": In(ReadClient(config).members["request"].signature).array(count),
            "less": Out(less_width(config)),
            "room": In(count),
            "rooms": In(count),
            "counted": In(count),
            "bursts": Out(stream.Signature(owned_burst(config, count))),
            "drop": In(1),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, out, count = self.config, self.bursts, len(self.longest)
        rows = max(2, count)
        m.submodules.taker = taker = RequestScheduler(config, count)
        m.submodules.arbiter = arbiter = RoundRobinArbiter(count)
        m.submodules.words = words = Ram(word_width(config), rows)  # the next burst's first word
        m.submodules.ends = ends = Ram(word_width(config), rows)  # the last word of all
        for own, request in zip(self.requests, taker.requests):
            connect(m, client=flipped(own), taker=request)

        # In one cycle a client is chosen, in the next its rows are read, in the third a burst cut.
        has_run = Signal(count)  # something left
        asking = Signal(count)  # that may be chosen: none of them is under way
        reading, cutting = Signal(count), Signal(count)  # one-hot
        number, advance = Signal.like(out.p.client), Signal()
        chosen = Signal(count)
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            arbiter.requests.eq(asking),
            # A request that is there waits for a cycle without a burst, which then comes.
            arbiter.accept.eq(advance & ~(taker.write & out.valid)),
            chosen.eq(arbiter.grant & arbiter.accept.replicate(count)),
        ]
        for client in range(count):
            with m.If(reading[client]):
                m.d.comb += words.read_address.eq(client)
        m.d.comb += [
            ends.read_address.eq(words.read_address),
            words.read_enable.eq(advance),
            ends.read_enable.eq(advance),
        ]
        with m.If(advance):
            m.d.sync += [
                reading.eq(chosen),
                cutting.eq(reading),
                out.valid.eq(reading.any()),
                number.eq(words.read_address),
            ]

        most = log2(max(self.longest))
        word, last, within = words.read_data, ends.read_data, Signal(most)
        for client, longest in enumerate(self.longest):
            with m.If(cutting[client]):
                m.d.comb += within.eq(longest - 1)
        final, less = Signal(), Signal(most)
        m.d.comb += [
            final.eq((word | within) == (last | within)),
            less.eq(Mux(final, last[:most] - word[:most], ~word[:most] & within)),
            out.p.client.eq(number),
            out.p.burst.word.eq(word),
            out.p.burst.less.eq(less),
            self.less.eq(taker.less),
            taker.busy.eq(has_run),
            taker.hold.eq(out.valid),
            taker.clear.eq(self.clear),
            words.write_enable.eq(out.valid | taker.write),
            words.write_address.eq(Mux(out.valid, number, taker.number)),
            words.write_data.eq(Mux(out.valid, (word | within) + 1, taker.word)),
            ends.write_enable.eq(taker.write),
            ends.write_address.eq(taker.number),
            ends.write_data.eq(taker.last),
        ]

        cut, begun = Signal(count), Signal(count)
        m.d.comb += [
            cut.eq(cutting & (out.valid & out.ready).replicate(count)),
            begun.eq(taker.taken & ~self.drop.replicate(count)),
        ]
        m.d.sync += has_run.eq((has_run | begun) & ~(cut & final.replicate(count)))
        # Until a burst is counted there must be room for it and another.
        for client in range(count):
            may = Mux(cut[client] | self.counted[client], self.rooms[client], self.room[client])
            waits = reading[client] | cutting[client] & ~cut[client]
            m.d.sync += asking[client].eq(
                (has_run[client] & ~(cut[client] & final) | begun[client]) & may & ~waits
                & ~chosen[client])
        with m.If(self.drop | self.clear):
            m.d.sync += [
                flags.eq(0) for flags in (has_run, asking, reading, cutting, out.valid)]
        return m
