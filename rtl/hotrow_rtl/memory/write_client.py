"""Buffer, bursts and outcomes of one client of a result port."""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import FAULT_TIMEOUT, WriteClient
from ..primitives.fifo import RamFifo
from .bursts import burst, word_width

CLOSED_BURSTS = 8  # complete bursts of one client that wait for the bus, at most
OUTSTANDING_BURSTS = 256  # bursts of a port in flight, at most


def result_beat(config: Config) -> data.StructLayout:
    """One bus word on its way to memory."""
    return data.StructLayout({"data": config.bus_width, "strobe": config.bus_bytes})


class WriteClientBuffer(wiring.Component):
    """Buffer a client's words, close bursts, and return the outcome of each sequence.

    A burst is sent once all of its words are in the buffer, so that a client that pauses does not
    block the bus. Two sequences may be in flight: the second fills the buffer while answers to the
    first are awaited. Answers come in order, so each belongs to the older sequence with unanswered
    bursts.

    Parameters
    ----------
    config : Config
    depth : int
        Words of buffer.
    striped : bool
        A sequence fills every second block of `burst_beats` words, starting with the block of its
        address: after the last word of a block it skips a block, which belongs to another client.

    Attributes
    ----------
    client : In(WriteClient(config))
    bursts : Out(stream(burst(config)))
        Complete bursts.
    beats : Out(stream(result_beat(config)))
        Their words, in order.
    answers : In(stream)
        The `fault` of each burst; always ready.
    bypass_striping : In(1)
        Striped client on a card with a planner: sequences fill every block. Stable during one.
    stopped : In(1)
        Accept words and drop them; sequences end with FAULT_TIMEOUT.
    draining : In(1)
        Accept no request.
    restart : In(1)
        Drop everything, a word that is accepted in this cycle included.

    Timing
    ------
    Word to beat 3 cycles; one word a cycle.
    """

    def __init__(self, config: Config, depth, *, striped=False):
        self.config, self.depth, self.striped = config, depth, striped
        super().__init__({
            "client": In(WriteClient(config)),
            "bursts": Out(stream.Signature(burst(config))),
            "beats": Out(stream.Signature(result_beat(config))),
            "answers": In(stream.Signature(data.StructLayout({"fault": 2}), always_ready=True)),
            "stopped": In(1),
            "draining": In(1),
            "restart": In(1),
            **({"bypass_striping": In(1)} if striped and config.planner else {}),
        })

    def elaborate(self, platform):
        m = Module()
        config, words = self.config, self.client.words
        request, outcome = self.client.request, self.client.outcome
        m.submodules.buffer = buffer = RamFifo(result_beat(config), self.depth)
        m.submodules.closed = closed = RamFifo(burst(config), CLOSED_BURSTS)
        closing = closed.i.p

        # Two sequences by index: `writing` is the one whose words are accepted, `answering` the
        # older one.
        writing, answering = Signal(), Signal()
        in_use = Array(Signal(name=f"in_use_{i}") for i in range(2))
        open_ = Signal()

        # Timing: a word is registered before it is decoded, and `ready` is a register, as the
        # clients are far. The buffer's output register has space for the word in between.
        word, word_valid = Signal(words.p.shape(), reset_less=True), Signal()
        fire, opens, open_next, has_space = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            fire.eq(words.valid & words.ready),
            request.ready.eq(~self.draining & ~open_ & ~word_valid & ~in_use[writing]),
            opens.eq(request.valid & request.ready),
            open_next.eq(opens | open_ & ~(fire & words.p.last)),
            has_space.eq(self.stopped | (closed.level < CLOSED_BURSTS - 2) & Mux(
                word_valid, buffer.level < self.depth - 1, buffer.level < self.depth)),
        ]
        keep = Signal(reset_less=True)
        m.d.sync += [
            word_valid.eq(fire),
            word.eq(words.p),
            # A last word without strobes is not written: its address may lie beyond the list.
            keep.eq(words.p.strobe.any() | ~words.p.last),
            open_.eq(open_next),
            words.ready.eq(open_next & has_space),
        ]

        next_word = Signal(word_width(config))
        burst_len = Signal.like(closing.len_minus_1)  # words in the burst so far
        ends, close = Signal(), Signal()
        start = Signal.like(burst_len)  # position of its first word in the block
        boundary = next_word[:len(start)].all()
        skip = boundary if self.striped else Const(0, 1)
        if self.striped and config.planner:
            skip = boundary & ~self.bypass_striping
        m.d.comb += [
            closing.len_minus_1.eq(Mux(keep, burst_len, burst_len - 1)),
            closing.word.eq(Cat(start, next_word[len(start):])),
            ends.eq(word.last | boundary),
            close.eq(word_valid & ~self.stopped & ends & (keep | burst_len.any())),
            buffer.i.valid.eq(word_valid & keep & ~self.stopped),
            buffer.i.p.data.eq(word.data),
            buffer.i.p.strobe.eq(word.strobe),
            closed.i.valid.eq(close),
        ]
        with m.If(word_valid):
            m.d.sync += [
                next_word.eq(next_word + (1 | skip << len(start))),
                burst_len.eq(Mux(ends, 0, burst_len + 1)),
            ]
            with m.If(ends):
                m.d.sync += start.eq(0)
            with m.If(word.last):
                m.d.sync += writing.eq(~writing)
        with m.If(opens):
            m.d.sync += [
                in_use[writing].eq(1),
                next_word.eq(request.p.address >> log2(config.bus_bytes)),
                start.eq(request.p.address >> log2(config.bus_bytes)),
            ]

        m.d.comb += [buffer.clear.eq(self.restart), closed.clear.eq(self.restart)]
        connect(m, buffer=buffer.o, port=flipped(self.beats))
        connect(m, closed=closed.o, port=flipped(self.bursts))

        # Registered events of the sequence `event_idx`; an answer takes longer than this cycle.
        event = Signal(data.StructLayout({"word": 1, "last": 1, "burst": 1}))
        event_idx = Signal()
        m.d.sync += [
            event.word.eq(word_valid),
            event.last.eq(word_valid & word.last),
            event.burst.eq(close),
            event_idx.eq(writing),
        ]
        waiting = Array(Signal(name=f"waiting_{i}") for i in range(2))  # unanswered != 0
        fault = Array(Signal(2, name=f"fault_{i}") for i in range(2))
        done = Array(Signal(name=f"done_{i}") for i in range(2))
        max_bursts = OUTSTANDING_BURSTS + CLOSED_BURSTS + 2  # in flight, queued, at the output
        oldest = Signal()  # the sequence to which the next answer belongs
        m.d.comb += oldest.eq(Mux(waiting[answering], answering, ~answering))
        for i in range(2):
            ended, selected = Signal(name=f"ended_{i}"), event_idx == i
            unanswered = Signal(range(max_bursts), name=f"unanswered_{i}")
            increment, decrement = event.burst & selected, self.answers.valid & (oldest == i)
            with m.If(~in_use[i]):
                m.d.sync += [ended.eq(0), fault[i].eq(0)]
            with m.Elif(self.stopped), m.If(waiting[i] | event.word & selected):
                m.d.sync += [unanswered.eq(0), waiting[i].eq(0), fault[i].eq(FAULT_TIMEOUT)]
            with m.Else():
                with m.If(increment & ~decrement):
                    m.d.sync += [unanswered.eq(unanswered + 1), waiting[i].eq(1)]
                with m.Elif(decrement & ~increment):
                    m.d.sync += [unanswered.eq(unanswered - 1), waiting[i].eq(unanswered != 1)]
                with m.If(decrement & (self.answers.p.fault > fault[i])):
                    m.d.sync += fault[i].eq(self.answers.p.fault)
            with m.If(event.last & selected):
                m.d.sync += ended.eq(1)
            m.d.sync += done[i].eq(in_use[i] & ended & ~waiting[i])
            with m.If(self.restart):
                m.d.sync += [unanswered.eq(0), waiting[i].eq(0), in_use[i].eq(0), done[i].eq(0)]

        m.d.comb += [outcome.valid.eq(done[answering]), outcome.p.fault.eq(fault[answering])]
        with m.If(outcome.valid & outcome.ready):
            m.d.sync += [in_use[answering].eq(0), answering.eq(~answering)]

        with m.If(self.restart):
            m.d.sync += [
                flag.eq(0) for flag in (open_, words.ready, word_valid, event, burst_len, writing,
                                        answering)]
        return m
