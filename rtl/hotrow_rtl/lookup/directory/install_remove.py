"""INSTALL and REMOVE: a list of rows through the directory."""

from amaranth import Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...contract.encoding import NO_SLOT, ROW_ENTRY_BYTES, AllFlag, Opcode, Status
from ...interfaces.lookup_payloads import (
    DirectoryOp,
    bank_answer,
    beat_request,
    crossbar_request,
    crossbar_response,
    row_request,
    slot_number,
    waiting_beat,
)
from ...interfaces.records import (
    ReadClient,
    command,
    element,
    outcome,
    result,
    row_entry,
    table_update,
)
from ...lists.unpacker_packer import Unpacker
from ...primitives.pipeline_stage import stage
from ...primitives.skid_buffer import SkidBuffer
from .edit_request import EditRequest
from .entry_check import EntryCheck


class ListSequence(wiring.Component):
    """Start a list, or a clear of the whole directory; report at its end.

    Members
    -------
    command : In(stream(command))
    fetch : Out(request of Fetch)
    count : Out(start of Unpacker)
    op : Out(DirectoryOp)
        What the command asks for, until the next one.
    begin, clear : Out(1)
        Pulses with a command; `clear` with one for every entry.
    tallied : In(1)
        A pulse with the last answer.
    cleared : In(1)
        The directory is not being cleared. Low in the cycle after `clear`.
    ended : Out(stream)
        One per command, without payload.
    """

    def __init__(self, config: Config):
        super().__init__({
            "command": In(stream.Signature(command)),
            "fetch": Out(ReadClient(config).members["request"].signature),
            "count": Out(stream.Signature(data.StructLayout({"count": 32}))),
            "op": Out(DirectoryOp),
            "begin": Out(1),
            "clear": Out(1),
            "tallied": In(1),
            "cleared": In(1),
            "ended": Out(stream.Signature(1)),
        })

    def elaborate(self, platform):
        m = Module()
        order, busy, listing = self.command.p, Signal(), Signal()
        takes = Signal()  # decided a cycle ahead: that all memories are at rest is known late
        removes, everything = Signal(), Signal()
        m.d.comb += [
            self.command.ready.eq(takes),
            self.begin.eq(takes),
            removes.eq(order.opcode == Opcode.REMOVE),
            everything.eq(removes & ((order.flags & AllFlag.ALL) != 0)),
            self.clear.eq(self.begin & everything),
        ]
        m.d.sync += [
            takes.eq(self.command.valid & ~takes & ~busy & self.cleared),
            self.ended.valid.eq(
                busy & ~listing & self.cleared & ~(self.ended.valid & self.ended.ready)),
        ]
        for start in (self.fetch, self.count):
            with m.If(start.ready):
                m.d.sync += start.valid.eq(0)
        with m.If(self.tallied):
            m.d.sync += listing.eq(0)
        with m.If(self.ended.valid & self.ended.ready):
            m.d.sync += busy.eq(0)
        with m.If(self.begin):
            m.d.sync += [
                busy.eq(1),
                listing.eq(~everything),
                self.op.eq(Mux(removes, DirectoryOp.REMOVE, DirectoryOp.INSTALL)),
                self.fetch.valid.eq(~everything),
                self.fetch.p.address.eq(order.source),
                self.fetch.p.bytes.eq(order.count * ROW_ENTRY_BYTES),
                self.count.valid.eq(~everything),
                self.count.p.count.eq(order.count),
            ]
        return m


