"""Two writers of short sequences as one client of a result port."""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..interfaces.records import WriteClient


class WriteArbiter(wiring.Component):
    """Pass on the sequences of two writers, one after the other.

    The second's words go while the first's outcome is awaited. A writer makes its next request
    after its outcome.

    Parameters
    ----------
    config : Config

    Members
    -------
    writers : In(WriteClient(config)).array(2)
    deposit : Out(WriteClient(config))
    restart : In(1)
        Forget everything.

    Timing
    ------
    A request 1 cycle later than its writer's; words and outcomes at once.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "writers": In(WriteClient(config)).array(2),
            "deposit": Out(WriteClient(config)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        outer, m = Module(), Module()
        outer.submodules.turns = ResetInserter(self.restart)(m)
        deposit, writers = self.deposit, self.writers
        request, words, outcome = deposit.request, deposit.words, deposit.outcome
        owner, sending = Signal(init=1), Signal()  # whose words go
        oldest, awaited = Signal(), Signal(2)  # whose outcome is next; who waits for one
        offered = [writer.request.valid & ~awaited[number]
                   for number, writer in enumerate(writers)]
        with m.FSM():
            with m.State("CHOOSE"):
                m.d.sync += owner.eq(Mux(owner, ~offered[0], offered[1]))
                with m.If(offered[0] | offered[1]):
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                with m.Switch(owner):
                    for number, writer in enumerate(writers):
                        with m.Case(number):
                            m.d.comb += [
                                request.valid.eq(1),
                                writer.request.ready.eq(request.ready),
                            ]
                with m.If(request.ready):
                    m.d.sync += awaited.bit_select(owner, 1).eq(1)
                    with m.If(~awaited.any()):
                        m.d.sync += oldest.eq(owner)
                    m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += sending.eq(1)
                with m.If(words.valid & words.ready & words.p.last):
                    m.next = "CHOOSE"
        with m.Switch(owner):
            for number, writer in enumerate(writers):
                with m.Case(number):
                    m.d.comb += [
                        request.p.eq(writer.request.p),
                        words.p.eq(writer.words.p),
                        words.valid.eq(writer.words.valid & sending),
                        writer.words.ready.eq(words.ready & sending),
                    ]
        for number, writer in enumerate(writers):
            its = awaited[number] & (oldest == number)
            m.d.comb += [
                writer.outcome.p.eq(outcome.p),
                writer.outcome.valid.eq(outcome.valid & its),
            ]
            with m.If(its):
                m.d.comb += outcome.ready.eq(writer.outcome.ready)
                with m.If(outcome.valid & writer.outcome.ready):
                    m.d.sync += [awaited[number].eq(0), oldest.eq(1 - number)]
        return outer
