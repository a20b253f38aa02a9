"""Plan window: the batches that may be planned or marked, and the newest retired batch.

Source: the window of ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4. Hosts retire batches.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import NO_BATCH, Status
from ...interfaces.lookup_payloads import STATUS_WIDTH
from ...interfaces.retirement import Retirement


class PlanWindow(wiring.Component):
    """Hold the newest planned and the newest retired batch, and check the next batch against them.

    Numbers are compared modulo 2**32. After reset the next batch is 0.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    host : In(Retirement())
        A write retires a batch that is planned and not older than the newest retired batch.
    batch : In(32)
        The batch to plan, if `plans`, or to mark.
    plans : In(1)
    status : Out(Status)
        OK, or the cause of a refusal, `latency` cycles after `batch` and `plans`.
    index : Out(32)
        The `error_index` of the refusal.
    planned : Out(32)
        The newest planned batch.
    accept : In(1)
        A pulse: `batch` is planned.
    clear : In(1)
        A pulse drops all batches, and a write of the host in that cycle.

    Timing
    ------
    A write takes effect, or is `refused`, 2 cycles later.
    """

    latency = 2  # subtract, compare

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "host": In(Retirement()),
            "batch": In(32),
            "plans": In(1),
            "status": Out(STATUS_WIDTH),
            "index": Out(32),
            "planned": Out(32, init=NO_BATCH),
            "accept": In(1),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        host, planned, retired = self.host, self.planned, Signal(32, init=NO_BATCH)
        ahead, window, next_ = (Signal(32, name=name) for name in ("ahead", "window", "next"))
        m.d.comb += host.retired.eq(retired)
        m.d.sync += [
            ahead.eq(self.batch - planned),
            window.eq(self.batch - retired),
            next_.eq(planned + 1),
        ]
        in_order = Mux(self.plans, ahead == 1, ahead.any() & ~ahead[-1])
        m.d.sync += [
            self.status.eq(Mux(~in_order, Status.BATCH_ORDER, Mux(
                window > self.config.sweep_batches, Status.WINDOW, Status.OK))),
            self.index.eq(Mux(in_order, retired, next_)),
        ]

        writes, forward, unretired = Signal(), Signal(32), Signal(32)
        m.d.sync += [
            writes.eq(host.write),
            forward.eq(host.number - retired),
            unretired.eq(planned - retired),
            host.refused.eq(writes & (forward > unretired)),
        ]
        with m.If(writes & (forward <= unretired)):
            m.d.sync += retired.eq(retired + forward)
        with m.If(self.accept):
            m.d.sync += planned.eq(self.batch)
        with m.If(self.clear):
            m.d.sync += [planned.eq(NO_BATCH), retired.eq(NO_BATCH), writes.eq(0)]
        return m
