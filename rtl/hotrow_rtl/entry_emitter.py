"""Entry emitter: the counted rows of scanned sets, one after another."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .counter_set import counter_place
from .layouts import harvest_entry, result, row_key
from .mixing_gates import unmixed
from .set_scan import scanned_set


def entries_shape(config: Config):
    """Shape of a number of counted rows, all of them at most."""
    return range(config.counter_entries + 1)


class EntryEmitter(wiring.Component):
    """Emit the entries above the scan's bound, and those equal to it while the quota lasts.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse takes `entries` and `ties`.
    entries : In(entries_shape(config))
        To be emitted in all; the sets must hold that many. With none, one absent element is
        emitted and no set is taken.
    ties : In(entries_shape(config))
        How many of the entries equal to the bound are emitted: the first ones.
    sets : In(stream(scanned_set(config)))
        Those behind the last entry mean nothing.
    harvested : Out(stream(result(harvest_entry)))
        In the order of sets and, within a set, of ways.
    done : Out(1)
        A pulse when the last element has been taken.

    Timing
    ------
    A set takes a cycle, and one more per entry emitted. Latency 3 cycles from a set to its first
    entry.
    """

    latency = 3

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "entries": In(entries_shape(config)),
            "ties": In(entries_shape(config)),
            "sets": In(stream.Signature(scanned_set(config))),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out, sets = self.config, self.harvested, self.sets
        entries, active = Signal.like(self.entries), Signal()
        ties = Signal(signed(len(entries) + 1))  # left, less one: the sign tells that none is
        held = Signal(scanned_set(c), reset_less=True)
        waiting, live, first = (
            Signal(c.counter_ways, name=name) for name in ("waiting", "live", "first"))
        chosen = Signal(data.StructLayout({
            "mixed": counter_place(c), "count": c.counter_bits, "last": 1}))
        chosen_valid, room, takes, empties = Signal(), Signal(), Signal(), Signal()
        key = Signal(row_key(c))

        # `ready` is a register: the scan holds wide words, which a path from the sink would stall.
        idle = Signal(init=1)
        eligible = sets.p.above | Mux(ties < 0, 0, sets.p.equal)
        m.d.comb += sets.ready.eq(idle)
        with m.If(idle & sets.valid & active):
            m.d.sync += [held.eq(sets.p), waiting.eq(eligible), idle.eq(~eligible.any())]
        with m.If(empties):
            m.d.sync += idle.eq(1)

        m.d.comb += [
            live.eq(waiting & ~Mux(ties < 0, held.equal, 0)),
            first.eq(live & -live),
            room.eq(~chosen_valid | ~out.valid | out.ready),
            takes.eq(active & ~idle & live.any() & room),
            empties.eq(~idle & (~live.any() | takes & ~(live & (live - 1)).any())),
        ]
        with m.If(room):
            m.d.sync += chosen_valid.eq(takes)
        with m.If(takes):
            tag, count = pick(held.ways, first)
            m.d.sync += [
                waiting.eq(live & (live - 1)),
                Cat(chosen.mixed.bank, chosen.mixed.set).eq(held.set),
                chosen.mixed.tag.eq(tag),
                chosen.count.eq(count),
                chosen.last.eq(entries == 1),
                entries.eq(entries - 1),
                ties.eq(ties - (first & held.equal).any()),
                active.eq(entries != 1),
            ]

        m.d.comb += key.as_value().eq(unmixed(chosen.mixed.as_value(), 0, c.key_width))
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
            m.d.sync += [entries.eq(self.entries), ties.eq(self.ties - 1),
                         active.eq(self.entries != 0)]
            with m.If(self.entries == 0):
                m.d.sync += [out.valid.eq(1), out.p.present.eq(0), out.p.last.eq(1)]
        return m


def pick(ways, one_hot):
    """Tag and count of the way that the one-hot number names."""
    def chosen(field):
        return reduce(or_, (Mux(here, way[field], 0) for way, here in zip(ways, one_hot)))
    return chosen("tag"), chosen("count")
