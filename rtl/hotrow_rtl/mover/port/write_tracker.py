"""Move tracker: match the ends of reads and writes with the copies that they belong to."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .payloads import burst_end, copy_identity, ended_copy, read_end


class WriteTracker(wiring.Component):
    """Tell when each copy has landed or failed.

    Members
    -------
    identities : In(stream(copy_identity()))
        Every copy, in order.
    moves : In(stream)
        Every copy, in order, once its reads have ended: their `fault`, and whether it has
        `two_writes`.
    answers : In(stream)
        The `fault` of each burst written. Copies with a fault of their reads have none.
    ended : Out(ended_copy())
        Every copy, in order, once its writes have been answered.

    Timing
    ------
    Throughput 1 copy per cycle.
    """

    identities: In(stream.Signature(copy_identity()))
    moves: In(stream.Signature(read_end()))
    answers: In(stream.Signature(burst_end()))
    ended: Out(ended_copy())

    def elaborate(self, platform):
        m = Module()
        move, answer, ended = self.moves.p, self.answers, self.ended
        half, half_fault = Signal(), Signal(2)  # the first of two writes has been answered
        known = self.moves.valid & self.identities.valid
        unread = move.fault != 0
        first = known & ~unread & move.two_writes & ~half
        m.d.comb += [
            ended.valid.eq(known & (unread | (answer.valid & ~first))),
            ended.written.eq(~unread),
            ended.fault.eq(Mux(unread, move.fault, Mux(
                half & (half_fault > answer.p.fault), half_fault, answer.p.fault))),
            ended.identity.eq(self.identities.p),
            answer.ready.eq(known & ~unread),
            self.moves.ready.eq(ended.valid),
            self.identities.ready.eq(ended.valid),
        ]
        with m.If(first & answer.valid):
            m.d.sync += [half.eq(1), half_fault.eq(answer.p.fault)]
        with m.Elif(ended.valid):
            m.d.sync += half.eq(0)
        return m
