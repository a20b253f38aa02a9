"""Entry emitter: the counted rows that a walk hears of, as elements of a list."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import harvest_entry, result, row_key
from ...primitives.fifo import RamFifo
from ..hashing.xorshift_hardware import unhash_key_hw
from .bank import CounterBank
from .set_layout import counter_place, scanned_entry

ROOM = 16  # entries that may wait to be taken


def entries_shape(config: Config):
    """Shape of a number of counted rows, all of them at most."""
    return range(config.counter_entries + 1)


class EntryEmitter(wiring.Component):
    """Emit the entries above the bound, and those equal to it while the quota lasts.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse takes `entries` and `ties`.
    entries : In(entries_shape(config))
        To be emitted in all; that many must come. With none, one absent element is emitted.
    ties : In(entries_shape(config))
        How many of the entries equal to the bound are emitted: the first ones.
    bound : In
        Constant from the first entry on.
    room : Out(1)
        An entry may be asked for, and is heard of `CounterBank.latency` + 1 cycles later.
    heard_valid, heard, set : In(1), In(scanned_entry(config)), In
        An entry of that set, in turn. Those behind the last one emitted mean nothing.
    harvested : Out(stream(result(harvest_entry)))
        In the order of entries.
    done : Out(1)
        A pulse when the last element has been taken.

    Timing
    ------
    An entry a cycle; latency `latency` cycles from an entry to its element.
    """

    latency = 1 + RamFifo.latency + 1  # compare, queue, and the key
    _under_way = CounterBank.latency + 4  # asked for before the queue's level tells

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "entries": In(entries_shape(config)),
            "ties": In(entries_shape(config)),
            "bound": In(config.counter_bits + 1),
            "room": Out(1),
            "heard_valid": In(1),
            "heard": In(scanned_entry(config)),
            "set": In(log2(config.counter_sets)),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.harvested
        left, active = Signal.like(self.entries), Signal()
        ties = Signal(signed(len(left) + 1))  # left, less one: the sign tells that none is
        kept = data.StructLayout({
            "mixed": counter_place(c), "count": c.counter_bits, "last": 1})
        m.submodules.queue = queue = RamFifo(kept, ROOM)

        equal, reaches, emits = Signal(), Signal(), Signal()
        held = Signal(kept, reset_less=True)
        m.d.sync += [
            self.room.eq(active & (queue.level <= ROOM - self._under_way)),
            reaches.eq(self.heard_valid & self.heard.reaches),
            equal.eq(self.heard.count == self.bound),
            Cat(held.mixed.bank, held.mixed.set).eq(self.set),
            held.mixed.tag.eq(self.heard.tag),
            held.count.eq(self.heard.count),
        ]
        m.d.comb += [
            emits.eq(active & reaches & ~(equal & (ties < 0))),
            queue.i.valid.eq(emits),
            queue.i.p.eq(held),
            queue.i.p.last.eq(left == 1),
        ]
        with m.If(emits):
            m.d.sync += [
                left.eq(left - 1),
                ties.eq(ties - equal),
                active.eq(left != 1),
            ]

        chosen, key = queue.o.p, Signal(row_key(c))
        m.d.comb += [
            key.as_value().eq(unhash_key_hw(chosen.mixed.as_value(), 0, c.key_width)),
            queue.o.ready.eq(~out.valid | out.ready),
        ]
        with m.If(queue.o.ready):
            m.d.sync += [
                out.valid.eq(queue.o.valid),
                out.p.present.eq(1),
                out.p.last.eq(chosen.last),
                out.p.value.row.eq(key.row),
                out.p.value.table.eq(key.table),
                out.p.value.count.eq(chosen.count),
            ]
        m.d.comb += self.done.eq(out.valid & out.ready & out.p.last)

        with m.If(self.start):
            m.d.sync += [left.eq(self.entries), ties.eq(self.ties - 1),
                         active.eq(self.entries != 0)]
            with m.If(self.entries == 0):
                m.d.sync += [out.valid.eq(1), out.p.present.eq(0), out.p.last.eq(1)]
        return m
