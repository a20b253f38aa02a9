"""DmaWritePort, the result port: an AXI4 write master for the results of several engines."""

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

GRANTED_BURSTS = 4  # bursts granted whose beats wait for the W channel, at most


class DmaWritePort(wiring.Component):
    """Share one AXI4 write master among clients that write sequences of words.

    A client's number is its AXI id. A burst is sent once all of its words are in the buffer, so
    the W channel never waits for a client.

    Without a handshake for `timeout` cycles the port stops: every sequence that is not answered,
    and every later one, ends with FAULT_TIMEOUT, until `restart`. `restart` also drops the clients'
    sequences; their writers are reset with it. After either the port still sends the beats of each
    address sent, without strobes. After a restart it accepts requests once nothing is in flight, or
    once the time is over again: then it has stopped again.

    Parameters
    ----------
    config : Config
    clients : int
    depth : int, optional
        Words of buffer per client, a power of two, at least two bursts; default four bursts.
    shallow : collection of int, optional
        Numbers of clients with short sequences, whose buffers hold one burst.
    striped : collection of int, optional
        Numbers of clients whose sequences skip every second block, see `WriteClientBuffer`.

    Attributes
    ----------
    clients : In(WriteClient(config)).array(clients)
    bus : Out(AXI4Write)
    bypass_striping : In(1)
        Port with striped clients on a card with a planner: see `WriteClientBuffer`.
    timeout : In(32)
        Cycles without progress; 0 waits without limit.
    restart : In(1)
    idle : Out(1)
        Nothing is in flight on the bus, or the port has stopped.
    stopped : Out(1)

    Timing
    ------
    One word a cycle over all clients. A burst's first beat is valid `latency` cycles after its
    last word was accepted, if the bus is idle.
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
            **({"bypass_striping": In(1)} if striped and config.planner else {}),
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
        in_flight, not_idle = Signal(range(OUTSTANDING_BURSTS + 1)), Signal()  # bursts
        granted, progress, answered = Signal(), Signal(), Signal()
        m.d.comb += [
            answered.eq(bus.bvalid),
            bus.bready.eq(1),
            progress.eq(bus.awvalid & bus.awready | bus.wvalid & bus.wready | answered),
            self.idle.eq(~not_idle | self.stopped & ~self.restart),
            discarding.eq(self.stopped | draining),
            self.stopped.eq(watchdog.stopped),
            watchdog.timeout.eq(self.timeout),
            watchdog.restart.eq(self.restart),
            watchdog.waiting.eq(not_idle),
            watchdog.progress.eq(progress),
        ]
        with m.If(granted ^ answered):
            m.d.sync += [
                in_flight.eq(Mux(answered, in_flight - 1, in_flight + 1)),
                not_idle.eq(~answered | (in_flight != 1)),
            ]
        with m.If(self.restart):
            m.d.sync += draining.eq(1)
        with m.Elif(self.idle):
            m.d.sync += draining.eq(0)

        # AW: the arbiter selects a client, and its burst is granted in the next cycle. The burst
        # enters the address register and the queue that orders the W channel.
        m.submodules.granted_bursts = granted_bursts = RamFifo(data.StructLayout({
            "id": len(bus.awid), "len_minus_1": log2(config.burst_beats)}), GRANTED_BURSTS)
        current, selected, aw_load = granted_bursts.o.p, Signal(len(clients)), Signal()
        selected_burst = Signal(burst(config))
        pending = Cat(client.bursts.valid for client in clients)
        below_limit = Signal()  # a cycle late, hence one burst below the limit
        m.d.sync += below_limit.eq(in_flight < OUTSTANDING_BURSTS - 1)
        m.d.comb += [
            arbiter.requests.eq(pending & ~selected),
            arbiter.accept.eq(~selected.any() | granted),
            aw_load.eq(~bus.awvalid | bus.awready),
            granted.eq(selected.any() & aw_load & below_limit & granted_bursts.i.ready
                       & ~discarding),
            bus.awburst.eq(BURST_INCR),
            bus.awsize.eq(log2(config.bus_bytes)),
            granted_bursts.i.valid.eq(granted),
            granted_bursts.i.p.len_minus_1.eq(selected_burst.len_minus_1),
        ]
        for number, client in enumerate(clients):
            m.d.comb += client.bursts.ready.eq(granted & selected[number])
            with m.If(selected[number]):
                m.d.comb += [selected_burst.eq(client.bursts.p), granted_bursts.i.p.id.eq(number)]
        with m.If(arbiter.accept):
            m.d.sync += selected.eq(arbiter.grant)
        with m.If(self.restart):
            m.d.sync += selected.eq(0)
        with m.If(aw_load):
            m.d.sync += [
                bus.awvalid.eq(granted),
                bus.awid.eq(granted_bursts.i.p.id),
                bus.awaddr.eq(selected_burst.word << log2(config.bus_bytes)),
                bus.awlen.eq(selected_burst.len_minus_1),
            ]

        # W: beats of the oldest granted burst, all of which are in the buffer. W does not wait for
        # AW: a memory may accept the address only after it sees the data.
        sent = Signal(range(config.burst_beats))
        w_load, load, final = Signal(), Signal(), Signal()
        m.d.comb += [
            w_load.eq(~bus.wvalid | bus.wready),
            load.eq(granted_bursts.o.valid & w_load),
            final.eq(sent == current.len_minus_1),
            granted_bursts.o.ready.eq(w_load & final),
        ]
        with m.If(w_load):
            m.d.sync += [bus.wvalid.eq(granted_bursts.o.valid), bus.wlast.eq(final),
                         bus.wstrb.eq(0)]
        with m.If(load):
            m.d.sync += sent.eq(Mux(final, 0, sent + 1))
        for number, client in enumerate(clients):
            is_current = current.id == number
            m.d.comb += client.beats.ready.eq(load & is_current)
            with m.If(w_load & is_current):
                m.d.sync += bus.wdata.eq(client.beats.p.data)
                with m.If(~discarding):
                    m.d.sync += bus.wstrb.eq(client.beats.p.strobe)

        # B: a register before the clients. It is empty when the port stops, as no answer arrived in
        # the previous cycle.
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
                m.d.comb += client.bypass_striping.eq(self.bypass_striping)
        return m
