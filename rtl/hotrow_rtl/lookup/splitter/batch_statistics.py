"""Batch statistics: counts of lookups, hits, misses and refused lookups per batch."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.lookup_payloads import STATUS_WIDTH, amount_width, crossbar_response
from ...interfaces.records import outcome
from .miss_numbering import split_beat


class BatchStatistics(wiring.Component):
    """Sum the multiplicities of the owners of each batch.

    In a batch that splits, a lookup is a hit if its row has a slot; with a planner, if the row had
    a slot when its owner reached the bank. In a batch that only counts, an owner whose row had no
    counter is one miss, and every other lookup is a hit.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(crossbar_response(config, split_beat(config), config.slot_word_width)))
    outcome : Out(stream(outcome))
        One per batch, in order: lookups, hits, misses, unique (listed misses), refused (listed
        misses that the miss table does not keep), and the first refused lookup with its position.
    restart : In(1)
        A pulse drops the batch in progress.

    Timing
    ------
    One beat a cycle; the last beats of two batches are at least two cycles apart. The outcome is
    valid 3 cycles after the last beat.
    """

    def __init__(self, config: Config):
        self.config = config
        beats = crossbar_response(config, split_beat(config), config.slot_word_width)
        super().__init__({
            "beats": In(stream.Signature(beats)),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, beat = self.config, self.beats.p.carried
        ready, valid, last = Signal(init=1), Signal(2), Signal(2)
        outcome_waits, end_waits = Signal(), Signal()  # in the next cycle
        m.d.comb += [
            outcome_waits.eq(ready & valid[1] & last[1]
                             | self.outcome.valid & ~self.outcome.ready),
            end_waits.eq(Mux(ready, valid[0] & last[0], valid[1] & last[1])),
            self.beats.ready.eq(ready),
        ]
        # Timing: `outcome.ready` is late, so a waiting outcome stalls the end of the next batch for
        # one cycle more than it must.
        m.d.sync += ready.eq(~(outcome_waits & end_waits))
        with m.If(ready):
            m.d.sync += [
                valid.eq(Cat(self.beats.valid, valid)),
                last.eq(Cat(beat.last, last)),
            ]

        # Per lane, then over the lanes of a beat, then over the beats.
        width = amount_width(c)
        served, missed = ([Signal(width, name=f"{name}{lane}", reset_less=True)
                           for lane in range(c.lanes)] for name in ("served", "missed"))
        listed = Signal(c.lanes, reset_less=True)
        unkept = Signal(c.lanes, reset_less=True)
        all_served, all_missed = (
            Signal(range(c.lanes * (c.window_beats + 1) + 1), name=f"all_{name}", reset_less=True)
            for name in ("served", "missed"))
        all_listed, all_unkept = (Signal(range(c.lanes + 1), name=f"all_{name}", reset_less=True)
                                  for name in ("listed", "unkept"))
        first = Signal(data.StructLayout({
            "any": 1, "status": STATUS_WIDTH, "lane_position": range(c.lanes)}))
        position = Signal(32)  # in the batch, of the first lookup of the beat
        here = Signal(range(c.lanes + 1), reset_less=True)
        second = Signal(data.StructLayout({"any": 1, "status": STATUS_WIDTH, "position": 32}))
        present = [lane.present for lane in beat.lanes]
        with m.If(ready):
            m.d.sync += [
                first.eq(0),
                listed.eq(Cat(lane.listed for lane in beat.lanes)),
                unkept.eq(Cat(lane.listed & ~lane.kept for lane in beat.lanes)),
                all_served.eq(sum(served)),
                all_missed.eq(sum(missed)),
                all_listed.eq(sum(listed)),
                all_unkept.eq(sum(unkept)),
                here.eq(sum(present)),
                second.any.eq(first.any),
                second.status.eq(first.status),
                second.position.eq(position + first.lane_position),
            ]
            with m.If(valid[0]):
                m.d.sync += position.eq(Mux(last[0], 0, position + here))
            for number, lane in enumerate(beat.lanes):
                absent = lane.absent if c.planner else lane.missed
                m.d.sync += [
                    served[number].eq(Mux(lane.owner, lane.amount, 0)),
                    missed[number].eq(Mux(
                        beat.splits, Mux(absent, lane.amount, 0), lane.owner & ~lane.counted)),
                ]
            for number in reversed(range(c.lanes)):
                lane = beat.lanes[number]
                with m.If(lane.present & (lane.status != Status.OK)):
                    m.d.sync += [
                        first.any.eq(1),
                        first.status.eq(lane.status),
                        first.lane_position.eq(sum(present[:number])),
                    ]

        total = Signal(data.StructLayout({
            "status": STATUS_WIDTH, "error_index": 32,
            "lookups": 32, "misses": 32, "unique": 32, "refused": 32}))
        after = Signal.like(total)
        m.d.comb += [
            after.eq(total),
            after.lookups.eq(total.lookups + all_served),
            after.misses.eq(total.misses + all_missed),
            after.unique.eq(total.unique + all_listed),
            after.refused.eq(total.refused + all_unkept),
        ]
        with m.If(second.any & (total.status == Status.OK)):
            m.d.comb += [after.status.eq(second.status), after.error_index.eq(second.position)]
        with m.If(self.outcome.ready):
            m.d.sync += self.outcome.valid.eq(0)
        with m.If(ready & valid[1]):
            m.d.sync += total.eq(after)
            with m.If(last[1]):
                m.d.sync += [total.eq(0), self.outcome.valid.eq(1)]
                m.d.sync += [self.outcome.p[name].eq(after[name]) for name, _ in total.shape()]
                m.d.sync += self.outcome.p.hits.eq(after.lookups - after.misses)
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), position.eq(0), total.eq(0), self.outcome.valid.eq(0),
                         ready.eq(1)]
        return m
