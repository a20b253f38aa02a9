"""Write completions to a ring in memory."""

from amaranth import Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import COMPLETION_BYTES, Status
from ..interfaces.records import (
    UNSET,
    WriteClient,
    completion,
    reported_completion,
)
from .ring_address import EntryPort, fault_status


class CompletionWriter(wiring.Component):
    """Write completions one by one, and count those that are in memory.

    Parameters
    ----------
    config : Config
    queue : str
        One of `contract.QUEUES`.

    Attributes
    ----------
    completions : In(stream(reported_completion(config)))
        Accepted after the last word was sent.
    completed : Out(32)
        Number of completions in memory.
    completed_pulse : Out(1)
        A pulse: `completed` has increased.
    entry : Out(EntryPort(config))
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
            "completions": In(stream.Signature(reported_completion(config))),
            "completed": Out(32),
            "completed_pulse": Out(1),
            "entry": Out(EntryPort(config)),
            "write": Out(WriteClient(config)),
            "fault": Out(8),
            "faulted": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entry, entry_address, write = self.entry, self.entry.addresses, self.write
        fault = Signal(8)
        sequence = Signal(32)  # of the completion, from 1
        beats = COMPLETION_BYTES // self.config.bus_bytes
        beat = Signal(beats, init=1)  # one-hot
        address = Signal.like(entry_address.p.address, reset_less=True)
        m.d.comb += [
            entry.numbers.p.eq(self.completed),
            sequence.eq(self.completed + 1),
            write.request.p.address.eq(address),
            write.words.p.data.eq(self._word(m, beat, sequence)),
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

    def _word(self, m, beat, sequence):
        """The bus word of a one-hot beat.

        An AND-OR multiplexer of every field that the queue sets: the results of checks and of the
        engine have selects of their own, so that they take no multiplexer before this one.
        """
        given, width = self.completions.p, self.config.bus_width
        engine, word = given.by_engine.replicate(len(beat)), Const(0, width)
        for name, select, fields in (
                ("of_queue", beat, {"sequence": sequence, **_fields(
                    given, ("tag", "opcode", "start", "end"))}),
                ("of_checks", beat & ~engine, _fields(given.check)),
                ("of_engine", beat & engine, _fields(given.outcome, but=UNSET[self.queue]))):
            record, selects = Signal(completion, name=name), Signal.like(beat)
            m.d.comb += [selects.eq(select), *(record[key].eq(fields[key]) for key in fields)]
            for number in range(len(beat)):
                word |= (record.as_value().word_select(number, width)
                         & selects[number].replicate(width))
        return word


def _fields(record, names=None, but=()):
    """The fields of a record by name."""
    return {name: record[name] for name in names or record.shape().members if name not in but}
