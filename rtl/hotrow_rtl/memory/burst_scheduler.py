"""One burst splitter for all clients of the list port."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import ReadClient
from ..primitives.ram import Ram
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .bursts import burst, list_len_width, word_width
from .request_scheduler import RequestScheduler


def owned_burst(config: Config, clients) -> data.StructLayout:
    """A burst and the number of its client."""
    return data.StructLayout({
        "client": max(1, (clients - 1).bit_length()), "burst": burst(config)})


class BurstScheduler(wiring.Component):
    """Split the requests of several clients into bursts, in round-robin order.

    The unsent part of a request lies in memories with one row per client. A burst ends at each
    address that is a multiple of its client's longest burst.

    Parameters
    ----------
    config : Config
    longest : sequence of int
        Beats of each client's longest burst, powers of two.

    Attributes
    ----------
    requests : In(stream).array
        See `ReadClient`. The unit accepts a client's next request once the previous one is split.
    len_minus_1 : Out
        Bus words of the request that is accepted in this cycle, minus one.
    space_for_one, space_for_two : In
        One bit per client: its buffer has space for its next burst; for its next two. Both may
        exclude a burst sent until that burst is `reserved`.
    reserved : In
        One bit per client: the space of the burst sent in the previous cycle is being subtracted.
    bursts : Out(stream(owned_burst))
    drop : In(1)
        Requests are accepted and dropped.
    clear : In(1)
        Drop all requests, one that is accepted in this cycle included.

    Timing
    ------
    A burst follows 3 cycles after its request was accepted or there is space for it; one burst a
    cycle in all, one every 3 cycles of the same client, 8 cycles from one of its requests to the
    next. A request of another client may cost 2 cycles. For requests see `RequestScheduler`.
    """

    def __init__(self, config: Config, longest):
        self.config, self.longest = config, longest
        count = len(longest)
        super().__init__({
            "requests": In(ReadClient(config).members["request"].signature).array(count),
            "len_minus_1": Out(list_len_width(config)),
            "space_for_one": In(count),
            "space_for_two": In(count),
            "reserved": In(count),
            "bursts": Out(stream.Signature(owned_burst(config, count))),
            "drop": In(1),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, out, count = self.config, self.bursts, len(self.longest)
        rows = max(2, count)
        m.submodules.scheduler = scheduler = RequestScheduler(config, count)
        m.submodules.arbiter = arbiter = RoundRobinArbiter(count)
        m.submodules.words = words = Ram(word_width(config), rows)  # the next burst's first word
        m.submodules.ends = ends = Ram(word_width(config), rows)  # the request's last word
        for own, request in zip(self.requests, scheduler.requests, strict=True):
            connect(m, client=flipped(own), scheduler=request)

        # One cycle each: select a client, read its rows, split off a burst.
        pending = Signal(count)  # clients with words to request
        eligible = Signal(count)  # pending clients with space and none of these steps in progress
        reading, splitting = Signal(count), Signal(count)  # one-hot
        client_idx, step = Signal.like(out.p.client), Signal()
        selected = Signal(count)
        m.d.comb += [
            step.eq(~out.valid | out.ready),
            arbiter.requests.eq(eligible),
            # A request waits for a cycle without a burst; this leaves a gap for it.
            arbiter.accept.eq(step & ~(scheduler.valid & out.valid)),
            selected.eq(arbiter.grant & arbiter.accept.replicate(count)),
        ]
        for client in range(count):
            with m.If(reading[client]):
                m.d.comb += words.read_address.eq(client)
        m.d.comb += [
            ends.read_address.eq(words.read_address),
            words.read_enable.eq(step),
            ends.read_enable.eq(step),
        ]
        with m.If(step):
            m.d.sync += [
                reading.eq(selected),
                splitting.eq(reading),
                out.valid.eq(reading.any()),
                client_idx.eq(words.read_address),
            ]

        width = log2(max(self.longest))
        word, last, mask = words.read_data, ends.read_data, Signal(width)
        for client, longest in enumerate(self.longest):
            with m.If(splitting[client]):
                m.d.comb += mask.eq(longest - 1)
        final, len_minus_1 = Signal(), Signal(width)
        m.d.comb += [
            final.eq((word | mask) == (last | mask)),
            len_minus_1.eq(Mux(final, last[:width] - word[:width], ~word[:width] & mask)),
            out.p.client.eq(client_idx),
            out.p.burst.word.eq(word),
            out.p.burst.len_minus_1.eq(len_minus_1),
            self.len_minus_1.eq(scheduler.len_minus_1),
            scheduler.busy.eq(pending),
            scheduler.stall.eq(out.valid),
            scheduler.clear.eq(self.clear),
            words.write_enable.eq(out.valid | scheduler.valid),
            words.write_address.eq(Mux(out.valid, client_idx, scheduler.client_idx)),
            words.write_data.eq(Mux(out.valid, (word | mask) + 1, scheduler.word)),
            ends.write_enable.eq(scheduler.valid),
            ends.write_address.eq(scheduler.client_idx),
            ends.write_data.eq(scheduler.last),
        ]

        sent, accepted = Signal(count), Signal(count)
        m.d.comb += [
            sent.eq(splitting & (out.valid & out.ready).replicate(count)),
            accepted.eq(scheduler.fire & ~self.drop.replicate(count)),
        ]
        m.d.sync += pending.eq((pending | accepted) & ~(sent & final.replicate(count)))
        # Until a burst's space is subtracted, there must be space for it and the next one.
        for client in range(count):
            space = Mux(sent[client] | self.reserved[client],
                        self.space_for_two[client], self.space_for_one[client])
            in_progress = reading[client] | splitting[client] & ~sent[client]
            m.d.sync += eligible[client].eq(
                (pending[client] & ~(sent[client] & final) | accepted[client]) & space
                & ~in_progress & ~selected[client])
        with m.If(self.drop | self.clear):
            m.d.sync += [
                flags.eq(0) for flags in (pending, eligible, reading, splitting, out.valid)]
        return m
