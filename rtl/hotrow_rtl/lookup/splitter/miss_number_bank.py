"""Number bank: the numbers of the rows in one bank of the miss table."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import joined, miss_place
from ...primitives.ram import Ram


def number_lane(config: Config) -> data.StructLayout:
    """What each lane says in a `number_request`; `before`: rows listed in lanes before it."""
    return data.StructLayout({
        "write": 1, "place": miss_place(config), "before": log2(config.lanes)})


def number_shared(config: Config) -> data.StructLayout:
    """What all lanes of a beat have in common: `count` rows were listed before it."""
    return data.StructLayout({"count": config.slot_word_width})


def number_request(config: Config) -> data.StructLayout:
    """The number of a place of the miss table: is `count` + `before` from here on, if `write`, or
    what is it?"""
    return joined(number_lane(config), number_shared(config))


class MissNumberBank(wiring.Component):
    """One number per place.

    Parameters
    ----------
    config : Config

    Members
    -------
    requests : In(stream(number_request(config)))
    answers : Out(stream(config.slot_word_width, always_ready=True))
        One per request, in order: the place's number behind the request. Undefined of a place that
        was never written.
    restart : In(1)
        A pulse forgets the requests in flight, one that comes in the same cycle included.

    Timing
    ------
    One request a cycle, of the same place or not; the answer `latency` cycles after it.
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
        # A write lands with its request, so the next one reads it.
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
