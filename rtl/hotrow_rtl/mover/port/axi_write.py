"""RowWritePort: the AW, W and B channels, legal through time-outs and restarts."""

from amaranth import Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import FAULT_TIMEOUT
from ...memory.axi import BURST_INCR, AXI4Write
from ...memory.bursts import fault_of
from ...memory.watchdog import Watchdog
from .payloads import burst, burst_response, destination_word, pending_writes

BURSTS_AHEAD = 4  # addresses that may be accepted before their data


class RowWritePort(wiring.Component):
    """Issue write bursts with their words and return the responses.

    All bursts carry id 0, so that writes to one address land in order.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    bursts : In(stream(burst(config)))
    words : In(stream(destination_word(config)))
        The words of the bursts. The port drops bursts and words while it is stopped or drains.
    responses : Out(stream(burst_response()))
        The fault of each burst, in order. While stopped: TIMEOUT in every cycle.
    bus : Out(AXI4Write)
    timeout : In(32)
        Cycles without progress after which the port stops; 0 disables the time-out.
    restart : In(1)
        A pulse ends the stop. The port then drains until `idle`: it completes the bursts on the bus
        with words without strobes, which write nothing. It stops again when the time is over again.
    idle : Out(1)
        Nothing is in flight.
    stopped : Out(1)

    Timing
    ------
    Latency 1 cycle from a burst to AW and 2 to W, 1 from a word to W and 1 from B; throughput
    1 word and 1 response per cycle, bursts of one word included.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bursts": In(stream.Signature(burst(config))),
            "words": In(stream.Signature(destination_word(config))),
            "responses": Out(stream.Signature(burst_response())),
            "bus": Out(AXI4Write(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                 id_width=1)),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, bursts, response = self.bus, self.bursts, self.responses
        m.submodules.watchdog = watchdog = Watchdog()
        m.submodules.lengths = lengths = fifo.SyncFIFO(width=8, depth=BURSTS_AHEAD)
        limit = pending_writes(self.config)
        in_flight_count, in_flight, full = Signal(range(limit + 1)), Signal(), Signal()
        words_due = Signal()  # an issued burst lacks words
        draining, closed, issue, finish = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            closed.eq(self.stopped | draining | self.restart),
            self.idle.eq(~in_flight & ~bus.awvalid & ~bus.wvalid & ~words_due),
            watchdog.waiting.eq(~self.idle),
            # Timing: `bready` is late, so `bvalid` alone counts as progress.
            watchdog.progress.eq(
                (bus.awvalid & bus.awready) | (bus.wvalid & bus.wready) | bus.bvalid),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            self.stopped.eq(watchdog.stopped),
        ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)

        # AW. The words of a burst are due from the cycle in which its address appears.
        m.d.comb += [
            issue.eq(bursts.valid & ~closed & (~bus.awvalid | bus.awready) & lengths.w_rdy & ~full),
            bursts.ready.eq(closed | ((~bus.awvalid | bus.awready) & lengths.w_rdy & ~full)),
            lengths.w_en.eq(issue),
            lengths.w_data.eq(bursts.p.len_minus_1),
            bus.awsize.eq(log2(self.config.bus_bytes)),
            bus.awburst.eq(BURST_INCR),
        ]
        with m.If(bus.awready):
            m.d.sync += bus.awvalid.eq(0)
        with m.If(issue):
            m.d.sync += [
                bus.awvalid.eq(1),
                bus.awaddr.eq(bursts.p.address),
                bus.awlen.eq(bursts.p.len_minus_1),
            ]

        # W.
        word_idx = Signal(8)
        w_ready, w_load, final = Signal(), Signal(), Signal()
        m.d.comb += [
            w_ready.eq(~bus.wvalid | bus.wready),
            w_load.eq(w_ready & words_due & (closed | self.words.valid)),
            self.words.ready.eq(closed | (w_ready & words_due)),
            final.eq(word_idx == lengths.r_data),
            lengths.r_en.eq(w_load & final),
        ]
        with m.If(issue):
            m.d.sync += words_due.eq(1)
        with m.Elif(lengths.r_en):
            m.d.sync += words_due.eq(lengths.level != 1)
        with m.If(bus.wready):
            m.d.sync += bus.wvalid.eq(0)
        with m.If(w_load):
            m.d.sync += [
                bus.wvalid.eq(1),
                bus.wdata.eq(self.words.p.data),
                bus.wstrb.eq(Mux(closed, 0, self.words.p.strobe)),
                bus.wlast.eq(final),
                word_idx.eq(Mux(final, 0, word_idx + 1)),
            ]

        # B.
        held, held_fault = Signal(), Signal(2)
        m.d.comb += [
            bus.bready.eq(closed | ~held | response.ready),
            finish.eq(bus.bvalid & bus.bready & in_flight),
            response.valid.eq(held | self.stopped),
            response.p.fault.eq(Mux(held, held_fault, FAULT_TIMEOUT)),
        ]
        # Timing: `issue` is late; it only enables the counter.
        with m.If(issue ^ finish):
            m.d.sync += [
                in_flight_count.eq(Mux(finish, in_flight_count - 1, in_flight_count + 1)),
                in_flight.eq(~finish | (in_flight_count != 1)),
                full.eq(~finish & (in_flight_count == limit - 1)),
            ]
        with m.If(closed), m.If(response.ready | ~self.stopped):
            m.d.sync += held.eq(0)
        with m.Elif(bus.bready):
            m.d.sync += [held.eq(bus.bvalid), held_fault.eq(fault_of(bus.bresp))]
        return m
