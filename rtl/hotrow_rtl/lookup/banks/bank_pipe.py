"""Bank pipe: takes the place of the crossbar on a card with one lane and one bank."""

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.hdl import Shape
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import RING_BEATS, Config
from ...interfaces.lookup_payloads import crossbar_request, crossbar_response
from ...primitives.fifo import RamFifo
from ...primitives.skid_buffer import SkidBuffer
from .crossbar import BankCrossbar


class BankPipe(wiring.Component):
    """Issue the request of each beat to the bank, and return the beat with its answer.

    Parameters, attributes : see `BankCrossbar`, for one lane and one bank.

    Timing
    ------
    A request is issued `requested` cycles after its beat. The beat leaves `latency` cycles after
    its answer, or after it entered if it has no request. One beat a cycle while the bank keeps up.
    Up to `beats` + 1 beats wait for their answers.
    """

    requested = SkidBuffer.latency
    latency = RamFifo.latency

    def __init__(self, config: Config, carried, request, shared, answer, *, beats=RING_BEATS):
        self._carried, self._answer, self._beats = carried, answer, beats
        width = Shape.cast(request).width + Shape.cast(shared).width
        super().__init__({
            "beats": In(stream.Signature(crossbar_request(config, carried, request, shared))),
            "requests": Out(stream.Signature(width)).array(1),
            "answers": In(stream.Signature(answer, always_ready=True)).array(1),
            "answered": Out(stream.Signature(crossbar_response(config, carried, answer))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, lane, out = self.beats.p, self.beats.p.lanes[0], self.answered
        # Each answer belongs to a beat in `order`, so `answers` never overflows.
        m.submodules.order = order = RamFifo(
            data.StructLayout({"carried": self._carried, "asks": 1}), self._beats)
        m.submodules.answers = answers = RamFifo(self._answer, self._beats)
        request = SkidBuffer(self.requests[0].p.shape())
        m.submodules.request = ResetInserter(self.restart)(request)
        connect(m, request=request.o, bank=flipped(self.requests[0]))
        fire, leaves = Signal(), Signal()
        m.d.comb += [
            order.clear.eq(self.restart),
            answers.clear.eq(self.restart),
            self.beats.ready.eq(order.i.ready & request.i.ready),
            fire.eq(self.beats.valid & self.beats.ready),
            order.i.valid.eq(fire),
            order.i.p.carried.eq(beat.carried),
            order.i.p.asks.eq(lane.valid),
            request.i.valid.eq(fire & lane.valid),
            request.i.p.eq(Cat(lane.request, beat.shared)),
            answers.i.valid.eq(self.answers[0].valid),
            answers.i.p.eq(self.answers[0].p),
            out.valid.eq(order.o.valid & (answers.o.valid | ~order.o.p.asks)),
            out.p.carried.eq(order.o.p.carried),
            # The answer to a later beat comes while a beat without request waits.
            Value.cast(out.p.answers[0]).eq(Mux(order.o.p.asks, Value.cast(answers.o.p), 0)),
            leaves.eq(out.valid & out.ready),
            order.o.ready.eq(leaves),
            answers.o.ready.eq(leaves & order.o.p.asks),
        ]
        return m


def bank_crossbar(config: Config, *shapes, **options):
    """Return the unit between the lanes and the banks: `BankCrossbar` or `BankPipe`."""
    unit = BankPipe if config.banks == 1 else BankCrossbar
    return unit(config, *shapes, **options)
