"""Decide which requests are executed, answered again or ignored."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.contract.link_frames import Operation


class Session(wiring.Component):
    """Classify a request by session, peer and sequence number.

    Parameters
    ----------
    window : int
        Number of stored replies.
    peer_bytes : int
        Bytes of a peer's address.

    Attributes
    ----------
    session, sequence, operation : In
        Header fields of the request.
    peer : In(8 * peer_bytes)
        Sender of the request.
    host : Out(8 * peer_bytes)
        The bound peer.
    replaceable : In(1)
        Another session may replace the bound one.
    execute, repeat, out_of_order, foreign : Out(1)
        Class of the request, one-hot: execute it, send its stored reply again, or ignore it.
    fire : In(1)
        High for the cycle in which the executor acts on the class.

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
            "fire": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        bound, bound_session = Signal(), Signal(32)
        expected, reply_count = Signal(16), Signal(range(self.window + 1))
        mine, begins, age = Signal(), Signal(), Signal(16)
        m.d.comb += [
            mine.eq(bound & (self.session == bound_session) & (self.peer == self.host)),
            begins.eq(~mine & (self.operation == Operation.BIND) & (self.session != 0)
                      & (~bound | self.replaceable)),
            age.eq(expected - 1 - self.sequence),
            self.execute.eq(begins | mine & (self.sequence == expected)),
            self.repeat.eq(mine & (age < reply_count)),
            self.out_of_order.eq(mine & ~self.execute & ~self.repeat),
            self.foreign.eq(~mine & ~begins),
        ]
        with m.If(self.fire & self.execute):
            m.d.sync += [
                bound.eq(1),
                bound_session.eq(self.session),
                self.host.eq(self.peer),
                expected.eq(self.sequence + 1),
                reply_count.eq(Mux(begins, 1, Mux(
                    reply_count == self.window, reply_count, reply_count + 1))),
            ]
        return m
