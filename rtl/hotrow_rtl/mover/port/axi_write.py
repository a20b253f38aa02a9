"""Row write port: the AW, W and B channels, kept legal through time-outs and restarts."""

from amaranth import Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import FAULT_TIMEOUT
from ...memory.axi import BURST_INCR, AXI4Write
from ...memory.bursts import fault_of
from ...memory.watchdog import Watchdog
from .payloads import burst, burst_end, destination_word, writes_waiting

BURSTS_AHEAD = 4  # addresses that may be accepted before their data


class RowWritePort(wiring.Component):
    """Issue bursts with their words, hand on the answers.

    All bursts carry id 0, so that writes to one address land in order.

    Parameters
    ----------
    config : Config

    Members
    -------
    bursts : In(stream(burst(config)))
    words : In(stream(destination_word(config)))
        The words of those bursts. Both are dropped while stopped or draining.
    answers : Out(stream)
        The `fault` of each burst, in order. While stopped: TIMEOUT, again and again.
    bus : Out(AXI4Write)
    timeout : In(32)
        Cycles without progress after which the port stops; 0 never.
    restart : In(1)
        A pulse ends the stop; the port then drains until `idle`. Words that it owes to bursts
        already on the bus are sent without strobes, so that they end and write nothing more.
    idle : Out(1)
        Nothing is in flight.
    stopped : Out(1)

    Timing
    ------
    Latency 1 cycle to AW, 2 to W and 1 from B; throughput 1 word and 1 answer per cycle, bursts
    of one word included.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bursts": In(stream.Signature(burst(config))),
            "words": In(stream.Signature(destination_word(config))),
            "answers": Out(stream.Signature(burst_end())),
            "bus": Out(AXI4Write(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                 id_width=1)),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, asked, answer = self.bus, self.bursts, self.answers
        m.submodules.watchdog = watchdog = Watchdog()
        m.submodules.owed = owed = fifo.SyncFIFO(width=8, depth=BURSTS_AHEAD)
        most = writes_waiting(self.config)
        in_flight, some, full = Signal(range(most + 1)), Signal(), Signal()  # till the answer
        owes = Signal()  # words
        draining, closed, load, answered = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            closed.eq(self.stopped | draining | self.restart),
            self.idle.eq(~some & ~bus.awvalid & ~bus.wvalid & ~owes),
            watchdog.waiting.eq(~self.idle & ~draining),
            watchdog.progress.eq(  # whether an answer is taken is told late
                (bus.awvalid & bus.awready) | (bus.wvalid & bus.wready) | bus.bvalid),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            self.stopped.eq(watchdog.stopped),
        ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)

        # AW. Words are owed from the cycle in which the address appears.
        m.d.comb += [
            load.eq(asked.valid & ~closed & (~bus.awvalid | bus.awready) & owed.w_rdy & ~full),
            asked.ready.eq(closed | ((~bus.awvalid | bus.awready) & owed.w_rdy & ~full)),
            owed.w_en.eq(load),
            owed.w_data.eq(asked.p.length),
            bus.awsize.eq(log2(self.config.bus_bytes)),
            bus.awburst.eq(BURST_INCR),
        ]
        with m.If(bus.awready):
            m.d.sync += bus.awvalid.eq(0)
        with m.If(load):
            m.d.sync += [
                bus.awvalid.eq(1),
                bus.awaddr.eq(asked.p.address),
                bus.awlen.eq(asked.p.length),
            ]

        # W.
        word = Signal(8)
        free, put, final = Signal(), Signal(), Signal()
        m.d.comb += [
            free.eq(~bus.wvalid | bus.wready),
            put.eq(free & owes & (closed | self.words.valid)),
            self.words.ready.eq(closed | (free & owes)),
            final.eq(word == owed.r_data),
            owed.r_en.eq(put & final),
        ]
        with m.If(load):
            m.d.sync += owes.eq(1)
        with m.Elif(owed.r_en):
            m.d.sync += owes.eq(owed.level != 1)
        with m.If(bus.wready):
            m.d.sync += bus.wvalid.eq(0)
        with m.If(put):
            m.d.sync += [
                bus.wvalid.eq(1),
                bus.wdata.eq(self.words.p.data),
                bus.wstrb.eq(Mux(closed, 0, self.words.p.strobe)),
                bus.wlast.eq(final),
                word.eq(Mux(final, 0, word + 1)),
            ]

        # B.
        held, held_fault = Signal(), Signal(2)
        m.d.comb += [
            bus.bready.eq(closed | ~held | answer.ready),
            answered.eq(bus.bvalid & bus.bready & some),
            answer.valid.eq(held | self.stopped),
            answer.p.fault.eq(Mux(held, held_fault, FAULT_TIMEOUT)),
        ]
        with m.If(load ^ answered):  # `load` comes late and only enables
            m.d.sync += [
                in_flight.eq(Mux(answered, in_flight - 1, in_flight + 1)),
                some.eq(~answered | (in_flight != 1)),
                full.eq(~answered & (in_flight == most - 1)),
            ]
        with m.If(closed):
            with m.If(answer.ready | ~self.stopped):
                m.d.sync += held.eq(0)
        with m.Elif(bus.bready):
            m.d.sync += [held.eq(bus.bvalid), held_fault.eq(fault_of(bus.bresp))]
        return m
