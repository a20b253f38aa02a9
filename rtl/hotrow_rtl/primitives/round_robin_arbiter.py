"""Fair choice among requesters."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobinArbiter(wiring.Component):
    """Grant one of the requests: the first one above the last grant, else the lowest.

    Parameters
    ----------
    count : int
        Number of requesters.

    Attributes
    ----------
    requests : In(count)
    grant : Out(count)
        One-hot, or 0 without a request.
    accept : In(1)
        The grant is used in this cycle.

    Timing
    ------
    Combinational. A request waits for at most `count` - 1 grants to others.
    """

    def __init__(self, count):
        if count < 1:
            raise ValueError(f"at least one requester is needed, not {count}")
        super().__init__({"requests": In(count), "grant": Out(count), "accept": In(1)})

    def elaborate(self, platform):
        m = Module()
        above = Signal.like(self.requests)  # mask of the requesters above the last grant
        first = Signal.like(above)
        m.d.comb += first.eq(self.requests & above)
        for idx in range(len(above)):
            m.d.comb += self.grant[idx].eq(Mux(
                first.any(),
                first[idx] & ~first[:idx].any(),
                self.requests[idx] & ~self.requests[:idx].any()))
        with m.If(self.accept & self.requests.any()):
            m.d.sync += above.eq(Cat(self.grant[:idx].any() for idx in range(len(above))))
        return m
