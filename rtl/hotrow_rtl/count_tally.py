"""Count tally: what an OBSERVE has counted."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bank_layouts import amount_width, answered_beat, count_answer, counted_beat
from .config import Config
from .contract import Status
from .layouts import outcome


class CountTally(wiring.Component):
    """Add up the answers to the beats of each batch.

    An owner that was not counted before is one miss; what else it stands for are hits.

    Parameters
    ----------
    config : Config

    Members
    -------
    beats : In(stream(answered_beat(config, counted_beat(config), count_answer())))
    outcome : Out(stream(outcome))
        One per batch, in order: lookups, hits, misses, and the first refused lookup with its
        position.
    restart : In(1)
        A pulse forgets the batch in progress.

    Timing
    ------
    One beat a cycle; the outcome 3 cycles after the last one.
    """

    def __init__(self, config: Config):
        self.config = config
        beat = answered_beat(config, counted_beat(config), count_answer())
        super().__init__({
            "beats": In(stream.Signature(beat)),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, beat = self.config, self.beats.p.carried
        answers = self.beats.p.answers
        advance, valid, last = Signal(), Signal(2), Signal(2)
        m.d.comb += [
            advance.eq(~(self.outcome.valid & ~self.outcome.ready)),
            self.beats.ready.eq(advance),
        ]
        with m.If(advance):
            m.d.sync += [
                valid.eq(Cat(self.beats.valid, valid)),
                last.eq(Cat(beat.last, last)),
            ]

        # Per lane, then over the lanes of a beat, then over the beats.
        served = Signal(amount_width(c))
        missed = Signal(c.lanes)
        misses = Signal(range(c.lanes + 1))
        lookups = [Signal(amount_width(c), name=f"amount{n}") for n in range(c.lanes)]
        first, second = (Signal(data.StructLayout({
            "any": 1, "status": 8, "position": 32}), name=name) for name in ("first", "second"))
        present = [lane.present for lane in beat.lanes]
        with m.If(advance):
            m.d.sync += [
                missed.eq(Cat(lane.owner & ~answer.counted
                              for lane, answer in zip(beat.lanes, answers))),
                [amount.eq(Mux(lane.owner, lane.amount, 0))
                 for amount, lane in zip(lookups, beat.lanes)],
                first.eq(0),
                served.eq(sum(lookups)),
                misses.eq(sum(missed)),
                second.eq(first),
            ]
            for number in reversed(range(c.lanes)):
                lane = beat.lanes[number]
                with m.If(lane.present & (lane.status != Status.OK)):
                    m.d.sync += [
                        first.any.eq(1),
                        first.status.eq(lane.status),
                        first.position.eq(beat.position + sum(present[:number])),
                    ]

        total = Signal(outcome)
        after = Signal(outcome)
        m.d.comb += [
            after.eq(total),
            after.lookups.eq(total.lookups + served),
            after.misses.eq(total.misses + misses),
            after.hits.eq(total.hits + (served - misses)),
        ]
        with m.If(second.any & (total.status == Status.OK)):
            m.d.comb += [after.status.eq(second.status), after.error_index.eq(second.position)]
        with m.If(self.outcome.ready):
            m.d.sync += self.outcome.valid.eq(0)
        with m.If(advance & valid[1]):
            m.d.sync += total.eq(after)
            with m.If(last[1]):
                m.d.sync += [total.eq(0), self.outcome.p.eq(after), self.outcome.valid.eq(1)]
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), total.eq(0), self.outcome.valid.eq(0)]
        return m
