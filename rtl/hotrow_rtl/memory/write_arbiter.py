"""Two writers that share one client of a result port."""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..interfaces.records import WriteClient


class WriteArbiter(wiring.Component):
    """Arbitrate between two writers, one sequence at a time.

    The words of one writer may be sent while the other waits for its outcome. A writer sends its
    next request after its outcome.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    writers : In(WriteClient(config)).array(2)
    client : Out(WriteClient(config))
    restart : In(1)
        Drop everything.

    Timing
    ------
    A request takes 1 cycle, words and outcomes none.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "writers": In(WriteClient(config)).array(2),
            "client": Out(WriteClient(config)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        outer, m = Module(), Module()
        outer.submodules.arbiter = ResetInserter(self.restart)(m)
        client, writers = self.client, self.writers
        request, words, outcome = client.request, client.words, client.outcome
        owner, sending = Signal(init=1), Signal()  # writer of the current sequence
        # Writers that wait for an outcome, and the writer of the next outcome.
        oldest, awaited = Signal(), Signal(2)
        requests = [writer.request.valid & ~awaited[number]
                    for number, writer in enumerate(writers)]
        with m.FSM():
            with m.State("ARBITRATE"):
                m.d.sync += owner.eq(Mux(owner, ~requests[0], requests[1]))
                with m.If(requests[0] | requests[1]):
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
                    m.next = "ARBITRATE"
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
            is_next = awaited[number] & (oldest == number)
            m.d.comb += [
                writer.outcome.p.eq(outcome.p),
                writer.outcome.valid.eq(outcome.valid & is_next),
            ]
            with m.If(is_next):
                m.d.comb += outcome.ready.eq(writer.outcome.ready)
                with m.If(outcome.valid & writer.outcome.ready):
                    m.d.sync += [awaited[number].eq(0), oldest.eq(1 - number)]
        return outer
