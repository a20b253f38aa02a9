"""Row read port: the AR and R channels, kept legal through time-outs and restarts."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...memory.axi import BURST_INCR, AXI4Read
from ...memory.bursts import fault_of
from ...memory.watchdog import Watchdog
from .payloads import read_beat, tag, tagged_burst


class RowReadPort(wiring.Component):
    """Issue bursts, hand on what comes back.

    Parameters
    ----------
    config : Config

    Members
    -------
    bursts : In(stream(tagged_burst(config)))
        At most `config.outstanding` at a time whose last beat has not come. Dropped while stopped
        or draining.
    beats : Out(read_beat(config))
        Must be taken at once. None while stopped or draining.
    bus : Out(AXI4Read)
    timeout : In(32)
        Cycles without progress after which the port stops; 0 never.
    restart : In(1)
        A pulse ends the stop; the port then drains: it drops what comes until `idle`.
    idle : Out(1)
        Nothing is in flight.
    stopped : Out(1)

    Timing
    ------
    Latency 1 cycle to AR and 1 cycle from R; throughput 1 burst and 1 beat per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bursts": In(stream.Signature(tagged_burst(config))),
            "beats": Out(read_beat(config)),
            "bus": Out(AXI4Read(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                id_width=tag(config))),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.watchdog = watchdog = Watchdog()
        bus, asked = self.bus, self.bursts
        # The one on AR included.
        in_flight, some = Signal(range(self.config.outstanding + 1)), Signal()
        draining, closed, load, ended = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            closed.eq(self.stopped | draining | self.restart),
            asked.ready.eq(closed | ~bus.arvalid | bus.arready),
            load.eq(asked.valid & asked.ready & ~closed),
            ended.eq(bus.rvalid & bus.rlast & some),
            self.idle.eq(~some),
            bus.arsize.eq(log2(self.config.bus_bytes)),
            bus.arburst.eq(BURST_INCR),
            bus.rready.eq(1),  # every burst has its place in the buffer
            watchdog.waiting.eq(~self.idle & ~draining),
            watchdog.progress.eq((bus.arvalid & bus.arready) | bus.rvalid),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            self.stopped.eq(watchdog.stopped),
        ]
        m.d.sync += [
            self.beats.valid.eq(bus.rvalid & ~closed),
            self.beats.id.eq(bus.rid),
            self.beats.last.eq(bus.rlast),
            self.beats.fault.eq(fault_of(bus.rresp)),
            self.beats.data.eq(bus.rdata),
        ]
        with m.If(load ^ ended):  # `load` comes late and only enables
            m.d.sync += [
                in_flight.eq(Mux(ended, in_flight - 1, in_flight + 1)),
                some.eq(~ended | (in_flight != 1)),
            ]
        with m.If(bus.arready):
            m.d.sync += bus.arvalid.eq(0)
        with m.If(load):
            m.d.sync += [
                bus.arvalid.eq(1),
                bus.arid.eq(asked.p.id),
                bus.araddr.eq(asked.p.burst.address),
                bus.arlen.eq(asked.p.burst.length),
            ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)
        return m
