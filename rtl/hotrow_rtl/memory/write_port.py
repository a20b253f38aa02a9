"""An AXI4 write master that carries the results of several engines to memory."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, log2
from ..interfaces.records import WriteClient
from ..primitives.fifo import RamFifo
from ..primitives.round_robin_arbiter import RoundRobinArbiter
from .axi import BURST_INCR, AXI4Write
from .bursts import burst, fault_of
from .watchdog import Watchdog
from .write_client import OUTSTANDING_BURSTS, WriteClientBuffer

GRANTED_BURSTS = 4  # bursts whose address has been offered and whose beats wait for their turn


class DmaWritePort(wiring.Component):
    """Share one AXI4 write master among clients that write sequences of words.

    A client's number is its AXI id. A burst goes out when all of its words are there, so the W
    channel never waits for a client.

    When the memory moves nothing for `timeout` cycles the port stops: every sequence that is not
    answered, and every later one, ends with FAULT_TIMEOUT, until `restart`. `restart` also drops
    the clients' sequences, whose writers are reset along with it. Beats that were promised to the
    memory by an address are still delivered after either, without strobes; requests are held
    after a restart until nothing is in flight.

    Parameters
    ----------
    config : Config
    clients : int
    depth : int, optional
        Words of buffer per client, a power of two, at least two bursts; default four bursts.
    shallow : collection of int, optional
        Numbers of clients that write little at a time: their buffers hold one burst.
    striped : collection of int, optional
        Numbers of clients whose sequences skip every second block, see `WriteClientBuffer`.

    Members
    -------
    clients : In(WriteClient(config)).array(clients)
    bus : Out(AXI4Write)
    whole : In(1)
        Of a port with striped clients, on a card with a planner: see `WriteClientBuffer`.
    timeout : In(32)
        Cycles without progress; 0 waits for ever.
    restart : In(1)
    idle : Out(1)
        Nothing is in flight on the bus.
    stopped : Out(1)

    Timing
    ------
    One word a cycle over all clients. A burst's first beat is valid `latency` cycles after its
    last word was taken, if the bus is free.
    """

    latency = 7

    def __init__(self, config: Config, clients, *, depth=None, shallow=(), striped=()):
        if clients < 1:
            raise ValueError(f"at least one client is needed, not {clients}")
        depth = depth or 4 * config.burst_beats
        if depth < 2 * config.burst_beats or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least {2 * config.burst_beats}, "
                             f"two bursts, not {depth}")
        for name, numbers in (("shallow", shallow), ("striped", striped)):
            unknown = set(numbers) - set(range(clients))
            if unknown:
                raise ValueError(f"{name} clients must be numbers below {clients}, "
                                 f"not {sorted(unknown)}")
        self.config, self.depth = config, depth
        self.shallow, self.striped = shallow, striped
        super().__init__({
            "clients": In(WriteClient(config)).array(clients),
            "bus": Out(AXI4Write(address_width=config.address_width, bus_bytes=config.bus_bytes,
                                 id_width=max(1, (clients - 1).bit_length()))),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "stopped": Out(1),
            **({"whole": In(1)} if striped and config.planner else {}),
        })

    def elaborate(self, platform):
        m = Module()
        bus, config = self.bus, self.config
        clients = [
            WriteClientBuffer(config, config.burst_beats if number in self.shallow else self.depth,
                         striped=number in self.striped)
            for number, _ in enumerate(self.clients)]
        m.submodules.arbiter = arbiter = RoundRobinArbiter(len(clients))
        m.submodules.watchdog = watchdog = Watchdog()

        draining, discarding = Signal(), Signal()
        in_flight, some = Signal(range(OUTSTANDING_BURSTS + 1)), Signal()
        granted, moved, answered = Signal(), Signal(), Signal()
        m.d.comb += [
            answered.eq(bus.bvalid),
            bus.bready.eq(1),
            moved.eq(bus.awvalid & bus.awready | bus.wvalid & bus.wready | answered),
            self.idle.eq(~some),
            discarding.eq(self.stopped | draining),
            self.stopped.eq(watchdog.stopped),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            watchdog.waiting.eq(~self.idle & ~draining),
            watchdog.progress.eq(moved),
        ]
        with m.If(granted ^ answered):
            m.d.sync += [
                in_flight.eq(Mux(answered, in_flight - 1, in_flight + 1)),
                some.eq(~answered | (in_flight != 1)),
            ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)

        # AW: a client is chosen, its burst granted in the next cycle. It then waits in registers,
        # and in the queue that orders the W channel.
        m.submodules.turns = turns = RamFifo(data.StructLayout({
            "id": len(bus.awid), "less": log2(config.burst_beats)}), GRANTED_BURSTS)
        turn, chosen, free = turns.o.p, Signal(len(clients)), Signal()
        coming = Signal(burst(config))
        offered = Cat(client.bursts.valid for client in clients)
        below = Signal()  # told a cycle late, in which another may have been granted
        m.d.sync += below.eq(in_flight < OUTSTANDING_BURSTS - 1)
        m.d.comb += [
            arbiter.requests.eq(offered & ~chosen),
            arbiter.accept.eq(~chosen.any() | granted),
            free.eq(~bus.awvalid | bus.awready),
            granted.eq(chosen.any() & free & below & turns.i.ready & ~discarding),
            bus.awburst.eq(BURST_INCR),
            bus.awsize.eq(log2(config.bus_bytes)),
            turns.i.valid.eq(granted),
            turns.i.p.less.eq(coming.less),
        ]
        for number, client in enumerate(clients):
            m.d.comb += client.bursts.ready.eq(granted & chosen[number])
            with m.If(chosen[number]):
                m.d.comb += [coming.eq(client.bursts.p), turns.i.p.id.eq(number)]
        with m.If(arbiter.accept):
            m.d.sync += chosen.eq(arbiter.grant)
        with m.If(self.restart):
            m.d.sync += chosen.eq(0)
        with m.If(free):
            m.d.sync += [
                bus.awvalid.eq(granted),
                bus.awid.eq(turns.i.p.id),
                bus.awaddr.eq(coming.word << log2(config.bus_bytes)),
                bus.awlen.eq(coming.less),
            ]

        # W: beats of the burst whose turn it is; they have all been in their buffer for long. It
        # does not wait for AW: the memory may take the address only once it sees the data.
        sent = Signal(range(config.burst_beats))
        sends, load, final = Signal(), Signal(), Signal()
        m.d.comb += [
            sends.eq(~bus.wvalid | bus.wready),
            load.eq(turns.o.valid & sends),
            final.eq(sent == turn.less),
            turns.o.ready.eq(sends & final),
        ]
        with m.If(sends):
            m.d.sync += [bus.wvalid.eq(turns.o.valid), bus.wlast.eq(final), bus.wstrb.eq(0)]
        with m.If(load):
            m.d.sync += sent.eq(Mux(final, 0, sent + 1))
        for number, client in enumerate(clients):
            its_turn = turn.id == number
            m.d.comb += client.beats.ready.eq(load & its_turn)
            with m.If(sends & its_turn):
                m.d.sync += bus.wdata.eq(client.beats.p.data)
                with m.If(~discarding):
                    m.d.sync += bus.wstrb.eq(client.beats.p.strobe)

        # B: one register on the way to the clients. It is empty when the port stops, as no answer
        # came in the cycle before.
        arrived, arrived_id, arrived_fault = Signal(), Signal.like(bus.bid), Signal(2)
        m.d.sync += [
            arrived.eq(answered & ~discarding & ~self.restart),
            arrived_id.eq(bus.bid),
            arrived_fault.eq(fault_of(bus.bresp)),
        ]
        for number, client in enumerate(clients):
            m.submodules[f"client_{number}"] = client
            connect(m, writer=flipped(self.clients[number]), buffer=client.client)
            m.d.comb += [
                client.answers.valid.eq(arrived & (arrived_id == number)),
                client.answers.p.fault.eq(arrived_fault),
                client.stopped.eq(self.stopped),
                client.draining.eq(draining),
                client.restart.eq(self.restart),
            ]
            if number in self.striped and config.planner:
                m.d.comb += client.whole.eq(self.whole)
        return m
