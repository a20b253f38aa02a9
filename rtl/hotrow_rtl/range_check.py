"""Range check: each id against the last row of its table."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .batch_order import unchecked_beat
from .config import ROW_NUMBER_WIDTH, Config
from .layouts import lookup_beat, table, table_update
from .ram import ClearedRam


class RangeCheck(wiring.Component):
    """Look up the table of every lane and refuse the ids that are no row of it.

    Every lane has a copy of what it needs of the table descriptors.

    Parameters
    ----------
    config : Config

    Members
    -------
    table_update : In(table_update(config))
    unchecked : In(stream(unchecked_beat(config)))
    beats : Out(stream(lookup_beat(config)))
        The same lanes; `out_of_range` only without a `fault`, and compared over all 64 bits.
    restart : In(1)
        A pulse drops the beats inside.
    ready : Out(1)
        High once the copies are cleared after reset.

    Timing
    ------
    Latency 3 cycles (read, hold, compare), one beat a cycle.
    """

    latency = 3

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "table_update": In(table_update(config)),
            "unchecked": In(stream.Signature(unchecked_beat(config))),
            "beats": Out(stream.Signature(lookup_beat(config))),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.beats
        kept = data.StructLayout({
            name: table(c)[name].width for name in ("last_row", "parts_log2", "part")})
        reading, holding = (Signal(unchecked_beat(c), name=name) for name in ("reading", "holding"))
        valid = Signal(self.latency)
        advance = Signal()
        copies = [ClearedRam(kept, c.tables, reads_old=True) for _ in range(c.lanes)]
        m.d.comb += [
            out.valid.eq(valid[-1]),
            advance.eq(~out.valid | out.ready),
            self.unchecked.ready.eq(advance),
            self.ready.eq(Cat(copy.ready for copy in copies).all()),
        ]
        with m.If(advance):
            m.d.sync += [
                valid.eq(Cat(self.unchecked.valid, valid[:-1])),
                reading.eq(self.unchecked.p),
                holding.eq(reading),
                out.p.last.eq(holding.last),
            ]
        with m.If(self.restart):
            m.d.sync += valid.eq(0)

        for number, copy in enumerate(copies):
            m.submodules[f"tables{number}"] = copy
            held, lane, entry = holding.lanes[number], out.p.lanes[number], Signal(kept)
            m.d.comb += [
                copy.write_enable.eq(self.table_update.enable),
                copy.write_address.eq(self.table_update.index),
                [copy.write_data[name].eq(self.table_update.entry[name]) for name, _ in kept],
                copy.read_enable.eq(advance),
                copy.read_address.eq(self.unchecked.p.lanes[number].table),
            ]
            with m.If(advance):
                m.d.sync += [
                    entry.eq(copy.read_data),
                    lane.present.eq(held.present),
                    lane.key.row.eq(held.id[:ROW_NUMBER_WIDTH]),
                    lane.key.table.eq(held.table),
                    lane.sample.eq(held.sample),
                    lane.parts_log2.eq(entry.parts_log2),
                    lane.part.eq(entry.part),
                    lane.out_of_range.eq((held.id > entry.last_row) & (held.fault == 0)),
                    lane.fault.eq(held.fault),
                ]
        return m
