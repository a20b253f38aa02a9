"""One region check for several units that each need it now and then."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .region_check import access, verdict


class RegionPort(wiring.Signature):
    """A client's view of the region check: `accesses` out, one of `verdicts` back for each."""

    def __init__(self, config: Config):
        super().__init__({
            "accesses": Out(stream.Signature(access)),
            "verdicts": In(stream.Signature(verdict(config))),
        })


class RegionArbiter(wiring.Component):
    """Serve one access at a time, lower client numbers first.

    Parameters
    ----------
    config : Config
    clients : int

    Members
    -------
    clients : In(RegionPort(config)).array(clients)
    check : Out(RegionPort(config))
    enable : In(1)
        While low no access is taken up: the region table is being cleared.
    restart : In(1)
        The clients have forgotten their accesses: drops the verdict of the one in progress.

    Timing
    ------
    Adds 3 cycles to an access; the next one is taken up after its verdict was taken.
    """

    def __init__(self, config: Config, clients: int):
        self.client_count = clients
        super().__init__({
            "clients": In(RegionPort(config)).array(clients),
            "check": Out(RegionPort(config)),
            "enable": In(1),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        held, owner, dropped = Signal(access), Signal(range(self.client_count + 1)), Signal()
        check = self.check
        m.d.comb += check.accesses.p.eq(held)
        for client in self.clients:
            m.d.comb += client.verdicts.p.eq(check.verdicts.p)
        with m.If(self.restart):
            m.d.sync += dropped.eq(1)

        with m.FSM():
            with m.State("CHOOSE"):
                m.d.sync += dropped.eq(0)
                granted = self.enable & ~self.restart
                for number, client in enumerate(self.clients):
                    with m.If(granted & client.accesses.valid):
                        m.d.comb += client.accesses.ready.eq(1)
                        m.d.sync += [held.eq(client.accesses.p), owner.eq(number)]
                        m.next = "ASK"
                    granted &= ~client.accesses.valid
            with m.State("ASK"):
                m.d.comb += check.accesses.valid.eq(1)
                with m.If(check.accesses.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(dropped | self.restart):
                    m.d.comb += check.verdicts.ready.eq(1)
                with m.Else():
                    with m.Switch(owner):
                        for number, client in enumerate(self.clients):
                            with m.Case(number):
                                m.d.comb += [
                                    client.verdicts.valid.eq(check.verdicts.valid),
                                    check.verdicts.ready.eq(client.verdicts.ready),
                                ]
                with m.If(check.verdicts.valid & check.verdicts.ready):
                    m.next = "CHOOSE"
        return m
