"""Check of listed rows against the table descriptors."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...contract.encoding import Status
from ...interfaces.lookup_payloads import STATUS_WIDTH
from ...interfaces.records import element, row_entry, row_key, table_update
from ...interfaces.table_bounds import extent_of, table_extent
from ...primitives.ram import ClearedRam


def checked_entry(config: Config) -> data.StructLayout:
    """A listed row with its table's directory partition; refused unless its `status` is OK."""
    return data.StructLayout({
        "status": STATUS_WIDTH, "key": row_key(config), "parts_log2": 3, "part": 6, "last": 1})


class EntryCheck(wiring.Component):
    """Add to each listed row its table's directory partition and its status.

    A fault of the entry's bus word takes precedence, then an unknown table, then the row's range.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    entries : In(stream(element(row_entry)))
    checked : Out(stream(checked_entry(config)))
        One per entry, in order.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    restart : In(1)
        A pulse drops the entries in the pipeline; the descriptors stay.
    ready : Out(1)
        Low while the descriptors are cleared after reset.

    Timing
    ------
    Latency 2 cycles, one entry a cycle.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "entries": In(stream.Signature(element(row_entry))),
            "checked": Out(stream.Signature(checked_entry(config))),
            "table_update": In(table_update(config)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out, update = self.config, self.checked, self.table_update
        extent = data.StructLayout({"valid": 1, **table_extent(c).members})
        m.submodules.extents = extents = ClearedRam(extent, c.tables, reads_old=True)
        entry, table = Signal(element(row_entry)), extents.read_data
        valid, enable, known, status = Signal(), Signal(), Signal(), Signal(STATUS_WIDTH)
        m.d.comb += [
            self.ready.eq(extents.ready),
            extents.write_enable.eq(update.enable),
            extents.write_address.eq(update.index),
            extents.write_data.valid.eq(update.entry.valid),
            *(extents.write_data[name].eq(value)
              for name, value in extent_of(c, update.entry).items()),
            extents.read_address.eq(self.entries.p.value.table),
            extents.read_enable.eq(enable),
            enable.eq(~out.valid | out.ready),
            self.entries.ready.eq(enable),
            known.eq(table.valid & (entry.value.table < c.tables)),
        ]
        with m.If(entry.fault.any()):
            m.d.comb += status.eq(Status.SLVERR - 1 + entry.fault)
        with m.Elif(~known):
            m.d.comb += status.eq(Status.TABLE_UNKNOWN)
        with m.Elif(entry.value.row > table.last_row):
            m.d.comb += status.eq(Status.ROW_OUT_OF_RANGE)
        with m.If(enable):
            m.d.sync += [
                valid.eq(self.entries.valid),
                entry.eq(self.entries.p),
                out.valid.eq(valid),
                out.p.status.eq(status),
                out.p.key.row.eq(entry.value.row),
                out.p.key.table.eq(entry.value.table),
                out.p.parts_log2.eq(table.parts_log2),
                out.p.part.eq(table.part),
                out.p.last.eq(entry.last),
            ]
        with m.If(self.restart):
            m.d.sync += [valid.eq(0), out.valid.eq(0)]
        return m
