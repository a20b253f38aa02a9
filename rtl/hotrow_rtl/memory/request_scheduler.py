"""Round-robin selection among the read requests of several clients."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..interfaces.records import ReadClient
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .bursts import list_len_width, word_width


class RequestScheduler(wiring.Component):
    """Select a request and compute its first and last bus word, clients in round-robin order.

    Parameters
    ----------
    config : Config
    count : int
        Clients.

    Attributes
    ----------
    requests : In(stream).array(count)
        See `ReadClient`.
    busy : In(count)
        Clients whose requests must wait; low until one is accepted.
    valid : Out(1)
        A request is at the output; it is accepted in the first such cycle without `stall`.
    fire : Out(count)
        One-hot: the client whose request is accepted in this cycle.
    client_idx, word, last, len_minus_1 : Out
        The request's client, first and last bus word, and number of bus words minus one.
    stall : In(1)
    clear : In(1)
        Drop the requests in the pipeline.

    Timing
    ------
    Latency 4 cycles; one request a cycle, every 5 cycles of the same client.
    """

    def __init__(self, config: Config, count):
        self.config, self.count = config, count
        super().__init__({
            "requests": In(ReadClient(config).members["request"].signature).array(count),
            "busy": In(count),
            "valid": Out(1),
            "fire": Out(count),
            "client_idx": Out(range(max(2, count))),
            "word": Out(word_width(config)),
            "last": Out(word_width(config)),
            "len_minus_1": Out(list_len_width(config)),
            "stall": In(1),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = RoundRobinArbiter(self.count)
        byte_width = log2(self.config.bus_bytes)
        # Pipeline stages, a cycle each; one-hot but the first.
        pending, selected, copied, output = (
            Signal(self.count, name=name) for name in ("pending", "selected", "copied", "output"))
        shape = self.requests[0].p.shape()
        request_mux, request_q = Signal(shape), Signal(shape, reset_less=True)
        step = Signal()
        m.d.comb += [
            step.eq(~self.valid | ~self.stall),
            arbiter.requests.eq(pending),
            arbiter.accept.eq(step),
            self.fire.eq(output & (~self.stall).replicate(self.count)),
            self.last.eq(self.word + self.len_minus_1),
        ]
        with m.If(step):
            m.d.sync += [
                selected.eq(arbiter.grant),
                copied.eq(selected),
                request_q.eq(request_mux),
                output.eq(copied),
                self.valid.eq(copied.any()),
                self.word.eq(request_q.address >> byte_width),
                self.len_minus_1.eq((request_q.bytes - 1) >> byte_width),
            ]
        for idx, request in enumerate(self.requests):
            in_pipeline = arbiter.grant[idx] | selected[idx] | copied[idx] | output[idx]
            m.d.comb += request.ready.eq(self.fire[idx])
            m.d.sync += pending[idx].eq(request.valid & ~self.busy[idx] & ~in_pipeline)
            with m.If(output[idx]):
                m.d.comb += self.client_idx.eq(idx)
            with m.If(selected[idx]):
                m.d.comb += request_mux.eq(request.p)
        with m.If(self.clear):
            m.d.sync += [flags.eq(0) for flags in (pending, selected, copied, output, self.valid)]
        return m
