"""Harvest: the most counted rows, found by counting and then emitted in one more walk."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...interfaces.records import harvest_entry, result
from ...primitives.bits import last_set
from .entry_emitter import EntryEmitter, entries_shape
from .set_layout import scanned_entry


def bound_shape(config: Config) -> int:
    """Bits of a bound: one above the largest count, which no entry reaches, is one too."""
    return config.counter_bits + 1


def heard_entries(config: Config) -> data.StructLayout:
    """What the banks tell of one request to all of them: the bits of counts and tags that any has,
    how many counts reach the bound, and whether the request was the `last` of its walk."""
    told = scanned_entry(config)
    return data.StructLayout({
        "count": told["count"].shape, "tag": told["tag"].shape,
        "reach": range(config.banks + 1), "last": 1})


class Harvest(wiring.Component):
    """Find the count of the last rank by bisection, then emit what is above it, and ties.

    A walk counts the entries at or above a bound. The first has the threshold as its bound: if
    no more than `wanted` entries reach it, all of them are emitted. Otherwise each further walk
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
    active : Out(1)
        A harvest is in progress.
    begin, alone, go : Out(1)
        To the walk.
    complement : Out
        To the banks.
    heard_valid, heard : In(1), In(heard_entries(config))
        From the banks.
    set : In
        Number, over all banks, of the set that was heard of when banks are asked one by one.

    Timing
    ------
    A walk that counts takes `walk_overhead` cycles besides its requests and until they are heard.
    There is one, and one more per bit of the largest count if more than `wanted` entries reach the
    threshold. The last walk takes a cycle per entry up to the last one emitted.
    """

    walk_overhead = 3  # begin, accumulate, decide

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "start": In(1),
            "wanted": In(32),
            "threshold": In(32),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "entries": Out(entries_shape(config)),
            "done": Out(1),
            "active": Out(1),
            "begin": Out(1),
            "alone": Out(1),
            "go": Out(1),
            "complement": Out(config.counter_bits),
            "heard_valid": In(1),
            "heard": In(heard_entries(config)),
            "set": In(log2(config.counter_sets)),
        })

    def elaborate(self, platform):
        m = Module()
        c, heard = self.config, self.heard
        m.submodules.emitter = emitter = EntryEmitter(c)
        connect(m, emitter=emitter.harvested, harvested=flipped(self.harvested))

        # Of no more entries than there are: a count of them all is one that suffices.
        bound, wanted = Signal(bound_shape(c)), Signal(entries_shape(c))
        found, trial = Signal(bound_shape(c)), Signal(bound_shape(c))
        higher = Signal.like(wanted)  # entries that count more than `found`
        m.d.comb += [
            emitter.bound.eq(bound),
            emitter.heard_valid.eq(self.heard_valid & self.alone),
            emitter.heard.count.eq(heard.count),
            emitter.heard.tag.eq(heard.tag),
            emitter.heard.reaches.eq(heard.reach[0]),
            emitter.set.eq(self.set),
            self.go.eq(self.active & (~self.alone | emitter.room)),
        ]
        m.d.sync += self.complement.eq(Mux(self.active, -bound, 0))

        def begin_walk(least):
            m.d.sync += bound.eq(least)
            m.d.comb += self.begin.eq(1)

        # Counting: what is heard, added up.
        reached, ended, settled = Signal.like(wanted), Signal(), Signal()
        bits = Signal(c.counter_bits)  # that some count has
        reach = Signal.like(heard.reach)
        m.d.sync += [
            reach.eq(Mux(self.heard_valid, heard.reach, 0)),
            reached.eq(reached + reach),
            ended.eq(self.heard_valid & heard.last),
            settled.eq(ended),
        ]
        with m.If(self.heard_valid):
            m.d.sync += bits.eq(bits | heard.count)
        with m.If(self.begin):
            m.d.sync += reached.eq(0)

        # Decisions take a cycle of their own, for sums are late.
        few, enough = Signal(), Signal()
        decided = Signal()
        m.d.sync += [
            few.eq(reached <= wanted),
            enough.eq(reached >= wanted),
            decided.eq(settled),
            self.done.eq(emitter.done),
        ]

        def emit(entries, ties, least):
            m.d.comb += [emitter.start.eq(1), emitter.entries.eq(entries), emitter.ties.eq(ties)]
            m.d.sync += [self.entries.eq(entries), self.alone.eq(1)]
            begin_walk(least)
            m.next = "EMIT"

        with m.FSM():
            with m.State("IDLE"), m.If(self.start):
                limit = (1 << c.counter_bits) - 1
                m.d.sync += [
                    wanted.eq(Mux(self.wanted > c.counter_entries,
                                  c.counter_entries, self.wanted)),
                    found.eq(0), higher.eq(0), bits.eq(0), self.active.eq(1)]
                begin_walk(Mux(self.threshold > limit, limit + 1,
                               Mux(self.threshold == 0, 1, self.threshold)))
                m.next = "COUNT"
            with m.State("COUNT"), m.If(decided):
                with m.If(few):
                    emit(reached, reached, bound)
                with m.Else():
                    m.d.sync += trial.eq(last_set(bits))
                    m.next = "TRY"
            with m.State("TRY"):
                with m.If(trial == 0):
                    emit(wanted, wanted - higher, found)
                with m.Else():
                    begin_walk(found | trial)
                    m.next = "BISECT"
            with m.State("BISECT"), m.If(decided):
                with m.If(enough):
                    m.d.sync += found.eq(bound)
                with m.Else():
                    m.d.sync += higher.eq(reached)  # the last bound too high is found + 1
                m.d.sync += trial.eq(trial >> 1)
                m.next = "TRY"
            with m.State("EMIT"), m.If(emitter.done):
                m.d.sync += [self.alone.eq(0), self.active.eq(0)]
                m.next = "IDLE"
        return m
