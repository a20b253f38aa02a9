"""What the list port keeps for one of its clients."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bursts import BurstCutter, burst, words_width
from .config import Config, log2
from .fifo import RamFifo
from .layouts import FAULT_TIMEOUT, Fetch


def beat(config: Config) -> data.StructLayout:
    """One bus word as it comes from memory."""
    return data.StructLayout({"data": config.bus_width, "fault": 2})


class ListClient(wiring.Component):
    """Cut a client's requests into bursts, buffer the words, and count them out again.

    Words are counted where they leave, so that each list ends with `last` after the right number
    of words whether or not the memory answers. Two lists may be under way, so that the second's
    latency hides behind the first's words.

    Parameters
    ----------
    config : Config
    depth : int
        Words of buffer.

    Members
    -------
    client : In(Fetch(config))
    bursts : Out(stream(burst(config)))
        Bursts to request. Taking one reserves its words' room in the buffer.
    beats : In(stream(beat(config)))
        The words that answer the bursts, in order; always ready.
    stopped : In(1)
        Answer whatever is not in the buffer with FAULT_TIMEOUT; request nothing.
    draining : In(1)
        Take no requests.
    restart : In(1)
        Forget everything.

    Timing
    ------
    Request to burst 2 cycles, beat to word 2 cycles; one word a cycle.
    """

    def __init__(self, config: Config, depth):
        self.config, self.depth = config, depth
        super().__init__({
            "client": In(Fetch(config)),
            "bursts": Out(stream.Signature(burst(config))),
            "beats": In(stream.Signature(beat(config), always_ready=True)),
            "stopped": In(1),
            "draining": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, request, words = self.config, self.client.request, self.client.words
        byte_width = log2(config.bus_bytes)
        m.submodules.cutter = cutter = BurstCutter(config)
        m.submodules.buffer = buffer = RamFifo(beat(config), self.depth)

        count = Signal(words_width(config))
        following = Signal.like(count)  # words of the second list, 0 if there is none
        remaining = Signal.like(count)  # words of the first list that have not left
        taken = Signal()
        m.d.comb += [
            count.eq((request.p.bytes + (config.bus_bytes - 1)) >> byte_width),
            request.ready.eq(~self.draining & (following == 0)
                             & (cutter.runs.ready | self.stopped)),
            cutter.runs.valid.eq(request.valid & request.ready),
            cutter.runs.p.word.eq(request.p.address >> byte_width),
            cutter.runs.p.words.eq(count),
            cutter.clear.eq(self.restart),
        ]
        with m.If((remaining == 0) | taken & words.p.last):
            m.d.sync += [remaining.eq(following), following.eq(0)]
        with m.Elif(taken):
            m.d.sync += remaining.eq(remaining - 1)
        with m.If(request.valid & request.ready):
            m.d.sync += following.eq(count)

        # Room is asked for a whole burst, whatever its length: one comparison with a constant.
        free = Signal(range(self.depth + 1), init=self.depth)
        reserve = Signal()
        m.d.comb += [
            self.bursts.p.eq(cutter.bursts.p),
            self.bursts.valid.eq(cutter.bursts.valid & (free >= config.burst_beats)),
            reserve.eq(self.bursts.valid & self.bursts.ready),
            cutter.bursts.ready.eq(reserve),
        ]
        with m.If(reserve):
            m.d.sync += free.eq(free + taken - self.bursts.p.beats)
        with m.Else():
            m.d.sync += free.eq(free + taken)

        lost = Signal()  # the next word will never come
        m.d.comb += [
            buffer.i.valid.eq(self.beats.valid),
            buffer.i.p.eq(self.beats.p),
            buffer.clear.eq(self.restart),
            lost.eq(self.stopped & (buffer.level == 0)),
            words.valid.eq((remaining != 0) & (buffer.o.valid | lost)),
            words.p.data.eq(buffer.o.p.data),
            words.p.fault.eq(buffer.o.p.fault),
            words.p.last.eq(remaining == 1),
            buffer.o.ready.eq(words.ready & (remaining != 0)),
            taken.eq(words.valid & words.ready),
        ]
        with m.If(lost):
            m.d.comb += words.p.fault.eq(FAULT_TIMEOUT)

        with m.If(self.restart):
            m.d.sync += [remaining.eq(0), following.eq(0), free.eq(self.depth)]
        return m
