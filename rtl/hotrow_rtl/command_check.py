"""Every check that a command must pass before any of its effects."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .command_rules import rules
from .config import LARGEST_STRIDE, LIST_ALIGNMENT, ROW_ALIGNMENT, Config, log2
from .contract import COMMAND_BYTES, OPERANDS, AllFlag, BatchFlag, Status
from .layouts import command, command_word
from .region_arbiter import RegionPort
from .table_span import TableSpanPort

LANE = 64  # bits of an address operand, and of a part of the command that is written as a whole

# A command and the first check that it failed. With status OK its address operands that were
# checked have been replaced by byte addresses.
checked_command = data.StructLayout({
    "command": command,
    "status": 8,
    "error_index": 64,
    "error_address": 64,
})


class CommandCheck(wiring.Component):
    """Check opcode, flags, shape, tables and address operands of a command, in this order.

    The command is kept here, and nowhere else in the queue, until the engine takes it.

    What is checked of each command, and in which order, follows from `command_rules`. The sum of
    the lengths of a jagged batch is checked where they are read.

    Parameters
    ----------
    config : Config
    queue : str
        "lookup" or "move": the other queue's commands are refused.

    Members
    -------
    words : In(stream(command_word(config)))
        Ready from word to word of a command, once the one before has been taken as `checked`.
    commands : Out(stream(command))
        Each command on offer; its check begins once it is taken up.
    checked : Out(stream(checked_command))
        One per command, in order.
    region : Out(RegionPort(config))
    tables : Out(TableSpanPort())
        Asked for batches only.

    Timing
    ------
    One command at a time: one cycle per bus word, then 5 cycles, 1 for each address operand that
    the queue's commands know, for a batch `table_count` + 4, and what the region check takes for
    each operand in use.
    """

    def __init__(self, config: Config, queue: str):
        self.config, self.queue = config, queue
        super().__init__({
            "words": In(stream.Signature(command_word(config))),
            "commands": Out(stream.Signature(command)),
            "checked": Out(stream.Signature(checked_command)),
            "region": Out(RegionPort(config)),
            "tables": Out(TableSpanPort()),
        })

    def elaborate(self, platform):
        m = Module()
        of_queue = rules(self.queue)
        operands = sorted({name for rule in of_queue.values() for name in rule.extents},
                          key=lambda name: OPERANDS[name].offset)
        held, words = Signal(command), self.words
        beat = Signal(range(COMMAND_BYTES // self.config.bus_bytes))
        given, at_operand = Signal(LANE), Signal()  # the operand under check; its address is wrong
        shape = Signal(data.StructLayout({
            "known": 1, "flags_defined": 1, "batch": 1, "list": 1, "event": 1, "stride": 1}))
        used = Signal(len(operands))
        operand = Signal(range(len(operands) + 1))
        samples = held.samples[:log2(self.config.batch_samples) + 1]  # TOO_LARGE goes before
        bags = Signal(len(samples) + len(held.table_count))
        spans, tables = self.tables.spans, self.tables.verdicts
        access, area = self.region.accesses, self.region.verdicts

        def fail(status, index=0, at=0):
            m.d.sync += [
                self.checked.p.status.eq(status),
                self.checked.p.error_index.eq(index),
                at_operand.eq(at),
            ]
            m.next = "DONE"

        def flagged(flag):
            return (held.flags & flag).any()

        def classify(rule):
            everything = flagged(AllFlag.ALL) if rule.may_be_all else Const(0)
            m.d.sync += [
                shape.known.eq(1),
                shape.flags_defined.eq((held.flags & ~Const(rule.flags, 8)) == 0),
                shape.batch.eq(rule.is_batch),
                shape.list.eq(rule.is_list & ~everything),
                shape.event.eq(rule.has_event),
                shape.stride.eq(rule.has_stride),
            ]
            for place, name in enumerate(operands):
                if extent := rule.extents.get(name):
                    wanted = flagged(extent.flag) if extent.flag else Const(1)
                    m.d.sync += used[place].eq(wanted & ~everything)

        def extents(name):
            """How long an operand is, by whether the command is a batch."""
            return {rule.is_batch: rule.extents[name]
                    for rule in of_queue.values() if name in rule.extents}

        units, element_log2 = Signal(max(32, len(bags))), Signal(3)  # of the operand under check

        def measure(extent):
            m.d.comb += [
                units.eq({"count": held.count, "samples": samples, "bags": bags}[extent.unit]),
                element_log2.eq(extent.element_log2),
            ]
            if extent.doubled_by:
                m.d.comb += element_log2.eq(extent.element_log2 + flagged(extent.doubled_by))

        # What comes from memory and what an operand is replaced by take the same way in.
        lanes, per_word = len(held.as_value()) // LANE, self.config.bus_width // LANE
        incoming, translated = Signal(self.config.bus_width), Signal(LANE)
        loads, replaces = Signal(), Signal()
        m.d.comb += [
            incoming.eq(Mux(loads, words.p.data, translated.replicate(per_word))),
            translated.eq(area.p.address),
            self.commands.p.eq(held),
            self.checked.p.command.eq(held),
            self.checked.p.error_address.eq(Mux(at_operand, given, 0)),
            access.p.address.eq(given),
            access.p.bytes.eq(units << element_log2),
        ]
        with m.Switch(operand):
            for place, name in enumerate(operands):
                with m.Case(place):
                    m.d.comb += given.eq(held[name])
                    for is_batch, extent in extents(name).items():
                        with m.If(shape.batch == is_batch):
                            measure(extent)
        at_lane = {8 * OPERANDS[name].offset // LANE: place for place, name in enumerate(operands)}
        for lane in range(lanes):
            writes = loads & (beat == lane // per_word)
            if lane in at_lane:
                writes |= replaces & (operand == at_lane[lane])
            with m.If(writes):
                m.d.sync += held.as_value().word_select(lane, LANE).eq(
                    incoming.word_select(lane % per_word, LANE))

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [words.ready.eq(1), loads.eq(words.valid)]
                m.d.sync += [
                    beat.eq(beat + words.valid), shape.eq(0), used.eq(0), operand.eq(0)]
                with m.If(words.valid & words.p.last):
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.commands.valid.eq(1)
                with m.If(self.commands.ready):
                    m.next = "CLASSIFY"
            with m.State("CLASSIFY"):
                with m.Switch(held.opcode):
                    for opcode, rule in of_queue.items():
                        with m.Case(opcode):
                            classify(rule)
                m.next = "SHAPE"
            with m.State("SHAPE"):
                m.d.sync += bags.eq(samples * held.table_count)
                nothing = held.count == 0
                stride = held.stride
                with m.If(~shape.known):
                    fail(Status.BAD_OPCODE, held.opcode)
                with m.Elif(~shape.flags_defined):
                    fail(Status.BAD_FLAGS, held.flags)
                with m.Elif(shape.event & (held.event >= self.config.events)):
                    fail(Status.BAD_EVENT, held.event)
                with m.Elif(shape.batch
                            & (nothing | (held.samples == 0) | (held.table_count == 0))):
                    fail(Status.EMPTY)
                with m.Elif(shape.batch & (held.samples > self.config.batch_samples)):
                    fail(Status.TOO_LARGE, held.samples)
                with m.Elif(shape.list & nothing):
                    fail(Status.EMPTY)
                with m.Elif(shape.stride & ((stride == 0) | (stride > LARGEST_STRIDE)
                                            | stride[:log2(ROW_ALIGNMENT)].any())):
                    fail(Status.MISALIGNED, stride)
                with m.Elif(shape.batch):
                    m.next = "LOOKUPS"
                with m.Else():
                    m.next = "OPERAND"
            with m.State("LOOKUPS"):
                with m.If(~flagged(BatchFlag.JAGGED) & (held.count != bags)):
                    fail(Status.LOOKUPS, bags)
                with m.Else():
                    m.next = "TABLES"
            with m.State("TABLES"):
                m.d.comb += [
                    spans.valid.eq(1),
                    spans.p.first.eq(held.first_table),
                    spans.p.count.eq(held.table_count),
                ]
                with m.If(spans.ready):
                    m.next = "TABLES CHECKED"
            with m.State("TABLES CHECKED"):
                m.d.comb += tables.ready.eq(1)
                with m.If(tables.valid & tables.p.unknown):
                    fail(Status.TABLE_UNKNOWN, tables.p.number)
                with m.Elif(tables.valid):
                    m.next = "OPERAND"
            with m.State("OPERAND"):
                with m.Switch(operand):
                    for place, name in enumerate(operands):
                        with m.Case(place):
                            extent, *_ = extents(name).values()
                            m.d.comb += [
                                access.valid.eq(used[place]),
                                access.p.write.eq(extent.write),
                            ]
                    with m.Default():
                        fail(Status.OK)
                with m.If(access.valid & access.ready):
                    m.next = "OPERAND CHECKED"
                with m.Elif(~access.valid):
                    m.d.sync += operand.eq(operand + 1)
            with m.State("OPERAND CHECKED"):
                m.d.comb += area.ready.eq(1)
                with m.If(area.valid):
                    with m.If(area.p.region):
                        fail(Status.REGION, 0, 1)
                    with m.Elif(area.p.read_only):
                        fail(Status.READ_ONLY, 0, 1)
                    with m.Elif(area.p.address[:log2(LIST_ALIGNMENT)].any()):
                        fail(Status.MISALIGNED, 0, 1)
                    with m.Else():
                        m.d.comb += replaces.eq(1)
                        m.d.sync += operand.eq(operand + 1)
                        m.next = "OPERAND"
            with m.State("DONE"):
                m.d.comb += self.checked.valid.eq(1)
                with m.If(self.checked.ready):
                    m.next = "IDLE"
        return m
