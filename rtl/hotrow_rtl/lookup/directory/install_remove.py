"""INSTALL and REMOVE: apply a list of rows to the directory."""

from amaranth import Module, Mux, ResetInserter, Signal
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
from .entry_check import EntryCheck
from .list_request import ListRequestStage


class ListSequencer(wiring.Component):
    """Start a list, or a clear of the whole directory, and report its end.

    Attributes
    ----------
    command : In(stream(command))
    fetch : Out(request of ReadClient)
    count : Out(start of Unpacker)
    op : Out(DirectoryOp)
        Operation of the command in progress.
    begin, clear : Out(1)
        A pulse at the start of a command; `clear` if it frees every slot.
    counted : In(1)
        A pulse when the last response has been counted.
    cleared : In(1)
        No memory is being cleared. Low in the cycle after `clear`.
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
            "counted": In(1),
            "cleared": In(1),
            "ended": Out(stream.Signature(1)),
        })

    def elaborate(self, platform):
        m = Module()
        p, busy, listing = self.command.p, Signal(), Signal()
        start = Signal()  # Timing: registered, since `cleared` collects all memories
        removes, removes_all = Signal(), Signal()
        m.d.comb += [
            self.command.ready.eq(start),
            self.begin.eq(start),
            removes.eq(p.opcode == Opcode.REMOVE),
            removes_all.eq(removes & ((p.flags & AllFlag.ALL) != 0)),
            self.clear.eq(self.begin & removes_all),
        ]
        m.d.sync += [
            start.eq(self.command.valid & ~start & ~busy & self.cleared),
            self.ended.valid.eq(
                busy & ~listing & self.cleared & ~(self.ended.valid & self.ended.ready)),
        ]
        for request in (self.fetch, self.count):
            with m.If(request.ready):
                m.d.sync += request.valid.eq(0)
        with m.If(self.counted):
            m.d.sync += listing.eq(0)
        with m.If(self.ended.valid & self.ended.ready):
            m.d.sync += busy.eq(0)
        with m.If(self.begin):
            m.d.sync += [
                busy.eq(1),
                listing.eq(~removes_all),
                self.op.eq(Mux(removes, DirectoryOp.REMOVE, DirectoryOp.INSTALL)),
                self.fetch.valid.eq(~removes_all),
                self.fetch.p.address.eq(p.source),
                self.fetch.p.bytes.eq(p.count * ROW_ENTRY_BYTES),
                self.count.valid.eq(~removes_all),
                self.count.p.count.eq(p.count),
            ]
        return m


class ListStatistics(wiring.Component):
    """Turn the directory's answers to a list into slot words, counts and the first refusal.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    begin : In(1)
        A pulse clears the counts.
    op : In(DirectoryOp)
    beats : In(stream(crossbar_response(config, waiting_beat(config), bank_answer(config))))
        One entry in lane 0 of each, as from `ListRequestStage`.
    slots : Out(stream(result(32)))
    report : Out(outcome)
        Counts so far.
    done : Out(1)
        A pulse in the cycle before `report` includes the last response.

    Timing
    ------
    Latency 1 cycle to `slots` and `done`, 2 cycles to `report`; one entry a cycle.
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
        entry, found = beat.p.carried.lanes[0], beat.p.answers[0].found
        index, installs = Signal(32), self.op == DirectoryOp.INSTALL
        fire, served, hit, placed = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            beat.ready.eq(~out.valid | out.ready),
            fire.eq(beat.valid & beat.ready),
            served.eq(entry.present & (entry.status == Status.OK)),
            hit.eq(served & found.hit),
            placed.eq(served & found.placed),
        ]
        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(fire):
            m.d.sync += [
                out.valid.eq(1),
                out.p.value.eq(Mux(
                    placed, slot_number(self.config, beat.p.banks[0], found.slot), NO_SLOT)),
                out.p.present.eq(1),
                out.p.last.eq(beat.p.carried.last),
            ]
        counts = stage(
            m, "counts", entries=placed, hits=installs & hit, misses=served & ~installs & ~hit,
            refused=served & installs & ~placed, wrong=~served, status=entry.status)
        fire_q = Signal()
        m.d.sync += [fire_q.eq(fire), self.done.eq(fire & beat.p.carried.last)]
        with m.If(fire_q):
            m.d.sync += index.eq(index + 1)
            m.d.sync += [report[name].eq(report[name] + getattr(counts, name))
                         for name in ("entries", "hits", "misses", "refused")]
            with m.If(counts.wrong & (report.status == Status.OK)):
                m.d.sync += [report.status.eq(counts.status), report.error_index.eq(index)]
        with m.If(self.begin):
            m.d.sync += [index.eq(0), report.eq(0)]
        return m


