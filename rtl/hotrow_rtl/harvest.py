"""Harvest: the most counted rows, found by counting and then emitted in one more scan."""

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config, log2
from .counter_set import counter_set
from .entry_emitter import EntryEmitter, entries_shape
from .layouts import harvest_entry, result
from .set_scan import SetScan, bound_shape


class Harvest(wiring.Component):
    """Find the count of the last rank by bisection, then emit what is above it, and ties.

    A scan counts the entries at or above a bound. The first has the threshold as its bound: if
    no more than `wanted` entries reach it, all of them are emitted. Otherwise each further scan
    settles one bit of the largest bound that `wanted` entries reach, from the highest bit that
    any count has. The entries that equal that bound are emitted in the order of sets and of ways
    until `wanted` is reached.

    Parameters
    ----------
    config : Config

    Members
    -------
    start : In(1)
        A pulse begins a harvest with the `wanted` (at least 1) and `threshold` of that cycle.
    wanted, threshold : In(32)
        A threshold of 0 acts as 1.
    harvested : Out(stream(result(harvest_entry)))
        Through the `last` element, which is absent when there is no entry.
    entries : Out(entries_shape(config))
        Entries emitted; stays until the next start.
    done : Out(1)
        A pulse after the last element has been taken.
    read_enable, read_address, read_data
        Of the memory of counter sets, as of `SetScan`.

    Timing
    ------
    A counting scan takes sets + `scan_overhead` cycles. There is one, and one more per bit of the
    largest count if more than `wanted` entries reach the threshold. The last scan takes
    a cycle per set, up to that of the last entry, and one per entry.
    """

    scan_overhead = SetScan.latency + 2  # add, accumulate

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "wanted": In(32),
            "threshold": In(32),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "entries": Out(entries_shape(config)),
            "done": Out(1),
            "read_enable": Out(1),
            "read_address": Out(log2(config.counter_sets)),
            "read_data": In(counter_set(config)),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.scan = scan = SetScan(c)
        m.submodules.emitter = emitter = EntryEmitter(c)
        connect(m, emitter=emitter.harvested, harvested=flipped(self.harvested))
        m.d.comb += [
            self.read_enable.eq(scan.read_enable),
            self.read_address.eq(scan.read_address),
            scan.read_data.eq(self.read_data),
            emitter.sets.p.eq(scan.sets.p),
        ]

        # Of no more entries than there are: a count of them all is one that suffices.
        bound, wanted = Signal(bound_shape(c)), Signal(entries_shape(c))
        found, trial = Signal(bound_shape(c)), Signal(bound_shape(c))
        higher = Signal.like(wanted)  # entries that count more than `found`
        m.d.comb += scan.bound.eq(bound)

        def begin_scan(least):
            m.d.sync += bound.eq(least)
            m.d.comb += scan.begin.eq(1)

        # Counting: entries of a set, then of all sets so far.
        counting, ended, settled = Signal(), Signal(), Signal()
        counts = [way.count for way in scan.sets.p.ways]
        reaching, reached = Signal(range(c.counter_ways + 1)), Signal.like(wanted)
        bits = Signal(c.counter_bits)  # that some count has
        taken = counting & scan.sets.valid
        m.d.sync += [
            reaching.eq(Mux(taken, sum(scan.sets.p.above | scan.sets.p.equal), 0)),
            reached.eq(reached + reaching),
            ended.eq(taken & scan.sets.p.last),
            settled.eq(ended),
        ]
        with m.If(taken):
            m.d.sync += bits.eq(bits | reduce(or_, counts))
        with m.If(scan.begin):
            m.d.sync += reached.eq(0)

        def emit(entries, ties, least):
            m.d.comb += [emitter.start.eq(1), emitter.entries.eq(entries), emitter.ties.eq(ties)]
            m.d.sync += self.entries.eq(entries)
            begin_scan(least)
            m.next = "EMIT"

        m.d.sync += self.done.eq(emitter.done)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    limit = (1 << c.counter_bits) - 1
                    m.d.sync += [
                        wanted.eq(Mux(self.wanted > c.counter_entries,
                                      c.counter_entries, self.wanted)),
                        found.eq(0), higher.eq(0), bits.eq(0)]
                    begin_scan(Mux(self.threshold > limit, limit + 1,
                                   Mux(self.threshold == 0, 1, self.threshold)))
                    m.next = "COUNT"
            with m.State("COUNT"):
                m.d.comb += [counting.eq(1), scan.sets.ready.eq(1)]
                with m.If(settled):
                    with m.If(reached <= wanted):
                        emit(reached, reached, bound)
                    with m.Else():
                        m.d.sync += trial.eq(highest(bits))
                        m.next = "TRY"
            with m.State("TRY"):
                with m.If(trial == 0):
                    emit(wanted, wanted - higher, found)
                with m.Else():
                    begin_scan(found | trial)
                    m.next = "BISECT"
            with m.State("BISECT"):
                m.d.comb += [counting.eq(1), scan.sets.ready.eq(1)]
                with m.If(settled):
                    with m.If(reached >= wanted):
                        m.d.sync += found.eq(bound)
                    with m.Else():
                        m.d.sync += higher.eq(reached)  # the last bound too high is found + 1
                    m.d.sync += trial.eq(trial >> 1)
                    m.next = "TRY"
            with m.State("EMIT"):
                m.d.comb += [
                    emitter.sets.valid.eq(scan.sets.valid),
                    scan.sets.ready.eq(emitter.sets.ready),
                ]
                with m.If(emitter.done):
                    m.next = "IDLE"
        return m


def highest(flags):
    """One-hot: the highest flag that is set."""
    alone = [flag & ~flags[at + 1:].any() for at, flag in enumerate(flags[:-1])]
    return Cat(*alone, flags[-1])
