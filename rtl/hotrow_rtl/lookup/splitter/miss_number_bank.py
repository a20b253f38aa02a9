"""Miss number bank: the numbers of the rows in one bank of the miss table."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import joined, miss_place
from ...primitives.ram import Ram


def number_lane(config: Config) -> data.StructLayout:
    """Fields of a `number_request` for each lane. `before`: rows that lower lanes of the beat add
    to the list of misses."""
    return data.StructLayout({
        "write": 1, "place": miss_place(config), "before": log2(config.lanes)})


def number_shared(config: Config) -> data.StructLayout:
    """Fields of a `number_request` for all lanes. `count`: rows listed by earlier beats."""
    return data.StructLayout({"count": config.slot_word_width})


def number_request(config: Config) -> data.StructLayout:
    """Write `count` + `before` as the number of the entry `place` of the miss table, or read it."""
    return joined(number_lane(config), number_shared(config))


class MissNumberBank(wiring.Component):
    """A memory with one number per entry of the miss table.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    requests : In(stream(number_request(config)))
    answers : Out(stream(config.slot_word_width, always_ready=True))
        One per request, in order: the number of the entry after the request. Undefined for an entry
        that was never written.
    restart : In(1)
        A pulse drops the requests in the pipeline, that of the same cycle included.

    Timing
    ------
    One request a cycle, to any entry; the answer follows `latency` cycles later.
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
        m.submodules.numbers = numbers = Ram(width, 1 << miss_place(self.config))
        read, written = Signal(), Signal(reset_less=True)
        number, number_q = Signal(width), Signal(width, reset_less=True)
        # A number is written in the cycle of its request, so the next request reads it.
        m.d.comb += [
            number.eq(request.count + request.before),
            self.requests.ready.eq(1),
            numbers.write_enable.eq(self.requests.valid & request.write),
            numbers.write_address.eq(request.place),
            numbers.write_data.eq(number),
            numbers.read_address.eq(request.place),
        ]
        m.d.sync += [
            read.eq(self.requests.valid & ~self.restart),
            written.eq(request.write),
            number_q.eq(number),
            self.answers.valid.eq(read & ~self.restart),
            self.answers.p.eq(Mux(written, number_q, numbers.read_data)),
        ]
        return m
