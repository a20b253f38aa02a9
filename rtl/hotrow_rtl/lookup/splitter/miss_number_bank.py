"""Miss number bank: the list positions of the rows in one bank of the miss table."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import joined, miss_place
from ...primitives.ram import Ram


def number_lane(config: Config) -> data.StructLayout:
    """The part of a `number_request` that each lane sends; `before`: rows listed in lower lanes."""
    return data.StructLayout({
        "write": 1, "place": miss_place(config), "before": log2(config.lanes)})


def number_shared(config: Config) -> data.StructLayout:
    """The part that all lanes of a beat share: `count` rows were listed before the beat."""
    return data.StructLayout({"count": config.slot_word_width})


def number_request(config: Config) -> data.StructLayout:
    """With `write`, store `count` + `before` as the number of a place of the miss table; otherwise
    read the number of the place."""
    return joined(number_lane(config), number_shared(config))


class MissNumberBank(wiring.Component):
    """One number per place.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    requests : In(stream(number_request(config)))
    answers : Out(stream(config.slot_word_width, always_ready=True))
        One per request, in order: the number of the place after the request. Undefined if the place
        was never written.
    restart : In(1)
        A pulse drops the requests in flight, including one in the same cycle.

    Timing
    ------
    One request a cycle, also for one place repeatedly; the answer `latency` cycles later.
    """

    latency = 2  # read and hold

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "requests": In(stream.Signature(number_request(config))),
            "answers": Out(stream.Signature(config.slot_word_width, always_ready=True)),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        request, width = self.requests.p, self.config.slot_word_width
        m.submodules.rows = rows = Ram(width, 1 << miss_place(self.config))
        read, written = Signal(), Signal(reset_less=True)
        wanted, number = Signal(width), Signal(width, reset_less=True)
        # The write occurs in the cycle of its request, so the next request reads it.
        m.d.comb += [
            wanted.eq(request.count + request.before),
            self.requests.ready.eq(1),
            rows.write_enable.eq(self.requests.valid & request.write),
            rows.write_address.eq(request.place),
            rows.write_data.eq(wanted),
            rows.read_address.eq(request.place),
        ]
        m.d.sync += [
            read.eq(self.requests.valid & ~self.restart),
            written.eq(request.write),
            number.eq(wanted),
            self.answers.valid.eq(read & ~self.restart),
            self.answers.p.eq(Mux(written, number, rows.read_data)),
        ]
        return m
