"""Entry emitter: the counted rows of scanned sets, one after another."""

from functools import reduce
from operator import or_

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .counter_set import counter_place
from .layouts import harvest_entry, result, row_key
from .mixing import unmix
from .set_scan import scanned_set


class EntryEmitter(wiring.Component):
    """Emit the entries above the scan's bound, and those equal to it while the quota lasts.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse takes `entries` and `ties`.
    entries : In(32)
        To be emitted in all; the sets must hold that many. With none, one absent element is
        emitted and no set is taken.
    ties : In(32)
        How many of the entries equal to the bound are emitted: the first ones.
    sets : In(stream(scanned_set(config)))
        Sets behind the last entry are taken only up to the next start.
    harvested : Out(stream(result(harvest_entry)))
        In the order of sets and, within a set, of age.
    done : Out(1)
        A pulse when the last element has been taken.

    Timing
    ------
    A set takes max(1, entries emitted) cycles, and one more if the quota ends among its ties.
    Latency 2 cycles from a set to its first entry.
    """

    latency = 2

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "entries": In(32),
            "ties": In(32),
            "sets": In(stream.Signature(scanned_set(config))),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out, scanned = self.config, self.harvested, self.sets.p
        entries, ties, active = Signal(32), Signal(32), Signal()
        emitted = Signal(c.counter_ways)  # ways of the set in front that have left
        waiting, first = Signal(c.counter_ways), Signal(c.counter_ways)
        chosen = Signal(data.StructLayout({
            "mixed": counter_place(c), "count": c.counter_bits, "last": 1}))
        chosen_valid, room, takes = Signal(), Signal(), Signal()
        key = Signal(row_key(c))
        m.d.comb += [
            waiting.eq((scanned.above | Mux(ties != 0, scanned.equal, 0)) & ~emitted),
            first.eq(waiting & -waiting),
            room.eq(~chosen_valid | ~out.valid | out.ready),
            takes.eq(active & self.sets.valid & waiting.any() & room),
            self.sets.ready.eq(~active | ~waiting.any() | takes & (waiting == first)),
        ]
        with m.If(room):
            m.d.sync += chosen_valid.eq(takes)
        with m.If(takes):
            tag, count = pick(scanned.ways, first)
            m.d.sync += [
                chosen.mixed.set.eq(scanned.set),
                chosen.mixed.tag.eq(tag),
                chosen.count.eq(count),
                chosen.last.eq(entries == 1),
                entries.eq(entries - 1),
                ties.eq(ties - (first & scanned.equal).any()),
                active.eq(entries != 1),
            ]
        with m.If(self.sets.ready):
            m.d.sync += emitted.eq(0)
        with m.Elif(takes):
            m.d.sync += emitted.eq(emitted | first)

        m.d.comb += key.as_value().eq(unmix(chosen.mixed.as_value(), 0, c.key_width))
        with m.If(~out.valid | out.ready):
            m.d.sync += [
                out.valid.eq(chosen_valid),
                out.p.present.eq(1),
                out.p.last.eq(chosen.last),
                out.p.value.row.eq(key.row),
                out.p.value.table.eq(key.table),
                out.p.value.count.eq(chosen.count),
            ]
        m.d.comb += self.done.eq(out.valid & out.ready & out.p.last)

        with m.If(self.start):
            m.d.sync += [entries.eq(self.entries), ties.eq(self.ties), emitted.eq(0),
                         active.eq(self.entries != 0)]
            with m.If(self.entries == 0):
                m.d.sync += [out.valid.eq(1), out.p.present.eq(0), out.p.last.eq(1)]
        return m


def pick(ways, one_hot):
    """Tag and count of the way that the one-hot number names."""
    def chosen(field):
        return reduce(or_, (Mux(here, way[field], 0) for way, here in zip(ways, one_hot)))
    return chosen("tag"), chosen("count")
