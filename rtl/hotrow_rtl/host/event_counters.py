"""Event counters, with which the two queues and the host synchronise."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..primitives.ram import ClearedRam


class EventPort(wiring.Signature):
    """A client's view of the event counters.

    Attributes
    ----------
    request : Out(stream)
        Read counter `event`, or set it to `value` if `write`.
    reply : In(stream)
        Once per request, in order: the counter's value before the request.
    """

    def __init__(self, config: Config):
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "event": log2(config.events), "write": 1, "value": 32}))),
            "reply": In(stream.Signature(32)),
        })


class EventCounters(wiring.Component):
    """`config.events` counters of 32 bits, zero after reset, for one client at a time.

    The counters are one small memory, and a WAIT polls it, which costs far less than a comparator
    per queue and counter.

    Parameters
    ----------
    config : Config
    clients : int
        At least 2.

    Attributes
    ----------
    clients : In(EventPort(config)).array(clients)
    restart : In(1)
        Drops the request in progress; the counters keep their values.
    ready : Out(1)
        Low while the counters are cleared after reset; requests then wait.

    Timing
    ------
    One request every 4 cycles, clients in round-robin order. Clearing takes `events` cycles.
    """

    def __init__(self, config: Config, clients: int):
        if clients < 2:
            raise ValueError(f"event counters need at least 2 clients, not {clients}")
        self.config, self.client_count = config, clients
        super().__init__({
            "clients": In(EventPort(config)).array(clients),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.values = values = ClearedRam(32, self.config.events, reads_old=True)
        owner = Signal(range(self.client_count))
        request = Signal(self.clients[0].request.p.shape(), reset_less=True)
        m.d.comb += [
            self.ready.eq(values.ready),
            values.read_address.eq(request.event),
            values.write_address.eq(request.event),
            values.write_data.eq(request.value),
        ]

        def arbitrate(last):
            """Grant the first request after client `last`; later assignments have priority."""
            for step in reversed(range(1, self.client_count + 1)):
                number = (last + step) % self.client_count
                with m.If(self.clients[number].request.valid):
                    m.d.sync += owner.eq(number)
                    m.next = "ACCEPT"

        def cases():
            """Each client, inside the case in which it is the owner."""
            for number, client in enumerate(self.clients):
                with m.Case(number):
                    yield client

        with m.FSM():
            with m.State("ARBITRATE"), m.If(values.ready & ~self.restart), m.Switch(owner):
                for last in range(self.client_count):
                    with m.Case(last):
                        arbitrate(last)
            with m.State("ACCEPT"):  # Timing: a register, as the clients are far from the memory
                m.next = "ACCESS"
                with m.Switch(owner):
                    for client in cases():
                        m.d.comb += client.request.ready.eq(1)
                        m.d.sync += request.eq(client.request.p)
                with m.If(self.restart):
                    m.next = "ARBITRATE"
            with m.State("ACCESS"):
                m.d.comb += values.write_enable.eq(request.write & ~self.restart)
                m.next = "REPLY"
                with m.If(self.restart):
                    m.next = "ARBITRATE"
            with m.State("REPLY"):
                m.d.comb += values.read_enable.eq(0)
                with m.Switch(owner):
                    for client in cases():
                        m.d.comb += client.reply.valid.eq(1)
                        with m.If(client.reply.ready):
                            m.next = "ARBITRATE"
                with m.If(self.restart):
                    m.next = "ARBITRATE"
        for client in self.clients:
            m.d.comb += client.reply.p.eq(values.read_data)
        return m
