"""Entry emitter: turns scanned entries into the elements of a HARVEST's list."""

from amaranth import Cat, Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.records import harvest_entry, result, row_key
from ...primitives.fifo import RamFifo
from ..hashing.xorshift_hardware import unhash_key_hw
from .bank import CounterBank
from .set_layout import hashed_key, scanned_entry

QUEUE = 16  # entries


def entries_shape(config: Config):
    """Shape of a number of entries."""
    return range(config.counter_entries + 1)


class EntryEmitter(wiring.Component):
    """Emit the entries above the bound, and the first of those equal to it.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse loads `entries` and `ties`.
    entries : In(entries_shape(config))
        How many entries to emit; the scan must deliver as many. If 0, the emitter sends one absent
        element.
    ties : In(entries_shape(config))
        How many of them may equal the bound.
    bound : In(config.counter_bits + 1)
        Constant from the first entry on.
    space : Out(1)
        A request is allowed; its result follows `CounterBank.latency` + 1 cycles later.
    result_valid, scan_result, set : In(1), In(scanned_entry(config)), In
        An entry of that set. Entries after the last one to emit are ignored.
    harvested : Out(stream(result(harvest_entry)))
        In the order of the scan.
    done : Out(1)
        A pulse when the last element has been accepted.

    Timing
    ------
    One entry a cycle; 4 cycles from an entry to its element: compare, queue, unhash.
    """

    _in_flight = CounterBank.latency + 4  # requests that the level of the queue does not include

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "entries": In(entries_shape(config)),
            "ties": In(entries_shape(config)),
            "bound": In(config.counter_bits + 1),
            "space": Out(1),
            "result_valid": In(1),
            "scan_result": In(scanned_entry(config)),
            "set": In(log2(config.counter_sets)),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.harvested
        entry_count, active = Signal.like(self.entries), Signal()
        ties = Signal(signed(len(entry_count) + 1))  # minus 1: negative when none remains
        entry = data.StructLayout({"key": hashed_key(c), "count": c.counter_bits, "last": 1})
        m.submodules.queue = queue = RamFifo(entry, QUEUE)

        equal, reaches, emit = Signal(), Signal(), Signal()
        held = Signal(entry, reset_less=True)
        m.d.sync += [
            self.space.eq(active & (queue.level <= QUEUE - self._in_flight)),
            reaches.eq(self.result_valid & self.scan_result.reaches),
            equal.eq(self.scan_result.count == self.bound),
            Cat(held.key.bank, held.key.set).eq(self.set),
            held.key.tag.eq(self.scan_result.tag),
            held.count.eq(self.scan_result.count),
        ]
        m.d.comb += [
            emit.eq(active & reaches & ~(equal & (ties < 0))),
            queue.i.valid.eq(emit),
            queue.i.p.eq(held),
            queue.i.p.last.eq(entry_count == 1),
        ]
        with m.If(emit):
            m.d.sync += [
                entry_count.eq(entry_count - 1),
                ties.eq(ties - equal),
                active.eq(entry_count != 1),
            ]

        oldest, key = queue.o.p, Signal(row_key(c))
        m.d.comb += [
            key.as_value().eq(unhash_key_hw(oldest.key.as_value(), 0, c.key_width)),
            queue.o.ready.eq(~out.valid | out.ready),
        ]
        with m.If(queue.o.ready):
            m.d.sync += [
                out.valid.eq(queue.o.valid),
                out.p.present.eq(1),
                out.p.last.eq(oldest.last),
                out.p.value.row.eq(key.row),
                out.p.value.table.eq(key.table),
                out.p.value.count.eq(oldest.count),
            ]
        m.d.comb += self.done.eq(out.valid & out.ready & out.p.last)

        with m.If(self.start):
            m.d.sync += [entry_count.eq(self.entries), ties.eq(self.ties - 1),
                         active.eq(self.entries != 0)]
            with m.If(self.entries == 0):
                m.d.sync += [out.valid.eq(1), out.p.present.eq(0), out.p.last.eq(1)]
        return m
