"""Plan window: which batches may be planned or marked, and which are retired.

Source: the window of ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4, here told by the host.
"""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import NO_BATCH, Status
from ...interfaces.lookup_payloads import STATUS_WIDTH
from ...interfaces.retirement import Retirement


class PlanWindow(wiring.Component):
    """Keep the newest planned and the newest retired batch; judge those to come by them.

    Numbers are compared modulo 2**32. At first, batch 0 is the next.

    Parameters
    ----------
    config : Config

    Members
    -------
    host : In(Retirement())
        A batch is retired if it is planned and not behind the newest retired one.
    batch : In(32)
        To be planned if `plans`, else marked.
    plans : In(1)
    status : Out(Status)
        OK, or why it may not be, `latency` cycles after both are told.
    index : Out(32)
        The `error_index` to that.
    planned : Out(32)
        The newest batch that is.
    accept : In(1)
        A pulse: `batch` is.
    clear : In(1)
        A pulse forgets all batches, and what the host writes in that cycle.

    Timing
    ------
    A write is heeded, or `refused`, 2 cycles after it.
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

        writes, forward, room = Signal(), Signal(32), Signal(32)
        m.d.sync += [
            writes.eq(host.write),
            forward.eq(host.number - retired),
            room.eq(planned - retired),
            host.refused.eq(writes & (forward > room)),
        ]
        with m.If(writes & (forward <= room)):
            m.d.sync += retired.eq(retired + forward)
        with m.If(self.accept):
            m.d.sync += planned.eq(self.batch)
        with m.If(self.clear):
            m.d.sync += [planned.eq(NO_BATCH), retired.eq(NO_BATCH), writes.eq(0)]
        return m
