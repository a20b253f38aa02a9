"""Fair choice among requesters."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobinArbiter(wiring.Component):
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
        first = Signal.like(above)
        m.d.comb += first.eq(self.requests & above)
        for number in range(len(above)):
            m.d.comb += self.grant[number].eq(Mux(
                first.any(),
                first[number] & ~first[:number].any(),
                self.requests[number] & ~self.requests[:number].any()))
        with m.If(self.advance & self.requests.any()):
            m.d.sync += above.eq(Cat(self.grant[:number].any() for number in range(len(above))))
        return m
