"""Whose requests are carried out, and which of them."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import Operation


class Session(wiring.Component):
    """Judge a request by session, peer and number: carry it out, answer it again, or ignore it.

    Parameters
    ----------
    window : int
        Answers that are kept.
    peer_bytes : int
        That name a peer.

    Members
    -------
    session, sequence, operation : In
        Of the request's header.
    peer : In(8 * peer_bytes)
        That it came from.
    host : Out(8 * peer_bytes)
        The peer that is bound.
    replaceable : In(1)
        Another session may replace the one that holds.
    execute, repeat, out_of_order, foreign : Out(1)
        One of them is high.
    advance : In(1)
        In the cycle in which `execute` is followed.

    Timing
    ------
    Combinational.
    """

    def __init__(self, window, peer_bytes=0):
        self.window = window
        super().__init__({
            "session": In(32), "sequence": In(16), "operation": In(8),
            "peer": In(8 * peer_bytes), "host": Out(8 * peer_bytes),
            "replaceable": In(1),
            "execute": Out(1), "repeat": Out(1), "out_of_order": Out(1), "foreign": Out(1),
            "advance": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        bound, holder = Signal(), Signal(32)
        expected, kept = Signal(16), Signal(range(self.window + 1))
        mine, begins, age = Signal(), Signal(), Signal(16)
        m.d.comb += [
            mine.eq(bound & (self.session == holder) & (self.peer == self.host)),
            begins.eq(~mine & (self.operation == Operation.BIND) & (self.session != 0)
                      & (~bound | self.replaceable)),
            age.eq(expected - 1 - self.sequence),
            self.execute.eq(begins | mine & (self.sequence == expected)),
            self.repeat.eq(mine & (age < kept)),
            self.out_of_order.eq(mine & ~self.execute & ~self.repeat),
            self.foreign.eq(~mine & ~begins),
        ]
        with m.If(self.advance & self.execute):
            m.d.sync += [
                bound.eq(1),
                holder.eq(self.session),
                self.host.eq(self.peer),
                expected.eq(self.sequence + 1),
                kept.eq(Mux(begins, 1, Mux(kept == self.window, kept, kept + 1))),
            ]
        return m