class ListTally(wiring.Component):
    """Slot words of the directory's answers to a list, their counts and the first refusal.

    Parameters
    ----------
    config : Config

    Members
    -------
    begin : In(1)
        A pulse clears the counts.
    op : In(DirectoryOp)
    beats : In(stream(crossbar_response(config, waiting_beat(config), bank_answer(config))))
        As from `EditRequest`, one entry in lane 0 of each.
    slots : Out(stream(result(32)))
    report : Out(outcome)
        Counts so far.
    done : Out(1)
        A pulse as the last answer is counted.

    Timing
    ------
    Latency 1 cycle, one entry a cycle; it is counted in the cycle after, and `done` tells it then.
    """

    def __init__(self, config: Config):
        self.config = config
        beat = crossbar_response(config, waiting_beat(config), bank_answer(config))
        super().__init__({
            "begin": In(1),
            "op": In(DirectoryOp),
            "beats": In(stream.Signature(beat)),
            "slots": Out(stream.Signature(result(32))),
            "report": Out(outcome),
            "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        beat, out, report = self.beats, self.slots, self.report
        entry, answer = beat.p.carried.lanes[0], beat.p.answers[0].found
        position, installs = Signal(32), self.op == DirectoryOp.INSTALL
        taken, served, hit, placed = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            beat.ready.eq(~out.valid | out.ready),
            taken.eq(beat.valid & beat.ready),
            served.eq(entry.present & (entry.status == Status.OK)),
            hit.eq(served & answer.hit),
            placed.eq(served & answer.placed),
        ]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(taken):
            m.d.sync += [
                out.valid.eq(1),
                out.p.value.eq(Mux(
                    placed, slot_number(self.config, beat.p.banks[0], answer.slot), NO_SLOT)),
                out.p.present.eq(1),
                out.p.last.eq(beat.p.carried.last),
            ]
        counts = stage(
            m, "counts", entries=placed, hits=installs & hit, misses=served & ~installs & ~hit,
            refused=served & installs & ~placed, wrong=~served, status=entry.status)
        counted = Signal()
        m.d.sync += [counted.eq(taken), self.done.eq(taken & beat.p.carried.last)]
        with m.If(counted):
            m.d.sync += position.eq(position + 1)
            m.d.sync += [report[name].eq(report[name] + getattr(counts, name))
                         for name in ("entries", "hits", "misses", "refused")]
            with m.If(counts.wrong & (report.status == Status.OK)):
                m.d.sync += [report.status.eq(counts.status), report.error_index.eq(position)]
        with m.If(self.begin):
            m.d.sync += [position.eq(0), report.eq(0)]
        return m


class InstallRemove(wiring.Component):
    """Install or remove the rows of a list, or free every slot.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
        INSTALL or REMOVE.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    source : Out(ReadClient(config))
    beats : Out(stream(crossbar_request(config, waiting_beat(config), row_request(config),
            beat_request(config))))
        To the ring of banks; see `EditRequest`.
    answered : In(stream(crossbar_response(config, waiting_beat(config), bank_answer(config))))
        The same beats, in order.
    clear : Out(1)
        A pulse frees every slot.
    cleared : In(1)
        The directory's `ready`, of all banks. Low in the cycle after `clear`.
    slots : Out(stream(result(32)))
        The slot of each entry, or NO_SLOT. Nothing of a REMOVE with ALL.
    outcome : Out(stream(outcome))
        Once per command, after the last slot: the counts and the first refused entry.
    restart : In(1)
        A pulse forgets the list in progress; the descriptors stay.
    ready : Out(1)
        Low while the descriptors are being cleared.

    Timing
    ------
    One entry a cycle while the ring takes and returns as many. The first beat comes
    `Unpacker.latency + SkidBuffer.latency + EntryCheck.latency + EditRequest.latency` cycles after the first
    word; the slot 1 cycle after the beat that tells it returned, the outcome 3.
    """

    def __init__(self, config: Config):
        self.config = config
        beat = crossbar_request(
            config, waiting_beat(config), row_request(config), beat_request(config))
        answered = crossbar_response(config, waiting_beat(config), bank_answer(config))
        super().__init__({
            "command": In(stream.Signature(command)),
            "table_update": In(table_update(config)),
            "source": Out(ReadClient(config)),
            "beats": Out(stream.Signature(beat)),
            "answered": In(stream.Signature(answered)),
            "clear": Out(1),
            "cleared": In(1),
            "slots": Out(stream.Signature(result(32))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        restarted = ResetInserter(self.restart)
        sequence, tally = ListSequence(self.config), ListTally(self.config)
        entries = Unpacker(self.config, row_entry, ROW_ENTRY_BYTES)
        m.submodules.sequence = restarted(sequence)
        m.submodules.entries = restarted(entries)
        m.submodules.tally = restarted(tally)
        m.submodules.check = check = EntryCheck(self.config)
        m.submodules.lane = lane = EditRequest(self.config)
        connect(m, command=flipped(self.command), sequence=sequence.command)
        connect(m, sequence=sequence.fetch, source=flipped(self.source.request))
        connect(m, sequence=sequence.count, entries=entries.start)
        connect(m, source=flipped(self.source.words), entries=entries.words)
        m.submodules.listed = listed = restarted(SkidBuffer(element(row_entry).size))
        m.d.comb += [  # ends the way of `ready` from the banks to the list port
            listed.i.valid.eq(entries.elements.valid),
            listed.i.p.eq(entries.elements.p.as_value()),
            entries.elements.ready.eq(listed.i.ready),
            check.entries.valid.eq(listed.o.valid),
            Value.cast(check.entries.p).eq(listed.o.p),
            listed.o.ready.eq(check.entries.ready),
        ]
        connect(m, check=check.checked, lane=lane.entries)
        connect(m, lane=lane.beats, ring=flipped(self.beats))
        connect(m, ring=flipped(self.answered), tally=tally.beats)
        connect(m, tally=tally.slots, slots=flipped(self.slots))
        connect(m, host=flipped(self.table_update), check=check.table_update)
        m.d.comb += [
            check.restart.eq(self.restart),
            lane.op.eq(sequence.op),
            lane.restart.eq(self.restart),
            tally.begin.eq(sequence.begin),
            tally.op.eq(sequence.op),
            sequence.tallied.eq(tally.done),
            sequence.cleared.eq(self.cleared & self.ready),
            self.clear.eq(sequence.clear),
            self.ready.eq(check.ready),
            self.outcome.valid.eq(sequence.ended.valid),
            sequence.ended.ready.eq(self.outcome.ready),
            self.outcome.p.eq(tally.report),
        ]
        return m
