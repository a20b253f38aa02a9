"""Write completions to a ring in memory."""

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import COMPLETION, COMPLETION_BYTES, Status
from ..interfaces.records import (
    UNSET,
    WriteClient,
    completion,
    engine_outcome,
    packed_address,
    reported_completion,
)
from .region_arbiter import RegionPort
from .ring_address import MAX_ENTRIES_LOG2, RingAddress, fault_status

PART = 32  # bits; a part belongs to counters entirely or not at all


def set_bits(queue: str, number: int) -> int:
    """Mask of the bits of a part of a completion that the queue or its engine sets."""
    fields = sum((1 << 8 * field.bytes) - 1 << 8 * field.offset
                 for name, field in COMPLETION.items() if name not in UNSET[queue])
    return fields >> PART * number & (1 << PART) - 1


def counter_parts(config: Config) -> set[int]:
    """Numbers of the parts of a completion that are counters."""
    counters = [name for name, _ in engine_outcome(config)
                if name not in ("status", "error_index", "error_address")]
    return {8 * COMPLETION[name].offset // PART + half for name in counters
            for half in range(8 * COMPLETION[name].bytes // PART)}


class CompletionWriter(wiring.Component):
    """Write completions one by one, and count those that are in memory.

    Parameters
    ----------
    config : Config
    queue : str
        One of `contract.QUEUES`.

    Attributes
    ----------
    ring, last : In
        See `RingAddress`.
    completions : In(stream(reported_completion))
        Accepted after the last word was sent. This unit sets `sequence`.
    completed : Out(32)
        Number of completions in memory.
    completed_pulse : Out(1)
        A pulse: `completed` has increased.
    region : Out(RegionPort(config))
    write : Out(WriteClient(config))
    fault : Out(8)
        Status of a failed access; later completions are dropped.
    faulted : Out(1)
    busy : Out(1)
        A completion is not in memory yet.

    Timing
    ------
    One completion at a time: 4 cycles, the latencies of region check and memory, and one cycle per
    bus word.
    """

    def __init__(self, config: Config, queue: str):
        self.config, self.queue = config, queue
        super().__init__({
            "ring": In(packed_address),
            "last": In(MAX_ENTRIES_LOG2),
            "completions": In(stream.Signature(reported_completion)),
            "completed": Out(32),
            "completed_pulse": Out(1),
            "region": Out(RegionPort(config)),
            "write": Out(WriteClient(config)),
            "fault": Out(8),
            "faulted": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.entry = entry = RingAddress(self.config, write=True)
        wiring.connect(m, writer=wiring.flipped(self.region), entry=entry.region)
        entry_address, write = entry.addresses, self.write
        record, fault = Signal(completion), Signal(8)
        sequence = Signal(32)  # of the completion, from 1
        beats = COMPLETION_BYTES // self.config.bus_bytes
        beat = Signal(beats, init=1)  # one-hot
        address = Signal.like(entry_address.p.address, reset_less=True)
        per_word = self.config.bus_width // PART
        counters = counter_parts(self.config)

        def selected(lane):
            """One part of the bus word: an AND-OR multiplexer, which masks counters at no cost."""
            value = Const(0, PART)
            for word in range(beats):
                part = word * per_word + lane
                select = beat[word]
                if part in counters:
                    select &= self.completions.p.counted
                given = record.as_value().word_select(part, PART) & set_bits(self.queue, part)
                value |= given & select.replicate(PART)
            return value

        m.d.comb += [
            entry.ring.eq(self.ring),
            entry.last.eq(self.last),
            entry.numbers.p.eq(self.completed),
            sequence.eq(self.completed + 1),
            record.eq(self.completions.p.record),
            record.sequence.eq(sequence),
            write.request.p.address.eq(address),
            write.words.p.data.eq(Cat(selected(lane) for lane in range(per_word))),
            write.words.p.strobe.eq(~0),
            write.words.p.last.eq(beat[-1]),
            self.busy.eq(1),
        ]
        m.d.sync += self.completed_pulse.eq(0)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    entry.numbers.valid.eq(self.completions.valid),
                    self.busy.eq(self.completions.valid),
                ]
                with m.If(self.completions.valid & entry.numbers.ready):
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):  # Timing: registers the verdict of the region check
                m.d.sync += [fault.eq(entry_address.p.status), address.eq(entry_address.p.address)]
                with m.If(entry_address.valid):
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                with m.If(fault == Status.OK):
                    m.d.comb += write.request.valid.eq(1)
                    with m.If(write.request.ready):
                        m.next = "WORDS"
                with m.Else():
                    m.next = "FAULTED"
            with m.State("WORDS"):
                m.d.comb += write.words.valid.eq(1)
                with m.If(write.words.ready):
                    m.d.sync += beat.eq(beat.rotate_left(1))
                    with m.If(write.words.p.last):
                        m.next = "ACCEPT"
            with m.State("ACCEPT"):
                m.d.comb += self.completions.ready.eq(1)
                m.next = "OUTCOME"
            with m.State("OUTCOME"):
                m.d.comb += write.outcome.ready.eq(1)
                m.d.sync += fault.eq(fault_status(write.outcome.p.fault))
                with m.If(write.outcome.valid & (write.outcome.p.fault == 0)):
                    m.d.sync += [self.completed.eq(sequence), self.completed_pulse.eq(1)]
                    m.next = "IDLE"
                with m.Elif(write.outcome.valid):
                    m.next = "FAULTED"
            with m.State("FAULTED"):
                m.d.comb += [
                    self.completions.ready.eq(1),
                    self.fault.eq(fault),
                    self.faulted.eq(1),
                    self.busy.eq(0),
                ]
        return m
