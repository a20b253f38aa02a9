"""Arbitration of one region check between several units."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..memory.region_check import access, verdict


class RegionPort(wiring.Signature):
    """A client's view of the region check: `accesses`, and one of `verdicts` for each."""

    def __init__(self, config: Config):
        super().__init__({
            "accesses": Out(stream.Signature(access)),
            "verdicts": In(stream.Signature(verdict(config), always_ready=True)),
        })


class RegionArbiter(wiring.Component):
    """Serve one access at a time; lower client numbers have priority.

    Parameters
    ----------
    config : Config
    clients : int

    Attributes
    ----------
    clients : In(RegionPort(config)).array(clients)
    check : Out(RegionPort(config))
    enable : In(1)
        While low no access is accepted: the region table is being cleared.
    restart : In(clients)
        The client drops its access: the access is not accepted, or its verdict is dropped.

    Timing
    ------
    Adds a cycle to an access; the next one is accepted 2 cycles after its verdict.
    """

    def __init__(self, config: Config, clients: int):
        self.client_count = clients
        super().__init__({
            "clients": In(RegionPort(config)).array(clients),
            "check": Out(RegionPort(config)),
            "enable": In(1),
            "restart": In(clients),
        })

    def elaborate(self, platform):
        m = Module()
        owner, drop = Signal(self.client_count), Signal()  # `owner` is one-hot
        check, restarted = self.check, Signal()
        m.d.comb += restarted.eq((owner & self.restart).any())
        for client in self.clients:
            m.d.comb += client.verdicts.p.eq(check.verdicts.p)
        for number, client in enumerate(self.clients):
            with m.If(owner[number]):
                m.d.comb += check.accesses.p.eq(client.accesses.p)
        with m.If(restarted):
            m.d.sync += drop.eq(1)

        with m.FSM():
            with m.State("ARBITRATE"):
                m.d.sync += drop.eq(0)
                for number, client in reversed(list(enumerate(self.clients))):
                    with m.If(client.accesses.valid & ~self.restart[number]):
                        m.d.sync += owner.eq(1 << number)
                        with m.If(self.enable):
                            m.next = "REQUEST"
            with m.State("REQUEST"):
                m.d.comb += check.accesses.valid.eq(~restarted)
                for number, client in enumerate(self.clients):
                    m.d.comb += client.accesses.ready.eq(
                        check.accesses.ready & owner[number] & ~restarted)
                with m.If(restarted):
                    m.next = "ARBITRATE"
                with m.Elif(check.accesses.ready):
                    m.next = "VERDICT"
            with m.State("VERDICT"):
                for number, client in enumerate(self.clients):
                    m.d.comb += client.verdicts.valid.eq(
                        check.verdicts.valid & owner[number] & ~drop)
                with m.If(check.verdicts.valid):
                    m.next = "ARBITRATE"
        return m
