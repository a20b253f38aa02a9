"""What a result port keeps for one of its clients."""

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import FAULT_TIMEOUT, WriteClient
from ..primitives.fifo import RamFifo
from .bursts import burst, word_width

CLOSED_BURSTS = 8  # complete bursts of one client that may wait for their turn on the bus
OUTSTANDING_BURSTS = 256  # bursts of a port without an answer


def result_beat(config: Config) -> data.StructLayout:
    """One bus word on its way to memory."""
    return data.StructLayout({"data": config.bus_width, "strobe": config.bus_bytes})


class WriteClientBuffer(wiring.Component):
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
        the first word of the next but one. Blocks between belong to another client. On a card with
        a planner, only of sequences that are not `whole`.

    Members
    -------
    client : In(WriteClient(config))
    bursts : Out(stream(burst(config)))
        Bursts that are complete.
    beats : Out(stream(result_beat(config)))
        Their words, in order.
    answers : In(stream)
        The `fault` of each burst; always ready.
    whole : In(1)
        Of a striped client with a planner: sequences fill every block. Stable during one.
    stopped : In(1)
        Take words and drop them; sequences end with FAULT_TIMEOUT.
    draining : In(1)
        Take up no sequence.
    restart : In(1)
        Forget everything, a word that is being taken included.

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
            **({"whole": In(1)} if striped and config.planner else {}),
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
        open_ = Signal()

        # A word waits one cycle, so that what it means is told from registers; and so is whether
        # there is room for one, as those who write are far: beside the rows, at the output, there
        # is room for one more than is known of.
        word, moves = Signal(words.p.shape(), reset_less=True), Signal()
        comes, room = Signal(), Signal(init=1)
        m.d.comb += [
            comes.eq(words.valid & words.ready),
            request.ready.eq(~self.draining & ~open_ & ~moves & ~taken_up[writing]),
            words.ready.eq(open_ & room),
        ]
        keep = Signal(reset_less=True)
        m.d.sync += [
            moves.eq(comes),
            word.eq(words.p),
            # The word that only ends a sequence does not go to memory: beyond the last result
            # there may be none.
            keep.eq(words.p.strobe.any() | ~words.p.last),
            room.eq(self.stopped | (closed.level < CLOSED_BURSTS - 2) & Mux(
                moves, buffer.level < self.depth - 1, buffer.level < self.depth)),
        ]
        with m.If(comes & words.p.last):
            m.d.sync += open_.eq(0)

        next_word = Signal(word_width(config))
        gathered = Signal.like(closing.less)  # words of the burst that is being filled
        ends, close = Signal(), Signal()
        start = Signal.like(gathered)  # its first word's place in its block
        boundary = next_word[:len(start)].all()
        skip = boundary if self.striped else Const(0, 1)  # the block that follows
        if self.striped and config.planner:
            skip = boundary & ~self.whole
        m.d.comb += [
            closing.less.eq(Mux(keep, gathered, gathered - 1)),
            closing.word.eq(Cat(start, next_word[len(start):])),
            ends.eq(word.last | boundary),
            close.eq(moves & ~self.stopped & ends & (keep | gathered.any())),
            buffer.i.valid.eq(moves & keep & ~self.stopped),
            buffer.i.p.data.eq(word.data),
            buffer.i.p.strobe.eq(word.strobe),
            closed.i.valid.eq(close),
        ]
        with m.If(moves):
            m.d.sync += [
                next_word.eq(next_word + (1 | skip << len(start))),
                gathered.eq(Mux(ends, 0, gathered + 1)),
            ]
            with m.If(ends):
                m.d.sync += start.eq(0)
            with m.If(word.last):
                m.d.sync += writing.eq(~writing)
        with m.If(request.valid & request.ready):
            m.d.sync += [
                open_.eq(1),
                taken_up[writing].eq(1),
                next_word.eq(request.p.address >> log2(config.bus_bytes)),
                start.eq(request.p.address >> log2(config.bus_bytes)),
            ]

        m.d.comb += [buffer.clear.eq(self.restart), closed.clear.eq(self.restart)]
        connect(m, buffer=buffer.o, port=flipped(self.beats))
        connect(m, closed=closed.o, port=flipped(self.bursts))

        # What happened to a sequence is noted a cycle late; an answer takes longer.
        noted, of = Signal(data.StructLayout({"moved": 1, "ended": 1, "closed": 1})), Signal()
        m.d.sync += [
            noted.moved.eq(moves),
            noted.ended.eq(moves & word.last),
            noted.closed.eq(close),
            of.eq(writing),
        ]
        awaits = Array(Signal(name=f"awaits_{i}") for i in range(2))  # unanswered is not 0
        fault = Array(Signal(2, name=f"fault_{i}") for i in range(2))
        done = Array(Signal(name=f"done_{i}") for i in range(2))
        most = OUTSTANDING_BURSTS + CLOSED_BURSTS + 2  # in flight, in the queue, at its output
        oldest = Signal()  # the sequence to which the next answer belongs
        m.d.comb += oldest.eq(Mux(awaits[answering], answering, ~answering))
        for i in range(2):
            ended, its = Signal(name=f"ended_{i}"), of == i
            unanswered = Signal(range(most), name=f"unanswered_{i}")
            more, fewer = noted.closed & its, self.answers.valid & (oldest == i)
            with m.If(~taken_up[i]):
                m.d.sync += [ended.eq(0), fault[i].eq(0)]
            with m.Elif(self.stopped):
                with m.If(awaits[i] | noted.moved & its):
                    m.d.sync += [unanswered.eq(0), awaits[i].eq(0), fault[i].eq(FAULT_TIMEOUT)]
            with m.Else():
                with m.If(more & ~fewer):
                    m.d.sync += [unanswered.eq(unanswered + 1), awaits[i].eq(1)]
                with m.Elif(fewer & ~more):
                    m.d.sync += [unanswered.eq(unanswered - 1), awaits[i].eq(unanswered != 1)]
                with m.If(fewer & (self.answers.p.fault > fault[i])):
                    m.d.sync += fault[i].eq(self.answers.p.fault)
            with m.If(noted.ended & its):
                m.d.sync += ended.eq(1)
            m.d.sync += done[i].eq(taken_up[i] & ended & ~awaits[i])
            with m.If(self.restart):
                m.d.sync += [unanswered.eq(0), awaits[i].eq(0), taken_up[i].eq(0), done[i].eq(0)]

        m.d.comb += [outcome.valid.eq(done[answering]), outcome.p.fault.eq(fault[answering])]
        with m.If(outcome.valid & outcome.ready):
            m.d.sync += [taken_up[answering].eq(0), answering.eq(~answering)]

        with m.If(self.restart):
            m.d.sync += [
                flag.eq(0) for flag in (open_, moves, noted, gathered, writing, answering)]
        return m
