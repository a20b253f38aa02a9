"""The rows that several bag units have computed, to the row ports that write them."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...primitives.entry_arbiter import EntryArbiter
from ...primitives.skid_buffer import SkidBuffer
from ..addressing.port_interleave import row_port
from ..port.payloads import computed_row, source_word
from .payloads import result_word


class ResultDemux(wiring.Component):
    """Send the results of one unit, bag by bag, to the port of the bag's row.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    rows : In(stream(computed_row(config)))
    words : In(stream(source_word(config)))
        From `BagWriteBack`.
    ports : Out(stream(result_word(config))).array(config.row_ports)

    Timing
    ------
    Latency 1 cycle, one word per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "rows": In(stream.Signature(computed_row(config))),
            "words": In(stream.Signature(source_word(config))),
            "ports": Out(stream.Signature(result_word(config))).array(config.row_ports),
        })

    def elaborate(self, platform):
        m = Module()
        config, row, word = self.config, self.rows.p, self.words.p
        shape = data.StructLayout({
            "result": result_word(config), "port": range(config.row_ports)})
        m.submodules.skid = skid = SkidBuffer(shape)
        inside, final, final_q, port, port_q = (
            Signal(), Signal(), Signal(), Signal(range(config.row_ports)),
            Signal(range(config.row_ports)))  # `inside` a bag; its final row, and its port
        m.d.comb += [
            # A row comes with its first word.
            self.rows.ready.eq(skid.i.ready),
            self.words.ready.eq(skid.i.ready),
            skid.i.valid.eq(self.words.valid),
            final.eq(Mux(word.first, row.info.last, final_q)),
            port.eq(Mux(inside, port_q, row_port(config, row.row.destination))),
            skid.i.p.result.row.eq(row),
            skid.i.p.result.word.eq(word),
            skid.i.p.result.end.eq(word.last & final),
            skid.i.p.port.eq(port),
        ]
        with m.If(self.words.valid & self.words.ready):
            m.d.sync += [inside.eq(~skid.i.p.result.end), final_q.eq(final), port_q.eq(port)]
        select = skid.o.p.port
        m.d.comb += skid.o.ready.eq(Cat(out.ready for out in self.ports).bit_select(select, 1))
        for number, out in enumerate(self.ports):
            m.d.comb += [
                out.valid.eq(skid.o.valid & (select == number)),
                out.p.eq(skid.o.p.result),
            ]
        return m


class ResultArbiter(wiring.Component):
    """Merge the results of all units for one port round robin, each bag with all its words.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    units : In(stream(result_word(config))).array(config.bag_units)
    rows : Out(stream(computed_row(config)))
    words : Out(stream(source_word(config)))
        For a `RowPort`. A row's handshake is no later than that of its first word.

    Timing
    ------
    Latency 1 cycle, one word per cycle.
    """

    latency = 1

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "units": In(stream.Signature(result_word(config))).array(config.bag_units),
            "rows": Out(stream.Signature(computed_row(config))),
            "words": Out(stream.Signature(source_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = EntryArbiter(
            result_word(self.config), len(self.units), lambda word: word.end)
        for unit, lane in zip(self.units, arbiter.lanes, strict=True):
            connect(m, flipped(unit), lane)
        out = arbiter.transfers
        m.d.comb += [
            self.rows.valid.eq(out.valid & out.p.word.first & self.words.ready),
            self.rows.p.eq(out.p.row),
            self.words.valid.eq(out.valid & (~out.p.word.first | self.rows.ready)),
            self.words.p.eq(out.p.word),
            out.ready.eq(self.words.ready & (~out.p.word.first | self.rows.ready)),
        ]
        return m
