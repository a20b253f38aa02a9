"""DmaReadPort, the list port: the AXI4 read master for rings, batches and lists."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import ReadClient
from .axi import BURST_INCR, AXI4Read
from .burst_scheduler import BurstScheduler
from .bursts import fault_of
from .read_client import ReadClientBuffer
from .watchdog import Watchdog

SHALLOW_BEATS = 8  # longest burst of a client with a small buffer: a command is no longer
BLOCK_RAM_ROWS = 512  # of the widest block RAM on ECP5 and UltraScale+: fewer rows save nothing


def buffer_words(config: Config) -> int:
    """Words of buffer of a client of the list port, unless its lists are short."""
    return max(BLOCK_RAM_ROWS, 4 * config.burst_beats)


class DmaReadPort(wiring.Component):
    """Share one AXI4 read master among clients that read lists.

    A client's number is its AXI id, so that bursts of different clients may be answered in any
    order. A burst is requested only when its client's buffer has space for its words: a client that
    stalls delays no other, and `rready` is always high.

    When the memory does not answer for `timeout` cycles the port stops: every word that has not
    arrived, and every word of later requests, is returned with FAULT_TIMEOUT, and beats that still
    arrive are dropped, until `restart`. `restart` also drops the clients' requests and words; their
    readers are reset with it. The port then accepts requests once nothing is in flight, or once
    the time is over again: then it has stopped again.

    Parameters
    ----------
    config : Config
    clients : int
    depth : int, optional
        Words of buffer per client, a power of two, at least two bursts.
    shallow : dict of int to int, optional
        Words of buffer of clients with short lists, by number. Their bursts have at most
        `SHALLOW_BEATS` beats.

    Attributes
    ----------
    clients : In(ReadClient(config)).array(clients)
    bus : Out(AXI4Read)
    timeout : In(32)
        Cycles without an answer; 0 waits without limit.
    restart : In(1)
    idle : Out(1)
        Nothing is in flight on the bus, or the port has stopped.
    stopped : Out(1)

    Timing
    ------
    With `a` cycles from the AR handshake to the first beat, the first word follows `latency` + a
    cycles after its request was accepted. One client gets min(1, depth / (a + `turnaround` +
    burst_beats)) words a cycle; all together get one word a cycle.
    """

    latency = 7
    turnaround = 8  # cycles from AR to the reuse of a burst's space, without the memory's latency

    def __init__(self, config: Config, clients, *, depth=None, shallow=None):
        if clients < 1:
            raise ValueError(f"at least one client is needed, not {clients}")
        depth = depth or buffer_words(config)
        if depth < 2 * config.burst_beats or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least {2 * config.burst_beats}, "
                             f"two bursts, not {depth}")
        shallow = shallow or {}
        unknown = set(shallow) - set(range(clients))
        if unknown:
            raise ValueError(f"shallow clients must be numbers below {clients}, "
                             f"not {sorted(unknown)}")
        self.config, self.depth, self.shallow = config, depth, shallow
        super().__init__({
            "clients": In(ReadClient(config)).array(clients),
            "bus": Out(AXI4Read(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                id_width=max(1, (clients - 1).bit_length()))),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "stopped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, count = self.bus, len(self.clients)
        burst_beats = self.config.burst_beats
        longest = [min(SHALLOW_BEATS, burst_beats) if number in self.shallow else burst_beats
                   for number in range(count)]
        m.submodules.scheduler = scheduler = BurstScheduler(self.config, longest)
        m.submodules.watchdog = watchdog = Watchdog()
        clients = [
            ReadClientBuffer(self.config, self.shallow.get(number, self.depth), beats)
            for number, beats in enumerate(longest)]

        draining, dropping, empty = Signal(), Signal(), Signal()
        in_flight, not_idle = Signal(range(count * self.depth + 1)), Signal()  # bursts
        requested, answered = Signal(), Signal()
        m.d.comb += [
            requested.eq(bus.arvalid & bus.arready),
            answered.eq(bus.rvalid & bus.rlast),
            bus.rready.eq(1),
            empty.eq(~not_idle & ~bus.arvalid),
            self.idle.eq(empty | self.stopped & ~self.restart),
            dropping.eq(self.restart | draining | self.stopped),
            self.stopped.eq(watchdog.stopped),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            watchdog.waiting.eq(~empty),
            watchdog.progress.eq(requested | bus.rvalid),
        ]
        with m.If(requested ^ answered):
            m.d.sync += [
                in_flight.eq(Mux(answered, in_flight - 1, in_flight + 1)),
                not_idle.eq(~answered | (in_flight != 1)),
            ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)

        # AR: the burst is registered, so that a valid address stays unchanged.
        load, selected = Signal(), scheduler.bursts.p
        reserve = Signal(count)  # one-hot: client of the burst granted in the previous cycle
        m.d.comb += [
            bus.arburst.eq(BURST_INCR),
            bus.arsize.eq(log2(self.config.bus_bytes)),
            load.eq(~bus.arvalid | bus.arready),
            scheduler.bursts.ready.eq(load),  # while dropping, the burst is lost here
            scheduler.drop.eq(self.stopped),
            scheduler.clear.eq(self.restart),
        ]
        m.d.sync += reserve.eq(0)
        with m.If(load):
            m.d.sync += [
                bus.arvalid.eq(scheduler.bursts.valid & ~dropping),
                bus.arid.eq(selected.client),
                bus.araddr.eq(selected.burst.word << log2(self.config.bus_bytes)),
                bus.arlen.eq(selected.burst.len_minus_1),
                reserve.eq(Mux(scheduler.bursts.valid & ~dropping, 1 << selected.client, 0)),
            ]

        # R: a register before the clients' buffers. It is empty when the port stops, as no beat
        # arrived in the previous cycle.
        arrived, arrived_id = Signal(), Signal.like(bus.rid)
        arrived_data, arrived_fault = Signal.like(bus.rdata), Signal(2)
        m.d.sync += [
            arrived.eq(bus.rvalid & ~dropping),
            arrived_id.eq(bus.rid),
            arrived_data.eq(bus.rdata),
            arrived_fault.eq(fault_of(bus.rresp)),
        ]
        for number, client in enumerate(clients):
            m.submodules[f"client_{number}"] = client
            connect(m, requester=flipped(self.clients[number]), buffer=client.client)
            connect(m, client=client.request, scheduler=scheduler.requests[number])
            m.d.comb += [
                client.len_minus_1.eq(scheduler.len_minus_1),
                scheduler.space_for_one[number].eq(client.space_for_one),
                scheduler.space_for_two[number].eq(client.space_for_two),
                scheduler.reserved[number].eq(reserve[number]),
                client.reserve.eq(reserve[number]),
                client.reserve_len_minus_1.eq(bus.arlen),
                client.beats.valid.eq(arrived & (arrived_id == number)),
                client.beats.p.data.eq(arrived_data),
                client.beats.p.fault.eq(arrived_fault),
                client.stopped.eq(self.stopped),
                client.draining.eq(draining | self.restart),
                client.restart.eq(self.restart),
            ]
        return m
