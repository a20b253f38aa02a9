"""RowReadPort: the AR and R channels, legal through time-outs and restarts."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...memory.axi import BURST_INCR, AXI4Read
from ...memory.bursts import fault_of
from ...memory.watchdog import Watchdog
from .payloads import id_width, read_beat, tagged_burst


class RowReadPort(wiring.Component):
    """Issue read bursts and return their beats.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    bursts : In(stream(tagged_burst(config)))
        At most `config.outstanding` without their last beat. The port drops bursts while it is
        stopped or drains.
    beats : Out(read_beat(config))
        No back-pressure. No beats while the port is stopped or drains.
    bus : Out(AXI4Read)
    timeout : In(32)
        Cycles without progress after which the port stops; 0 disables the time-out.
    restart : In(1)
        A pulse ends the stop. The port then drains: it drops beats until `idle`. It stops again
        when the time is over again.
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
                                id_width=id_width(config))),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.watchdog = watchdog = Watchdog()
        bus, bursts = self.bus, self.bursts
        # The burst on AR is in flight, too.
        in_flight_count, in_flight = Signal(range(self.config.outstanding + 1)), Signal()
        draining, closed, issue, finish = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            closed.eq(self.stopped | draining | self.restart),
            bursts.ready.eq(closed | ~bus.arvalid | bus.arready),
            issue.eq(bursts.valid & bursts.ready & ~closed),
            finish.eq(bus.rvalid & bus.rlast & in_flight),
            self.idle.eq(~in_flight),
            bus.arsize.eq(log2(self.config.bus_bytes)),
            bus.arburst.eq(BURST_INCR),
            bus.rready.eq(1),  # every burst has space in the reorder buffer
            watchdog.waiting.eq(~self.idle),
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
        # Timing: `issue` is late; it only enables the counter.
        with m.If(issue ^ finish):
            m.d.sync += [
                in_flight_count.eq(Mux(finish, in_flight_count - 1, in_flight_count + 1)),
                in_flight.eq(~finish | (in_flight_count != 1)),
            ]
        with m.If(bus.arready):
            m.d.sync += bus.arvalid.eq(0)
        with m.If(issue):
            m.d.sync += [
                bus.arvalid.eq(1),
                bus.arid.eq(bursts.p.id),
                bus.araddr.eq(bursts.p.burst.address),
                bus.arlen.eq(bursts.p.burst.len_minus_1),
            ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)
        return m
