"""One cutter of bursts for all the clients of a port."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .arbiter import RoundRobin
from .bursts import burst, word_width, words_width
from .config import Config, log2
from .layouts import Fetch
from .ram import Ram


def run(config: Config) -> data.StructLayout:
    """`words` bus words from number `word`."""
    return data.StructLayout({"word": word_width(config), "words": words_width(config)})


def owned_burst(config: Config, clients) -> data.StructLayout:
    """A burst and the number of its client."""
    return data.StructLayout({
        "client": max(1, (clients - 1).bit_length()), "burst": burst(config)})


class BurstTurns(wiring.Component):
    """Cut the requests of several clients into bursts, taking turns.

    What is left of a request is kept in a memory, one row per client. A burst ends where the
    memory beyond is a multiple of its client's longest burst.

    Parameters
    ----------
    config : Config
    longest : sequence of int
        Beats of each client's longest burst, powers of two.

    Members
    -------
    requests : In(stream).array
        As of `Fetch`. A client's next request is taken when the one before is cut.
    words : Out
        Bus words of the request that is taken in this cycle.
    room : In
        One bit per client: its next burst may come.
    bursts : Out(stream(owned_burst))
    clear : In(1)
        Forget all requests.

    Timing
    ------
    A burst 2 cycles after its request was taken, or after its `room` is there; one burst a cycle in
    all, one every two cycles of the same client.
    """

    def __init__(self, config: Config, longest):
        self.config, self.longest = config, longest
        count = len(longest)
        super().__init__({
            "requests": In(Fetch(config).members["request"].signature).array(count),
            "words": Out(words_width(config)),
            "room": In(count),
            "bursts": Out(stream.Signature(owned_burst(config, count))),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, out, count = self.config, self.bursts, len(self.longest)
        m.submodules.arbiter = arbiter = RoundRobin(count)
        m.submodules.left = left = Ram(run(config), max(2, count))
        has_run = Signal(count)  # something left
        chosen = Signal(count)  # the client whose turn it is, none or one of them
        number, taking, advance = Signal.like(out.p.client), Signal(), Signal()
        offered = Cat(request.valid for request in self.requests)

        # A client is chosen, its row read; in the next cycle a request is taken or a burst cut.
        m.d.comb += [
            arbiter.requests.eq(~chosen & (has_run & self.room | ~has_run & offered)),
            arbiter.advance.eq(advance),
            advance.eq(~chosen.any() | taking | out.ready),
            left.read_enable.eq(advance),
        ]
        for client in range(count):
            with m.If(arbiter.grant[client]):
                m.d.comb += left.read_address.eq(client)
        with m.If(advance):
            m.d.sync += [
                chosen.eq(arbiter.grant),
                number.eq(left.read_address),
                taking.eq((arbiter.grant & ~has_run).any()),
            ]

        given, now, after = Signal(run(config)), left.read_data, left.write_data
        byte_width = log2(config.bus_bytes)
        to_boundary, beats = Signal.like(out.p.burst.beats), Signal.like(out.p.burst.beats)
        final = Signal()
        for client, request in enumerate(self.requests):
            with m.If(chosen[client]):
                longest = self.longest[client]
                m.d.comb += [
                    to_boundary.eq(longest - now.word[:log2(longest)]),
                    given.word.eq(request.p.address >> byte_width),
                    given.words.eq((request.p.bytes + (config.bus_bytes - 1)) >> byte_width),
                    request.ready.eq(taking),
                ]
        m.d.comb += [
            final.eq(now.words <= to_boundary),
            beats.eq(Mux(final, now.words, to_boundary)),
            out.valid.eq(chosen.any() & ~taking),
            out.p.client.eq(number),
            out.p.burst.word.eq(now.word),
            out.p.burst.beats.eq(beats),
            self.words.eq(given.words),
            left.write_enable.eq(chosen.any()),
            left.write_address.eq(number),
            after.word.eq(Mux(taking, given.word, now.word + beats)),
            after.words.eq(Mux(taking, given.words, now.words - beats)),
        ]
        with m.If(taking):
            m.d.sync += has_run.eq(has_run | chosen)
        with m.Elif(out.ready & final):
            m.d.sync += has_run.eq(has_run & ~chosen)
        with m.If(self.clear):
            m.d.sync += [has_run.eq(0), chosen.eq(0), taking.eq(0)]
        return m
