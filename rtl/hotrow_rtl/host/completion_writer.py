"""Write completions to their ring in memory."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import COMPLETION, COMPLETION_BYTES, Status
from ..interfaces.records import (
    WriteClient,
    completion,
    engine_outcome,
    packed_address,
    reported_completion,
)
from .region_arbiter import RegionPort
from .ring_address import MOST_ENTRIES_LOG2, RingAddress, fault_status

PART = 32  # bits that are counters altogether, or not at all


def counter_parts(config: Config) -> set[int]:
    """The parts that are counters."""
    counters = [name for name, _ in engine_outcome(config)
                if name not in ("status", "error_index", "error_address")]
    return {8 * COMPLETION[name].offset // PART + half for name in counters
            for half in range(8 * COMPLETION[name].bytes // PART)}


class CompletionWriter(wiring.Component):
    """Write one completion after the other, and count those that have landed.

    Parameters
    ----------
    config : Config

    Members
    -------
    ring, last : In
        As in `RingAddress`.
    completions : In(stream(reported_completion))
        Taken when their last word is on its way; their `sequence` is filled in here.
    completed : Out(32)
        Completions that have landed in memory.
    landed : Out(1)
        A pulse: `completed` has advanced.
    region : Out(RegionPort(config))
    deposit : Out(WriteClient(config))
    fault : Out(8)
        Status of the access that failed; from then on completions are dropped.
    faulted : Out(1)
    busy : Out(1)
        A completion has yet to land.

    Timing
    ------
    The next completion is begun once the one before has landed: 6 cycles, those of the region check
    and the memory's, and one per bus word.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "ring": In(packed_address),
            "last": In(MOST_ENTRIES_LOG2),
            "completions": In(stream.Signature(reported_completion)),
            "completed": Out(32),
            "landed": Out(1),
            "region": Out(RegionPort(config)),
            "deposit": Out(WriteClient(config)),
            "fault": Out(8),
            "faulted": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entry = entry = RingAddress(self.config, write=True)
        wiring.connect(m, writer=wiring.flipped(self.region), entry=entry.region)
        place, deposit = entry.places, self.deposit
        record, fault = Signal(completion), Signal(8)
        number = Signal(32)  # of the completion, from 1
        beats = COMPLETION_BYTES // self.config.bus_bytes
        beat = Signal(beats, init=1)  # one-hot
        address = Signal.like(place.p.address, reset_less=True)
        per_word = self.config.bus_width // PART
        counters = counter_parts(self.config)

        def chosen(lane):
            """One part of the bus word: a sum of products, as counters are masked at no cost."""
            value = Const(0, PART)
            for word in range(beats):
                part = word * per_word + lane
                shown = beat[word]
                if part in counters:
                    shown &= self.completions.p.counted
                value |= record.as_value().word_select(part, PART) & shown.replicate(PART)
            return value

        m.d.comb += [
            entry.ring.eq(self.ring),
            entry.last.eq(self.last),
            entry.numbers.p.eq(self.completed),
            number.eq(self.completed + 1),
            record.eq(self.completions.p.record),
            record.sequence.eq(number),
            deposit.request.p.address.eq(address),
            deposit.words.p.data.eq(Cat(chosen(lane) for lane in range(per_word))),
            deposit.words.p.strobe.eq(~0),
            deposit.words.p.last.eq(beat[-1]),
            self.busy.eq(1),
        ]
        m.d.sync += self.landed.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    entry.numbers.valid.eq(self.completions.valid),
                    self.busy.eq(self.completions.valid),
                ]
                with m.If(self.completions.valid & entry.numbers.ready):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [fault.eq(place.p.status), address.eq(place.p.address)]
                with m.If(place.valid):
                    m.next = "REQUEST"
            with m.State("REQUEST"):  # from a register: whether a place is valid is known late
                with m.If(fault == Status.OK):
                    m.d.comb += deposit.request.valid.eq(1)
                    with m.If(deposit.request.ready):
                        m.next = "WORDS"
                with m.Else():
                    m.next = "FAULTED"
            with m.State("WORDS"):
                m.d.comb += deposit.words.valid.eq(1)
                with m.If(deposit.words.ready):
                    m.d.sync += beat.eq(beat.rotate_left(1))
                    with m.If(deposit.words.p.last):
                        m.next = "TAKEN"
            with m.State("TAKEN"):
                m.d.comb += self.completions.ready.eq(1)
                m.next = "OUTCOME"
            with m.State("OUTCOME"):
                m.d.comb += deposit.outcome.ready.eq(1)
                m.d.sync += fault.eq(fault_status(deposit.outcome.p.fault))
                with m.If(deposit.outcome.valid & (deposit.outcome.p.fault == 0)):
                    m.d.sync += [self.completed.eq(number), self.landed.eq(1)]
                    m.next = "IDLE"
                with m.Elif(deposit.outcome.valid):
                    m.next = "FAULTED"
            with m.State("FAULTED"):
                m.d.comb += [
                    self.completions.ready.eq(1),
                    self.fault.eq(fault),
                    self.faulted.eq(1),
                    self.busy.eq(0),
                ]
        return m