class InstallRemove(wiring.Component):
    """Install or remove the rows of a list, or free every slot.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    command : In(stream(command))
        INSTALL or REMOVE.
    table_update : In(table_update(config))
        Table descriptors as the host registers them.
    source : Out(ReadClient(config))
    beats : Out(stream(crossbar_request(config, waiting_beat(config), row_request(config),
            beat_request(config))))
        To the crossbar; see `ListRequestStage`.
    answered : In(stream(crossbar_response(config, waiting_beat(config), bank_answer(config))))
        The same beats from the crossbar, in order.
    clear : Out(1)
        A pulse frees every slot.
    cleared : In(1)
        No bank clears its slots. Low in the cycle after `clear`.
    slots : Out(stream(result(32)))
        The slot of each entry, or NO_SLOT. A REMOVE with ALL returns none.
    outcome : Out(stream(outcome))
        One per command, after the last slot is valid: the counts and the first refused entry.
    restart : In(1)
        A pulse drops the list in progress; the descriptors stay.
    ready : Out(1)
        Low while the descriptors are cleared after reset.

    Timing
    ------
    One entry a cycle while the crossbar accepts and returns as many. The first beat follows
    the first word by `Unpacker.latency + SkidBuffer.latency + EntryCheck.latency +
    ListRequestStage.latency` cycles. A slot follows its response by 1 cycle, the outcome follows
    the last response by 3.
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
        sequencer, statistics = ListSequencer(self.config), ListStatistics(self.config)
        entries = Unpacker(self.config, row_entry, ROW_ENTRY_BYTES)
        # Timing: ends the path of `ready` from the banks to the list port.
        buffer = SkidBuffer(element(row_entry))
        m.submodules.sequencer = restarted(sequencer)
        m.submodules.entries = restarted(entries)
        m.submodules.buffer = restarted(buffer)
        m.submodules.statistics = restarted(statistics)
        m.submodules.check = check = EntryCheck(self.config)
        m.submodules.requests = requests = ListRequestStage(self.config)
        connect(m, command=flipped(self.command), sequencer=sequencer.command)
        connect(m, sequencer=sequencer.fetch, source=flipped(self.source.request))
        connect(m, sequencer=sequencer.count, entries=entries.start)
        connect(m, source=flipped(self.source.words), entries=entries.words)
        connect(m, entries=entries.elements, buffer=buffer.i)
        connect(m, buffer=buffer.o, check=check.entries)
        connect(m, check=check.checked, requests=requests.entries)
        connect(m, requests=requests.beats, crossbar=flipped(self.beats))
        connect(m, crossbar=flipped(self.answered), statistics=statistics.beats)
        connect(m, statistics=statistics.slots, slots=flipped(self.slots))
        connect(m, host=flipped(self.table_update), check=check.table_update)
        m.d.comb += [
            check.restart.eq(self.restart),
            requests.op.eq(sequencer.op),
            requests.restart.eq(self.restart),
            statistics.begin.eq(sequencer.begin),
            statistics.op.eq(sequencer.op),
            sequencer.counted.eq(statistics.done),
            sequencer.cleared.eq(self.cleared & self.ready),
            self.clear.eq(sequencer.clear),
            self.ready.eq(check.ready),
            self.outcome.valid.eq(sequencer.ended.valid),
            sequencer.ended.ready.eq(self.outcome.ready),
            self.outcome.p.eq(statistics.report),
        ]
        return m
