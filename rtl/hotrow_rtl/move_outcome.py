"""Move outcome: what the completion of a move command says."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .contract import Status
from .layouts import outcome
from .row_layouts import ended_copy, refusal


class MoveOutcome(wiring.Component):
    """Count what moved, keep the error with the lowest index, and tell when all is over.

    Members
    -------
    start : In(1)
        A pulse before each command.
    count : In(32)
        Entries of the command, stable until its outcome is taken.
    refusing, refused : In
        An entry that is not moved, in order of entries.
    ended : In(ended_copy())
        A copy that has landed or failed, in order; an entry is over with its `last`.
    outcome : Out(stream(outcome))
        Once per command, when every entry is refused or over.

    Timing
    ------
    Latency 3 cycles after the last entry that ends, 2 after one that is refused.
    """

    start: In(1)
    count: In(32)
    refusing: In(1)
    refused: In(refusal())
    ended: In(ended_copy())
    outcome: Out(stream.Signature(outcome))

    def elaborate(self, platform):
        m = Module()
        out, ended = self.outcome, Signal(ended_copy())  # held, as it comes out of a memory
        identity, failed = ended.identity, ended.fault != 0
        over, running, broken = Signal(32), Signal(), Signal()
        done = ended.valid & identity.last
        m.d.sync += ended.eq(self.ended)

        m.d.sync += over.eq(over + self.refusing + done)
        with m.If(ended.valid):
            m.d.sync += broken.eq(Mux(identity.last, 0, broken | failed))
            with m.If(~failed):
                m.d.sync += out.p.bytes.eq(out.p.bytes + identity.bytes)
        with m.If(done & ~failed & ~broken):
            m.d.sync += out.p.entries.eq(out.p.entries + 1)

        # Entries are refused before the copies of earlier entries have ended: a copy that fails
        # may come before an error that is known, a refused entry never.
        lower = (out.p.status == Status.OK) | (identity.index < out.p.error_index)
        with m.If(ended.valid & failed & lower):
            m.d.sync += [
                out.p.status.eq(Status.SLVERR - 1 + ended.fault),
                out.p.error_index.eq(identity.index),
                out.p.error_address.eq(Mux(ended.written, identity.destination.as_value(),
                                           identity.source.as_value())),
            ]
        with m.Elif(self.refusing & (out.p.status == Status.OK)):
            m.d.sync += [
                out.p.status.eq(self.refused.status),
                out.p.error_index.eq(self.refused.index),
                out.p.error_address.eq(self.refused.address),
            ]

        with m.If(running & (over == self.count)):
            m.d.sync += [out.valid.eq(1), running.eq(0)]
        with m.If(out.valid & out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(self.start):
            m.d.sync += [out.p.eq(0), over.eq(0), broken.eq(0), running.eq(1)]
        return m
