"""Batch statistics: lookups, hits, misses and the first refused lookup of a batch."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.lookup_payloads import STATUS_WIDTH, amount_width, crossbar_response
from ...interfaces.records import outcome
from ...primitives.bits import add_up, onehot_mux, popcount, prefix_or
from .miss_numbering import split_beat


class BatchStatistics(wiring.Component):
    """Add up the amounts of the owners of each batch.

    In a batch that splits a hit is a lookup with a slot; with a planner, one whose row had a slot
    before the request of its owner. In any other batch a hit is a lookup whose row was counted
    before: an owner whose row was not is one miss, the lookups that joined it are hits.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    beats : In(stream(crossbar_response(config, split_beat(config), config.slot_word_width)))
    outcome : Out(stream(outcome))
        One per batch, in order: lookups, hits, misses, unique (listed misses), refused (listed
        misses that the miss table did not keep), and status and index of the first refused lookup.
    restart : In(1)
        A pulse drops the batch in progress.

    Timing
    ------
    One beat a cycle. An outcome follows the last beat of its batch by 3 cycles, and the outcome
    before it by at least 2.
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
        enable, valid, last = Signal(init=1), Signal(2), Signal(2)
        # In the next cycle: an outcome is waiting, and the last beat of a batch is at the adder.
        outcome_next, last_next = Signal(), Signal()
        m.d.comb += [
            outcome_next.eq(enable & valid[1] & last[1]
                            | self.outcome.valid & ~self.outcome.ready),
            last_next.eq(Mux(enable, valid[0] & last[0], valid[1] & last[1])),
            self.beats.ready.eq(enable),
        ]
        # Timing: `enable` is registered, so a last beat stalls even in the cycle in which the
        # outcome before it is accepted.
        m.d.sync += enable.eq(~(outcome_next & last_next))
        with m.If(enable):
            m.d.sync += [
                valid.eq(Cat(self.beats.valid, valid)),
                last.eq(Cat(beat.last, last)),
            ]

        # Sums of a lane, then of a beat, then of a batch.
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
        refusal = Signal(data.StructLayout({
            "any": 1, "status": STATUS_WIDTH, "offset": range(c.lanes)}))
        beat_index = Signal(c.count_width)  # index in the batch of the first lookup of the beat
        present_count = Signal(range(c.lanes + 1), reset_less=True)
        refusal_q = Signal(data.StructLayout({
            "any": 1, "status": STATUS_WIDTH, "index": c.count_width}))
        present = Cat(lane.present for lane in beat.lanes)
        refused = Cat(lane.present & (lane.status != Status.OK) for lane in beat.lanes)
        from_first = prefix_or(refused)
        offset, *counts = (popcount(m, bits) for bits in (
            present & ~from_first, listed, unkept, present))
        with m.If(enable):
            m.d.sync += [
                refusal.any.eq(from_first[-1]),
                refusal.status.eq(onehot_mux(from_first & ~(from_first << 1)[:c.lanes],
                                             [lane.status for lane in beat.lanes])),
                refusal.offset.eq(offset),
                listed.eq(Cat(lane.listed for lane in beat.lanes)),
                unkept.eq(Cat(lane.listed & ~lane.kept for lane in beat.lanes)),
                all_served.eq(add_up(served)),
                all_missed.eq(add_up(missed)),
                all_listed.eq(counts[0]),
                all_unkept.eq(counts[1]),
                present_count.eq(counts[2]),
                refusal_q.any.eq(refusal.any),
                refusal_q.status.eq(refusal.status),
                refusal_q.index.eq(beat_index + refusal.offset),
            ]
            with m.If(valid[0]):
                m.d.sync += beat_index.eq(Mux(last[0], 0, beat_index + present_count))
            for number, lane in enumerate(beat.lanes):
                absent = lane.absent if c.planner else lane.missed
                m.d.sync += [
                    served[number].eq(Mux(lane.owner, lane.amount, 0)),
                    missed[number].eq(Mux(
                        beat.splits, Mux(absent, lane.amount, 0), lane.owner & ~lane.counted)),
                ]

        total = Signal(data.StructLayout({
            "status": STATUS_WIDTH, **dict.fromkeys(
                ("error_index", "lookups", "misses", "unique", "refused"), c.count_width)}))
        total_next = Signal.like(total)
        m.d.comb += [
            total_next.eq(total),
            total_next.lookups.eq(total.lookups + all_served),
            total_next.misses.eq(total.misses + all_missed),
            total_next.unique.eq(total.unique + all_listed),
            total_next.refused.eq(total.refused + all_unkept),
        ]
        with m.If(refusal_q.any & (total.status == Status.OK)):
            m.d.comb += [total_next.status.eq(refusal_q.status),
                         total_next.error_index.eq(refusal_q.index)]
        with m.If(self.outcome.ready):
            m.d.sync += self.outcome.valid.eq(0)
        with m.If(enable & valid[1]):
            m.d.sync += total.eq(total_next)
            with m.If(last[1]):
                m.d.sync += [total.eq(0), self.outcome.valid.eq(1)]
                m.d.sync += [self.outcome.p[name].eq(total_next[name])
                             for name, _ in total.shape()]
                m.d.sync += self.outcome.p.hits.eq(total_next.lookups - total_next.misses)
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), beat_index.eq(0), total.eq(0), self.outcome.valid.eq(0),
                         enable.eq(1)]
        return m
