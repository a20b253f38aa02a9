"""What a result port keeps for one of its clients."""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bursts import burst, word_width
from .config import Config, log2
from .fifo import RamFifo
from .layouts import FAULT_TIMEOUT, Deposit

CLOSED_BURSTS = 8  # complete bursts of one client that may wait for their turn on the bus
UNANSWERED_WIDTH = 12  # bits of a count of one client's bursts whose answer has not come


def result_beat(config: Config) -> data.StructLayout:
    """One bus word on its way to memory."""
    return data.StructLayout({"data": config.bus_width, "strobe": config.bus_bytes})


class ResultClient(wiring.Component):
    """Buffer a client's words, close bursts, and tell how each sequence ended.

    A burst is offered once all of its words are in the buffer, so that a client that pauses does
    not hold the bus. Two sequences may be under way: the second fills the buffer while answers to
    the first are awaited. Answers come in order, so each belongs to the older sequence that
    expects one.

    Parameters
    ----------
    config : Config
    depth : int
        Words of buffer.
    striped : bool
        Of the blocks of `burst_beats` words into which addresses divide memory, a sequence fills
        every second one, from the one in which it starts: behind the last word of a block follows
        the first word of the next but one. Blocks between belong to another client.

    Members
    -------
    client : In(Deposit(config))
    bursts : Out(stream(burst(config)))
        Bursts that are complete.
    beats : Out(stream(result_beat(config)))
        Their words, in order.
    answers : In(stream)
        The `fault` of each burst; always ready.
    stopped : In(1)
        Take words and drop them; sequences end with FAULT_TIMEOUT.
    draining : In(1)
        Take nothing.
    restart : In(1)
        Forget everything.

    Timing
    ------
    Word to beat 2 cycles; one word a cycle.
    """

    def __init__(self, config: Config, depth, *, striped=False):
        self.config, self.depth, self.striped = config, depth, striped
        super().__init__({
            "client": In(Deposit(config)),
            "bursts": Out(stream.Signature(burst(config))),
            "beats": Out(stream.Signature(result_beat(config))),
            "answers": In(stream.Signature(data.StructLayout({"fault": 2}), always_ready=True)),
            "stopped": In(1),
            "draining": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, words = self.config, self.client.words
        request, outcome = self.client.request, self.client.outcome
        m.submodules.buffer = buffer = RamFifo(result_beat(config), self.depth)
        m.submodules.closed = closed = RamFifo(burst(config), CLOSED_BURSTS)
        closing = closed.i.p

        # Two sequences by number: `writing` takes words, `answering` is the older one's.
        writing, answering = Signal(), Signal()
        taken_up = Array(Signal(name=f"taken_up_{i}") for i in range(2))
        ended = Array(Signal(name=f"ended_{i}") for i in range(2))
        fault = Array(Signal(2, name=f"fault_{i}") for i in range(2))
        unanswered = Array(Signal(UNANSWERED_WIDTH, name=f"unanswered_{i}") for i in range(2))
        open_ = Signal()

        next_word = Signal(word_width(config))
        gathered = Signal.like(closing.beats)  # words of the burst that is being filled
        keep, close, accept = Signal(), Signal(), Signal()
        start = Signal(log2(config.burst_beats))  # its first word's place in its block
        boundary = next_word[:log2(config.burst_beats)].all()
        skip = boundary if self.striped else Const(0, 1)  # the block that follows
        m.d.comb += [
            request.ready.eq(~self.draining & ~open_ & ~taken_up[writing]),
            words.ready.eq(~self.draining & open_
                           & (self.stopped | buffer.i.ready & closed.i.ready)),
            accept.eq(words.valid & words.ready),
            # The word that only ends a sequence does not go to memory: beyond the last result
            # there may be none.
            keep.eq(words.p.strobe.any() | ~words.p.last),
            closing.beats.eq(gathered + keep),
            closing.word.eq(Cat(start, next_word[len(start):])),
            close.eq(accept & ~self.stopped & (words.p.last | boundary) & (closing.beats != 0)),
            buffer.i.valid.eq(accept & keep & ~self.stopped),
            buffer.i.p.data.eq(words.p.data),
            buffer.i.p.strobe.eq(words.p.strobe),
            closed.i.valid.eq(close),
        ]
        with m.If(request.valid & request.ready):
            m.d.sync += [
                open_.eq(1),
                taken_up[writing].eq(1),
                ended[writing].eq(0),
                fault[writing].eq(0),
                next_word.eq(request.p.address >> log2(config.bus_bytes)),
                start.eq(request.p.address >> log2(config.bus_bytes)),
                gathered.eq(0),
            ]
        with m.If(accept):
            m.d.sync += [
                next_word.eq(next_word + (1 | skip << log2(config.burst_beats))),
                gathered.eq(Mux(close, 0, closing.beats)),
            ]
            with m.If(close):
                m.d.sync += start.eq(0)
            with m.If(words.p.last):
                m.d.sync += [open_.eq(0), ended[writing].eq(1), writing.eq(~writing)]

        m.d.comb += [buffer.clear.eq(self.restart), closed.clear.eq(self.restart)]
        connect(m, buffer=buffer.o, port=flipped(self.beats))
        connect(m, closed=closed.o, port=flipped(self.bursts))

        oldest = Signal()  # the sequence to which the next answer belongs
        m.d.comb += oldest.eq(Mux(unanswered[answering] != 0, answering, ~answering))
        for i in range(2):
            answered = self.answers.valid & (oldest == i)
            with m.If(self.stopped):
                with m.If((unanswered[i] != 0) | accept & (writing == i)):
                    m.d.sync += [unanswered[i].eq(0), fault[i].eq(FAULT_TIMEOUT)]
            with m.Else():
                m.d.sync += unanswered[i].eq(
                    unanswered[i] + (close & (writing == i)) - answered)
                with m.If(answered & (self.answers.p.fault > fault[i])):
                    m.d.sync += fault[i].eq(self.answers.p.fault)

        m.d.comb += [
            outcome.valid.eq(taken_up[answering] & ended[answering]
                             & (unanswered[answering] == 0)),
            outcome.p.fault.eq(fault[answering]),
        ]
        with m.If(outcome.valid & outcome.ready):
            m.d.sync += [taken_up[answering].eq(0), answering.eq(~answering)]

        with m.If(self.restart):
            m.d.sync += [open_.eq(0), writing.eq(0), answering.eq(0)]
            m.d.sync += [signal.eq(0) for pair in (taken_up, unanswered) for signal in pair]
        return m
