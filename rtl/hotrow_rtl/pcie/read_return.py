"""ReadReturn: the data of reads to their masters, in the order of the requests."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..memory.axi import DECERR, OKAY, SLVERR
from ..primitives.fifo import RamFifo
from .layouts import LARGEST, TAG_BITS, TAGS, Cause
from .read_issuer import tagged_chunk


class ReadReturn(wiring.Component):
    """Return each chunk once all of its data has come.

    A chunk without data is answered with DECERR if nothing is at its address or no answer came,
    else with SLVERR. A master that does not accept its data delays the others.

    Parameters
    ----------
    buses : sequence of AXI4Read

    Attributes
    ----------
    order : In(stream(tagged_chunk(buses)))
        Always has space for as many chunks as there are tags.
    done, late : In(TAGS), causes
        See `TagPool` and `CompletionBuffer`.
    released : Out(1), released_tag : Out(TAG_BITS)
    read_enable, read_address : Out, read_data : In
        Of the `CompletionBuffer`.
    bus_0, ... : In(AXI4Read)
        Only the data channel is used.

    Timing
    ------
    The first word is valid 1 cycle after `done`, if the chunk is the oldest; one word a cycle.
    """

    def __init__(self, buses):
        self.buses = list(buses)
        self.words = LARGEST // self.buses[0].bus_bytes
        super().__init__({
            "order": In(stream.Signature(tagged_chunk(self.buses))),
            "done": In(TAGS),
            "late": In(TAGS),
            "causes": In(data.ArrayLayout(Cause, TAGS)),
            "released": Out(1),
            "released_tag": Out(TAG_BITS),
            "read_enable": Out(1),
            "read_address": Out(range(TAGS * self.words)),
            "read_data": In(8 * self.buses[0].bus_bytes),
            **{f"bus_{number}": In(each) for number, each in enumerate(self.buses)},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.order = order = RamFifo(tagged_chunk(self.buses), TAGS)
        connect(m, issuer=flipped(self.order), fifo=order.i)
        tag, chunk = order.o.p.tag, order.o.p.chunk
        word, final, cause = Signal(range(self.words)), Signal(), Signal(Cause)
        step, moves, response = Signal(), Signal(), Signal(2)
        m.d.comb += [
            final.eq(word == chunk.len_minus_1),
            moves.eq(order.o.valid & self.done.bit_select(tag, 1) & step),
            order.o.ready.eq(moves & final),
            self.released.eq(moves & final),
            self.released_tag.eq(tag),
            self.read_enable.eq(step),
            self.read_address.eq(tag * self.words + word),
            cause.eq(Mux(self.late.bit_select(tag, 1), Cause.TIMEOUT,
                         Value.cast(self.causes).word_select(tag, len(cause)))),
            response.eq(Mux(cause == Cause.NONE, OKAY, Mux(
                (cause == Cause.UNSUPPORTED) | (cause == Cause.TIMEOUT), DECERR, SLVERR))),
        ]
        with m.If(moves):
            m.d.sync += word.eq(Mux(final, 0, word + 1))
        valid, owner = Signal(), Signal.like(chunk.master)
        axi_id, last, shown = Signal.like(chunk.id), Signal(), Signal(2)
        ready = Signal()
        m.d.comb += step.eq(~valid | ready)
        with m.If(step):
            m.d.sync += [valid.eq(moves), owner.eq(chunk.master), axi_id.eq(chunk.id),
                         last.eq(final & chunk.last), shown.eq(response)]
        for number in range(len(self.buses)):
            port = getattr(self, f"bus_{number}")
            m.d.comb += [
                port.rvalid.eq(valid & (owner == number)),
                port.rid.eq(axi_id),
                port.rdata.eq(self.read_data),
                port.rresp.eq(shown),
                port.rlast.eq(last),
            ]
            with m.If(owner == number):
                m.d.comb += ready.eq(port.rready)
        return m
