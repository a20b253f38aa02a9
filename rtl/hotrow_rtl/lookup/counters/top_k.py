"""Top K: finds the entries with the highest counts by bisection, then emits them."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...interfaces.records import harvest_entry, result
from ...primitives.bits import last_set
from .entry_emitter import EntryEmitter, entries_shape
from .set_layout import scanned_entry


def bound_shape(config: Config) -> int:
    """Bits of a bound: up to one above the largest count, which no entry reaches."""
    return config.counter_bits + 1


def scan_result(config: Config) -> data.StructLayout:
    """Result of a request over all banks: the OR of the counts and of the tags, how many counts
    reach the bound, and whether the request was the `last` of its scan."""
    entry = scanned_entry(config)
    return data.StructLayout({
        "count": entry["count"].shape, "tag": entry["tag"].shape,
        "reach": range(config.banks + 1), "last": 1})


class TopK(wiring.Component):
    """Find by bisection the count of the last entry to emit, then emit entries above it, and ties.

    A counting scan counts the entries that reach a bound. The first uses the threshold: if at most
    `wanted` entries reach it, all of them are emitted. Otherwise each further scan decides one bit
    of the highest bound that `wanted` entries reach, from the highest bit of any count down.
    Entries equal to that bound are emitted in the order of sets and ways until there are `wanted`.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    start : In(1)
        A pulse starts a harvest and loads `wanted` (at least 1) and `threshold`.
    wanted, threshold : In(32)
        A threshold of 0 acts as 1.
    harvested : Out(stream(result(harvest_entry)))
        Through the `last` element, which is absent if there is no entry.
    entries : Out(entries_shape(config))
        Number of entries emitted; valid until the next start.
    done : Out(1)
        A pulse after the last element has been accepted.
    active : Out(1)
        A harvest is in progress.
    begin, single, enable : Out(1)
        To the `EntryScanner`.
    complement : Out(config.counter_bits)
        To the banks.
    result_valid, scan_result : In(1), In(scan_result(config))
        From the banks.
    set : In(log2(config.counter_sets))
        Set of the result, numbered over all banks, during a `single` scan.

    Timing
    ------
    A counting scan takes 9 cycles beyond its requests: 4 are the latency of a bank, the others
    begin, accumulate and decide. There is one scan, and one more per bit of the largest count if
    more than `wanted` entries reach the threshold. The emitting scan takes one cycle per entry up
    to the last one emitted, and 11 cycles until `done`.
    """

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
            "single": Out(1),
            "enable": Out(1),
            "complement": Out(config.counter_bits),
            "result_valid": In(1),
            "scan_result": In(scan_result(config)),
            "set": In(log2(config.counter_sets)),
        })

    def elaborate(self, platform):
        m = Module()
        c, scanned = self.config, self.scan_result
        m.submodules.emitter = emitter = EntryEmitter(c)
        connect(m, emitter=emitter.harvested, harvested=flipped(self.harvested))

        bound, wanted = Signal(bound_shape(c)), Signal(entries_shape(c))
        found, trial = Signal(bound_shape(c)), Signal(bound_shape(c))
        higher = Signal.like(wanted)  # number of entries with a count above `found`
        m.d.comb += [
            emitter.bound.eq(bound),
            emitter.result_valid.eq(self.result_valid & self.single),
            emitter.scan_result.count.eq(scanned.count),
            emitter.scan_result.tag.eq(scanned.tag),
            emitter.scan_result.reaches.eq(scanned.reach[0]),
            emitter.set.eq(self.set),
            self.enable.eq(self.active & (~self.single | emitter.space)),
        ]
        m.d.sync += self.complement.eq(Mux(self.active, -bound, 0))

        def begin_scan(least):
            m.d.sync += bound.eq(least)
            m.d.comb += self.begin.eq(1)

        reached, ended, settled = Signal.like(wanted), Signal(), Signal()
        bits = Signal(c.counter_bits)  # the OR of all counts
        reach = Signal.like(scanned.reach)
        m.d.sync += [
            reach.eq(Mux(self.result_valid, scanned.reach, 0)),
            reached.eq(reached + reach),
            ended.eq(self.result_valid & scanned.last),
            settled.eq(ended),
        ]
        with m.If(self.result_valid):
            m.d.sync += bits.eq(bits | scanned.count)
        with m.If(self.begin):
            m.d.sync += reached.eq(0)

        # Timing: the comparisons of the sum are registered before the states use them.
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
            m.d.sync += [self.entries.eq(entries), self.single.eq(1)]
            begin_scan(least)
            m.next = "EMIT"

        with m.FSM():
            with m.State("IDLE"), m.If(self.start):
                limit = (1 << c.counter_bits) - 1
                m.d.sync += [
                    wanted.eq(Mux(self.wanted > c.counter_entries,
                                  c.counter_entries, self.wanted)),
                    found.eq(0), higher.eq(0), bits.eq(0), self.active.eq(1)]
                begin_scan(Mux(self.threshold > limit, limit + 1,
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
                    begin_scan(found | trial)
                    m.next = "BISECT"
            with m.State("BISECT"), m.If(decided):
                with m.If(enough):
                    m.d.sync += found.eq(bound)
                with m.Else():
                    m.d.sync += higher.eq(reached)  # the last bound that is too high is found + 1
                m.d.sync += trial.eq(trial >> 1)
                m.next = "TRY"
            with m.State("EMIT"), m.If(emitter.done):
                m.d.sync += [self.single.eq(0), self.active.eq(0)]
                m.next = "IDLE"
        return m
