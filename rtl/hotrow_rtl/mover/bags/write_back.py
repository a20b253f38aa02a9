"""Bag writes: computed rows to their destinations, those of bags that failed nowhere."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...arithmetic.payloads import row_format, row_word
from ...config import ROW_ALIGNMENT, Config, log2
from ..port.alignment import CopyAlignment
from ..port.payloads import COPY_BYTES, made_row, refusal, source_word
from .payloads import bag_end

STATE_BYTES = 4


class BagWriteBack(wiring.Component):
    """Join each row with the end of its bag, and write it or drop it.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse before each command.
    shape : In(row_format)
        Of all rows.
    ends : In(stream(bag_end(config)))
        Of every bag.
    rows : In(stream(row_word(config)))
    states : In(stream(32))
        The row of every bag, from its first byte on, and the state of one that has.
    made : Out(stream(made_row(config)))
    words : Out(stream(source_word(config)))
        Those to be written. A row is told no later than its first word is taken.
    refused, refusing : Out
        As of `RowStateGate`: the bags that are not written. Of one that tells nothing, as an earlier
        or later one does for it, the status is OK.

    Timing
    ------
    Latency 1 cycle; one word a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "shape": In(row_format),
            "ends": In(stream.Signature(bag_end(config))),
            "rows": In(stream.Signature(row_word(config))),
            "states": In(stream.Signature(32)),
            "made": Out(stream.Signature(made_row(config))),
            "words": Out(stream.Signature(source_word(config))),
            "refused": Out(refusal()),
            "refusing": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, given = self.config, self.ends.p
        m.submodules.placement = placement = CopyAlignment(config)
        placed, end = placement.placed, Signal(bag_end(config))  # the end is that of the placed
        copy, row_bytes = placement.copies.p, Signal(COPY_BYTES)
        m.d.comb += [
            row_bytes.eq(self.shape.row16 << log2(ROW_ALIGNMENT)),
            placement.copies.valid.eq(self.ends.valid),
            self.ends.ready.eq(placement.copies.ready),
            copy.destination.eq(given.destination),
            copy.two_writes.eq(given.two_writes),
            copy.identity.bytes.eq(Mux(given.is_state, STATE_BYTES, row_bytes)),
        ]
        with m.If(placement.copies.ready):
            m.d.sync += end.eq(given)

        inside, good, comes, step, final = (
            Signal(name=name) for name in ("inside", "good", "comes", "step", "final"))
        bag = Signal(32)
        m.d.comb += [
            good.eq(~end.drops),
            comes.eq(placed.valid & Mux(end.is_state, self.states.valid, self.rows.valid)),
            final.eq(end.is_state | self.rows.p.last),
            self.made.valid.eq(comes & good & ~inside & self.words.ready),
            self.made.p.row.destination.eq(placed.p.destination),
            self.made.p.row.bytes.eq(placed.p.bytes),
            self.made.p.row.two_writes.eq(placed.p.two_writes),
            # What errors are ordered by is not what is told of them.
            self.made.p.identity.index.eq(bag),
            self.made.p.identity.source.eq(end.index),
            self.made.p.identity.destination.eq(end.packed),
            self.made.p.identity.bytes.eq(placed.p.bytes),
            self.made.p.identity.last.eq(end.last),
            self.words.valid.eq(comes & good & (inside | self.made.ready)),
            self.words.p.data.eq(Mux(end.is_state, self.states.p, self.rows.p.data)),
            self.words.p.placement.eq(placed.p.placement),
            self.words.p.first.eq(~inside),
            self.words.p.last.eq(final),
            step.eq(comes & (~good | self.words.ready & (inside | self.made.ready))),
            self.rows.ready.eq(step & ~end.is_state),
            self.states.ready.eq(step & end.is_state),
            placed.ready.eq(~placed.valid | step & final),
        ]
        with m.If(step):
            m.d.sync += [inside.eq(~final), bag.eq(bag + (final & end.last))]
        with m.If(self.start):
            m.d.sync += bag.eq(0)
        m.d.sync += [
            self.refusing.eq(step & final & end.last & ~good),
            self.refused.index.eq(bag),
            self.refused.told.eq(end.index),
            self.refused.status.eq(end.status),
            self.refused.address.eq(end.address),
        ]
        return m
