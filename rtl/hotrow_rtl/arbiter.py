"""Fair choice among requesters."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """Grant one of the requests, the next one above the last granted first.

    Members
    -------
    requests : In(count)
    grant : Out(count)
        One-hot, or 0 without a request.
    advance : In(1)
        The grant is used in this cycle.

    Timing
    ------
    Combinational. A request is passed over at most `count` - 1 times.
    """

    def __init__(self, count):
        if count < 1:
            raise ValueError(f"at least one requester is needed, not {count}")
        super().__init__({"requests": In(count), "grant": Out(count), "advance": In(1)})

    def elaborate(self, platform):
        m = Module()
        above = Signal.like(self.requests)  # requesters above the one granted last
        first, eligible = Signal.like(above), Signal.like(above)
        m.d.comb += [
            first.eq(self.requests & above),
            eligible.eq(Mux(first.any(), first, self.requests)),
            self.grant.eq(eligible & -eligible),
        ]
        with m.If(self.advance & self.grant.any()):
            m.d.sync += above.eq(~(self.grant | (self.grant - 1)))
        return m
