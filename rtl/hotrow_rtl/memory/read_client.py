"""Buffer and word count of one client of the list port."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import FAULT_TIMEOUT, ReadClient
from ..primitives.fifo import RamFifo
from .bursts import list_len_width


def beat(config: Config) -> data.StructLayout:
    """One bus word as it comes from memory."""
    return data.StructLayout({"data": config.bus_width, "fault": 2})


class ReadClientBuffer(wiring.Component):
    """Forward a client's requests, count the words that arrive, and buffer them.

    A missing word is replaced by one with a fault, so that each list ends with `last` after the
    right number of words whether or not the memory answers. Two lists may be in flight, so that
    the words of the first hide the latency of the second.

    Parameters
    ----------
    config : Config
    depth : int
        Words of buffer.
    longest : int
        Beats of the longest burst.

    Attributes
    ----------
    client : In(ReadClient(config))
    request : Out(stream)
        The client's requests, to be split into bursts; see `ReadClient`.
    len_minus_1 : In
        Bus words of the request that is accepted, minus one.
    space_for_one, space_for_two : Out(1)
        The buffer has space for the longest burst; for two of them.
    reserve : In(1)
        A burst of `reserve_len_minus_1` + 1 beats has been requested.
    reserve_len_minus_1 : In
    beats : In(stream(beat(config)))
        The words that answer the bursts, in order; always ready.
    stopped : In(1)
        Return FAULT_TIMEOUT for each word that is not in the buffer.
    draining : In(1)
        Accept no requests.
    restart : In(1)
        Drop everything.

    Timing
    ------
    Beat to word 2 cycles; one word a cycle, one every other cycle while stopped.
    """

    def __init__(self, config: Config, depth, longest):
        self.config, self.depth, self.longest = config, depth, longest
        super().__init__({
            "client": In(ReadClient(config)),
            "request": Out(ReadClient(config).members["request"].signature),
            "len_minus_1": In(list_len_width(config)),
            "space_for_one": Out(1),
            "space_for_two": Out(1),
            "reserve": In(1),
            "reserve_len_minus_1": In(log2(config.burst_beats)),
            "beats": In(stream.Signature(beat(config), always_ready=True)),
            "stopped": In(1),
            "draining": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        request, words = self.client.request, self.client.words
        m.submodules.buffer = buffer = RamFifo(words.p.shape(), self.depth)

        # Numbers of words minus one, of the list that arrives and of the next one.
        remaining, remaining_valid = Signal.like(self.len_minus_1), Signal()
        next_len, next_valid = Signal.like(self.len_minus_1), Signal()
        final = Signal()  # the next word to arrive is the list's last
        fire, word_read, accept = Signal(), Signal(), Signal()
        # After a stop no word arrives: a fault replaces each, every other cycle, as `i.ready` of
        # the cycle before is used.
        timeout_word = Signal()
        m.d.sync += timeout_word.eq(self.stopped & buffer.i.ready & ~timeout_word)
        m.d.comb += [
            fire.eq(remaining_valid & (self.beats.valid | timeout_word)),
            accept.eq(~self.draining & ~next_valid),
            self.request.p.eq(request.p),
            self.request.valid.eq(request.valid & accept),
            request.ready.eq(accept & self.request.ready),
        ]
        with m.If(~remaining_valid | fire):
            with m.If(~remaining_valid | final):
                m.d.sync += [remaining.eq(next_len), final.eq(next_len == 0)]
            with m.Else():
                m.d.sync += [remaining.eq(remaining - 1), final.eq(remaining == 1)]
        with m.If(~remaining_valid | fire & final):
            m.d.sync += [remaining_valid.eq(next_valid), next_valid.eq(0)]
        with m.If(~next_valid):
            m.d.sync += next_len.eq(self.len_minus_1)
        with m.If(request.valid & request.ready):
            m.d.sync += next_valid.eq(1)

        # Space is reserved for the longest burst: only the upper bits of the count are compared.
        space, space_next = (Signal(range(self.depth + 1), init=self.depth, name=name)
                             for name in ("space", "space_next"))
        m.d.comb += space_next.eq(space + word_read)
        m.d.sync += word_read.eq(words.valid & words.ready)  # Timing: the client's `ready` is late
        with m.If(self.reserve):
            m.d.comb += space_next.eq(space + word_read - self.reserve_len_minus_1 - 1)
        m.d.sync += space.eq(space_next)
        m.d.comb += [
            self.space_for_one.eq(space[log2(self.longest):].any()),
            self.space_for_two.eq(space[log2(self.longest) + 1:].any()),
        ]

        m.d.comb += [
            buffer.i.valid.eq(fire),
            buffer.i.p.data.eq(self.beats.p.data),
            buffer.i.p.fault.eq(Mux(self.beats.valid, self.beats.p.fault, FAULT_TIMEOUT)),
            buffer.i.p.last.eq(final),
            buffer.clear.eq(self.restart),
            words.valid.eq(buffer.o.valid),
            words.p.eq(buffer.o.p),
            buffer.o.ready.eq(words.ready),
        ]

        with m.If(self.restart):
            m.d.sync += [
                timeout_word.eq(0), remaining_valid.eq(0), next_valid.eq(0),
                space.eq(self.depth), word_read.eq(0)]
        return m
