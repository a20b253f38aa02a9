"""Event counters: how the two queues and the host order work across each other."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..primitives.ram import ClearedRam


class EventPort(wiring.Signature):
    """A client's view of the event counters.

    Members
    -------
    request : Out(stream)
        Read counter `event`, or set it to `value` when `write`.
    reply : In(stream)
        Once per request, in order: the counter's value before it.
    """

    def __init__(self, config: Config):
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "event": log2(config.events), "write": 1, "value": 32}))),
            "reply": In(stream.Signature(32)),
        })


class Events(wiring.Component):
    """`config.events` counters of 32 bits, zero after reset, served to one client at a time.

    They live in one small memory: a WAIT asks again until its value is reached, which costs far
    less than a comparator per queue and counter.

    Parameters
    ----------
    config : Config
    clients : int
        At least 2.

    Members
    -------
    clients : In(EventPort(config)).array(clients)
    restart : In(1)
        Drops the request in progress. The counters keep their values.
    ready : Out(1)
        Low while the counters are cleared after reset; requests then wait.

    Timing
    ------
    One request every 4 cycles, clients in turn. Clearing takes `events` cycles.
    """

    def __init__(self, config: Config, clients: int):
        if clients < 2:
            raise ValueError(f"events are shared by at least 2 clients, not {clients}")
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
        wanted = Signal(self.clients[0].request.p.shape(), reset_less=True)
        m.d.comb += [
            self.ready.eq(values.ready),
            values.read_address.eq(wanted.event),
            values.write_address.eq(wanted.event),
            values.write_data.eq(wanted.value),
        ]

        def choose_after(turn):
            """Grant the first client behind `turn` that asks: the nearest is written last."""
            for step in reversed(range(1, self.client_count + 1)):
                number = (turn + step) % self.client_count
                with m.If(self.clients[number].request.valid):
                    m.d.sync += owner.eq(number)
                    m.next = "TAKE"

        def of_owner():
            """The granted client; a `with` block of hardware for each."""
            for number, client in enumerate(self.clients):
                with m.Case(number):
                    yield client

        with m.FSM():
            with m.State("CHOOSE"):
                with m.If(values.ready & ~self.restart):
                    with m.Switch(owner):
                        for turn in range(self.client_count):
                            with m.Case(turn):
                                choose_after(turn)
            with m.State("TAKE"):  # the clients are far from the memory
                m.next = "ACCESS"
                with m.Switch(owner):
                    for client in of_owner():
                        m.d.comb += client.request.ready.eq(1)
                        m.d.sync += wanted.eq(client.request.p)
                with m.If(self.restart):
                    m.next = "CHOOSE"
            with m.State("ACCESS"):
                m.d.comb += values.write_enable.eq(wanted.write & ~self.restart)
                m.next = "REPLY"
                with m.If(self.restart):
                    m.next = "CHOOSE"
            with m.State("REPLY"):
                m.d.comb += values.read_enable.eq(0)
                with m.Switch(owner):
                    for client in of_owner():
                        m.d.comb += client.reply.valid.eq(1)
                        with m.If(client.reply.ready):
                            m.next = "CHOOSE"
                with m.If(self.restart):
                    m.next = "CHOOSE"
        for client in self.clients:
            m.d.comb += client.reply.p.eq(values.read_data)
        return m
