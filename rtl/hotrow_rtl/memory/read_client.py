"""What the list port keeps for one of its clients."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import FAULT_TIMEOUT, ReadClient
from ..primitives.fifo import RamFifo
from .bursts import less_width


def beat(config: Config) -> data.StructLayout:
    """One bus word as it comes from memory."""
    return data.StructLayout({"data": config.bus_width, "fault": 2})


class ReadClientBuffer(wiring.Component):
    """Pass a client's requests on, count the words that come, and buffer them.

    Where a word does not come one with a fault stands for it, so that each list ends with `last`
    after the right number of words whether or not the memory answers. Two lists may be on their
    way, so that the second's latency hides behind the first's words.

    Parameters
    ----------
    config : Config
    depth : int
        Words of buffer.
    longest : int
        Beats of the longest burst.

    Members
    -------
    client : In(ReadClient(config))
    request : Out(stream)
        The client's requests, as of `ReadClient`, that are to be cut into bursts.
    less : In
        Bus words of the request that is taken, less one.
    room, rooms : Out(1)
        The longest burst has room in the buffer; two of them have.
    reserve : In(1)
        A burst of `reserved` + 1 beats has been requested.
    reserved : In
    beats : In(stream(beat(config)))
        The words that answer the bursts, in order; always ready.
    stopped : In(1)
        Answer whatever is not in the buffer with FAULT_TIMEOUT.
    draining : In(1)
        Take no requests.
    restart : In(1)
        Forget everything.

    Timing
    ------
    Beat to word 2 cycles; one word a cycle, one every other cycle while stopped.
    """

    def __init__(self, config: Config, depth, longest):
        self.config, self.depth, self.longest = config, depth, longest
        super().__init__({
            "client": In(ReadClient(config)),
            "request": Out(ReadClient(config).members["request"].signature),
            "less": In(less_width(config)),
            "room": Out(1),
            "rooms": Out(1),
            "reserve": In(1),
            "reserved": In(log2(config.burst_beats)),
            "beats": In(stream.Signature(beat(config), always_ready=True)),
            "stopped": In(1),
            "draining": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        request, words = self.client.request, self.client.words
        m.submodules.buffer = buffer = RamFifo(words.p.shape(), self.depth)

        # Counts of words, less one; a list's own does not move in the cycle of its last word.
        following, second = Signal(less_width(self.config)), Signal()  # the second list's
        remaining, first = Signal.like(following), Signal()  # those that have not come
        final = Signal()  # the next word is the first list's last
        comes, left, willing = Signal(), Signal(), Signal()
        # What has not come will never: a fault stands for it, every other cycle, so that the room
        # that there was the cycle before is still there.
        lost = Signal()
        m.d.sync += lost.eq(self.stopped & buffer.i.ready & ~lost)
        m.d.comb += [
            comes.eq(first & (self.beats.valid | lost)),
            willing.eq(~self.draining & ~second),
            self.request.p.eq(request.p),
            self.request.valid.eq(request.valid & willing),
            request.ready.eq(willing & self.request.ready),
        ]
        with m.If(~first | comes):
            with m.If(~first | final):
                m.d.sync += [remaining.eq(following), final.eq(following == 0)]
            with m.Else():
                m.d.sync += [remaining.eq(remaining - 1), final.eq(remaining == 1)]
        with m.If(~first | comes & final):
            m.d.sync += [first.eq(second), second.eq(0)]
        with m.If(~second):
            m.d.sync += following.eq(self.less)
        with m.If(request.valid & request.ready):
            m.d.sync += second.eq(1)

        # Room is asked for the longest burst: a look at the upper bits.
        free, after = (Signal(range(self.depth + 1), init=self.depth, name=name)
                       for name in ("free", "after"))
        m.d.comb += after.eq(free + left)
        m.d.sync += left.eq(words.valid & words.ready)  # that one does comes late, and room may
        with m.If(self.reserve):
            m.d.comb += after.eq(free + left - self.reserved - 1)
        m.d.sync += free.eq(after)
        m.d.comb += [
            self.room.eq(free[log2(self.longest):].any()),
            self.rooms.eq(free[log2(self.longest) + 1:].any()),
        ]

        m.d.comb += [
            buffer.i.valid.eq(comes),
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
                lost.eq(0), first.eq(0), second.eq(0), free.eq(self.depth), left.eq(0)]
        return m
