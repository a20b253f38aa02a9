"""The AXI4 read master that fetches rings, batches and lists for all their readers."""

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

SHALLOW_BEATS = 8  # of the longest burst of a client that reads little: a command has no more
BLOCK_RAM_ROWS = 512  # of the widest block RAM on ECP5 and UltraScale+: fewer rows save nothing


class DmaReadPort(wiring.Component):
    """Share one AXI4 read master among clients that read lists.

    A client's number is its AXI id, so that the answers to unlike clients may come in any order.
    A burst is requested only when its words have room in the client's own buffer: a client that
    takes no words delays nobody, and `rready` is always high.

    When the memory does not answer for `timeout` cycles the port stops: every word that has not
    come, and every word of later requests, is answered with FAULT_TIMEOUT, and what the memory
    still sends is dropped, until `restart`. `restart` also drops the clients' requests and words,
    whose readers are reset along with it; requests are then held until nothing is in flight.

    Parameters
    ----------
    config : Config
    clients : int
    depth : int, optional
        Words of buffer per client, a power of two, at least two bursts.
    shallow : dict of int to int, optional
        Words of buffer of clients that read little at a time, by number: their bursts have at most
        8 beats, so that they need less of it.

    Members
    -------
    clients : In(ReadClient(config)).array(clients)
    bus : Out(AXI4Read)
    timeout : In(32)
        Cycles without an answer; 0 waits for ever.
    restart : In(1)
    idle : Out(1)
        Nothing is in flight on the bus.
    stopped : Out(1)

    Timing
    ------
    With `a` cycles from the AR handshake to the first beat, the first word is there `latency` + a
    cycles after its request was taken. A client alone gets min(1, depth / (a + `turnaround` +
    burst_beats)) words a cycle; all together get one word a cycle.
    """

    latency = 7
    turnaround = 9  # from a burst's AR to the reuse of its words' room, the memory's part left out

    def __init__(self, config: Config, clients, *, depth=None, shallow=None):
        if clients < 1:
            raise ValueError(f"at least one client is needed, not {clients}")
        depth = depth or max(BLOCK_RAM_ROWS, 4 * config.burst_beats)
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
        most = self.config.burst_beats
        longest = [min(SHALLOW_BEATS, most) if number in self.shallow else most
                   for number in range(count)]
        m.submodules.turns = turns = BurstScheduler(self.config, longest)
        m.submodules.watchdog = watchdog = Watchdog()
        clients = [
            ReadClientBuffer(self.config, self.shallow.get(number, self.depth), beats)
            for number, beats in enumerate(longest)]

        draining, dropping = Signal(), Signal()
        in_flight, some = Signal(range(count * self.depth + 1)), Signal()  # bursts
        requested, answered = Signal(), Signal()
        m.d.comb += [
            requested.eq(bus.arvalid & bus.arready),
            answered.eq(bus.rvalid & bus.rlast),
            bus.rready.eq(1),
            self.idle.eq(~some & ~bus.arvalid),
            dropping.eq(self.restart | draining | self.stopped),
            self.stopped.eq(watchdog.stopped),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            watchdog.waiting.eq(~self.idle & ~draining),
            watchdog.progress.eq(requested | bus.rvalid),
        ]
        with m.If(requested ^ answered):
            m.d.sync += [
                in_flight.eq(Mux(answered, in_flight - 1, in_flight + 1)),
                some.eq(~answered | (in_flight != 1)),
            ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)

        # AR: a granted burst waits in registers, so that it holds whatever happens behind it.
        free, chosen = Signal(), turns.bursts.p
        reserving = Signal(count)  # whose burst has been granted in the cycle before
        m.d.comb += [
            bus.arburst.eq(BURST_INCR),
            bus.arsize.eq(log2(self.config.bus_bytes)),
            free.eq(~bus.arvalid | bus.arready),
            turns.bursts.ready.eq(free),  # and what is dropped goes nowhere
            turns.drop.eq(self.stopped),
            turns.clear.eq(self.restart),
        ]
        m.d.sync += reserving.eq(0)
        with m.If(free):
            m.d.sync += [
                bus.arvalid.eq(turns.bursts.valid & ~dropping),
                bus.arid.eq(chosen.client),
                bus.araddr.eq(chosen.burst.word << log2(self.config.bus_bytes)),
                bus.arlen.eq(chosen.burst.less),
                reserving.eq(Mux(turns.bursts.valid & ~dropping, 1 << chosen.client, 0)),
            ]

        # R: one register on the way to the clients' buffers. It is empty when the port stops, as
        # no beat came in the cycle before.
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
            connect(m, client=client.request, turns=turns.requests[number])
            m.d.comb += [
                client.less.eq(turns.less),
                turns.room[number].eq(client.room),
                turns.rooms[number].eq(client.rooms),
                turns.counted[number].eq(reserving[number]),
                client.reserve.eq(reserving[number]),
                client.reserved.eq(bus.arlen),
                client.beats.valid.eq(arrived & (arrived_id == number)),
                client.beats.p.data.eq(arrived_data),
                client.beats.p.fault.eq(arrived_fault),
                client.stopped.eq(self.stopped),
                client.draining.eq(draining | self.restart),
                client.restart.eq(self.restart),
            ]
        return m
