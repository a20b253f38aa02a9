"""Range check: compare each id with the last row of its table."""

from amaranth import Cat, Const, Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import lookup_beat, table_update
from ...interfaces.table_bounds import extent_of, table_extent
from ...primitives.ram import Ram
from ...primitives.skid_buffer import SkidBuffer
from .batch_descriptor import unchecked_beat


class RangeCheck(wiring.Component):
    """Look up the table of every lane and mark the ids that exceed its last row.

    Every lane has a copy of the fields of the table descriptors that it reads.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    table_update : In(table_update(config))
    unchecked : In(stream(unchecked_beat(config)))
        `ready` is a register.
    beats : Out(stream(lookup_beat(config)))
        The same lanes. `out_of_range` compares all 64 bits, and is low with a `fault`.
    restart : In(1)
        A pulse drops the beats inside.
    ready : Out(1)
        High once the copies are cleared after reset.

    Timing
    ------
    Latency 3 cycles (read, hold, compare), one beat a cycle.
    """

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
        extent = table_extent(c)
        reading = Signal(unchecked_beat(c), reset_less=True)
        m.submodules.exit = exit_ = ResetInserter(self.restart)(SkidBuffer(lookup_beat(c)))
        compared = exit_.i.p
        # The row of an id, and whether any bit above the row is set.
        holding = [Signal(data.StructLayout({
            "present": 1, "row": c.row_width, "beyond": 1, "table": c.table_width,
            "sample": lane.sample.shape().width, "fault": lane.fault.shape().width,
        }), name=f"holding{number}", reset_less=True) for number, lane in enumerate(reading.lanes)]
        last = Signal(reset_less=True)
        valid = Signal(2)
        ready = Signal()
        copies = [Ram(extent, c.tables, reads_old=True) for _ in range(c.lanes)]
        cleared = Signal(range(c.tables))
        write, entry_written = Signal(), Signal(extent)
        write_at = Signal.like(cleared)
        connect(m, exit_.o, flipped(out))
        m.d.comb += [
            exit_.i.valid.eq(valid[-1]),
            compared.last.eq(last),
            ready.eq(exit_.i.ready),
            self.unchecked.ready.eq(ready),
            write.eq(self.table_update.enable),
            write_at.eq(self.table_update.index),
            [entry_written[name].eq(value)
             for name, value in extent_of(c, self.table_update.entry).items()],
        ]
        with m.If(~self.ready):
            m.d.comb += [write.eq(1), write_at.eq(cleared), entry_written.eq(0)]
            m.d.sync += [cleared.eq(cleared + 1), self.ready.eq(cleared == c.tables - 1)]
        with m.If(ready):
            m.d.sync += [
                valid.eq(Cat(self.unchecked.valid, valid[:-1])),
                reading.eq(self.unchecked.p),
                last.eq(reading.last),
            ]
        with m.If(self.restart):
            m.d.sync += valid.eq(0)

        wide_lanes = max(1, c.lanes // 2)  # the upper ones have 32-bit ids
        for number, copy in enumerate(copies):
            m.submodules[f"tables{number}"] = copy
            read, held, lane = reading.lanes[number], holding[number], compared.lanes[number]
            entry = Signal(extent, name=f"entry{number}", reset_less=True)
            m.d.comb += [
                copy.write_enable.eq(write),
                copy.write_address.eq(write_at),
                copy.write_data.eq(entry_written),
                copy.read_enable.eq(ready),
                copy.read_address.eq(self.unchecked.p.lanes[number].table),
            ]
            with m.If(ready):
                m.d.sync += [
                    *(held[name].eq(read[name])
                      for name in ("present", "table", "sample", "fault")),
                    held.row.eq(read.id[:c.row_width]),
                    held.beyond.eq(Cat(
                        read.id[c.row_width:64 if number < wide_lanes else 32], Const(0, 1)
                    ).any()),
                    entry.eq(copy.read_data),
                ]
            m.d.comb += [
                lane.present.eq(held.present),
                lane.key.row.eq(held.row),
                lane.key.table.eq(held.table),
                lane.sample.eq(held.sample),
                lane.parts_log2.eq(entry.parts_log2),
                lane.part.eq(entry.part),
                lane.out_of_range.eq(
                    (held.beyond | (held.row > entry.last_row)) & (held.fault == 0)),
                lane.fault.eq(held.fault),
            ]
        return m
