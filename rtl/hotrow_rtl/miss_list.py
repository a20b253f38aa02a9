"""The numbers that the missed rows of a batch get in its miss list."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .layouts import row_key
from .mixing_gates import mixed
from .ram import ClearedRam

STAMP_WIDTH = 8  # batches between two sweeps of the table: 2**STAMP_WIDTH - 1


def listed_row(config: Config) -> data.StructLayout:
    """One place of the table; it counts only with the stamp of the batch in progress."""
    return data.StructLayout({
        "stamp": STAMP_WIDTH, "index": log2(config.miss_entries), "key": row_key(config)})


def numbered_miss(config: Config) -> data.StructLayout:
    """A miss with its `index` in the list; `listed` when it is its row's entry there."""
    return data.StructLayout({"key": row_key(config), "index": 32, "listed": 1})


class MissList(wiring.Component):
    """Number misses in order of appearance, the first `miss_entries` rows once each.

    A row that the table holds gets the index it has; another gets the next index and enters the
    table, or only gets the index once the table is full. The table is open addressing with linear
    probing in 2 * `miss_entries` places, at most half of them taken. Entries carry the stamp of
    their batch, so that emptying the table is adding one to a counter.

    Members
    -------
    begin : In(1)
        A pulse starts the next batch; only while no miss is in flight.
    rows : In(stream(row_key(config)))
    numbered : Out(stream(numbered_miss(config)))
        One per row, in order.
    count : Out(32)
        Entries of the list so far.
    restart : In(1)
        A pulse forgets the miss in flight.
    ready : Out(1)
        Low while the table is being cleared; rows then wait.

    Timing
    ------
    4 cycles per miss and one more for each place probed beyond the first. Every
    2**STAMP_WIDTH - 1 batches the table is cleared, 2 * `miss_entries` cycles.
    """

    cycles_per_miss = 4

    def __init__(self, config: Config):
        self.config = config
        self.places = 2 * config.miss_entries
        super().__init__({
            "begin": In(1),
            "rows": In(stream.Signature(row_key(config))),
            "numbered": Out(stream.Signature(numbered_miss(config))),
            "count": Out(32),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = ClearedRam(listed_row(self.config), self.places)
        out, found = self.numbered, table.read_data
        stamp = Signal(STAMP_WIDTH, init=1)
        key = Signal(row_key(self.config))
        place = Signal(range(self.places))  # being read
        fetched, compared = Signal.like(place), Signal.like(place)  # one and two cycles later
        probing, match, vacant = Signal(3), Signal(), Signal()
        index = Signal.like(found.index)
        room = self.count < self.config.miss_entries
        m.d.comb += [self.ready.eq(table.ready), table.read_address.eq(place)]

        def answer(number, listed):
            return [
                out.valid.eq(1),
                out.p.key.eq(key),
                out.p.index.eq(number),
                out.p.listed.eq(listed),
                probing.eq(0),
            ]

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)

        with m.If(~probing.any()):
            m.d.comb += self.rows.ready.eq(table.ready & (~out.valid | out.ready))
            with m.If(self.rows.valid & self.rows.ready):
                m.d.sync += [
                    key.eq(self.rows.p),
                    place.eq(mixed(self.rows.p.as_value(), 0, self.config.key_width)),
                    probing.eq(1),
                ]
        with m.Else():
            # Places are read one a cycle ahead of the verdict on the first.
            m.d.sync += [
                place.eq(place + 1),
                fetched.eq(place),
                compared.eq(fetched),
                match.eq(found.key == key),
                vacant.eq(found.stamp != stamp),
                index.eq(found.index),
                probing.eq(probing << 1 | 1),
            ]
            with m.If(probing[2]):
                with m.If(vacant):
                    m.d.comb += table.write_enable.eq(room)
                    m.d.sync += [*answer(self.count, 1), self.count.eq(self.count + 1)]
                with m.Elif(match):
                    m.d.sync += answer(index, 0)
        m.d.comb += [
            table.write_address.eq(compared),
            table.write_data.stamp.eq(stamp),
            table.write_data.index.eq(self.count),
            table.write_data.key.eq(key),
        ]

        with m.If(self.begin):
            m.d.sync += [self.count.eq(0), stamp.eq(stamp + 1)]
            with m.If(stamp.all()):
                m.d.comb += table.clear.eq(1)
                m.d.sync += stamp.eq(1)
        with m.If(self.restart):
            m.d.sync += [probing.eq(0), out.valid.eq(0)]
        return m
