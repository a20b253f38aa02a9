"""Every check that a command must pass before any of its effects."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import LARGEST_STRIDE, LIST_ALIGNMENT, ROW_ALIGNMENT, STATE_ALIGNMENT, Config, log2
from ..contract.command_rules import rules
from ..contract.encoding import OPERANDS, AllFlag, BatchFlag, Status
from ..interfaces.command_assembler import keep_part
from ..interfaces.records import COMMAND_PART, COMMAND_PARTS, command, command_part, command_word
from ..primitives.ram import Ram
from .region_arbiter import RegionPort
from .table_range_check import TableRangePort

# A command, as it came, and the first check that it failed.
checked_command = data.StructLayout({
    "command": command,
    "status": 8,
    "error_index": 64,
    "error_address": 64,
})


class CommandValidator(wiring.Component):
    """Check opcode, flags, shape, tables and address operands of a command, in this order.

    The command is kept here, and nowhere else in the queue, until the engine takes it: in a memory
    of its parts, and what is read of it at once in registers besides.

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
        Taken over as many cycles as they have addresses, once the command before has been taken as
        `checked`.
    idle : Out(1)
        Nothing of a command has come.
    commands : Out(stream(command))
        Each command on offer; its check begins once it is taken up.
    checked : Out(stream(checked_command))
        One per command, in order.
    parts : Out(stream(command_part))
        Those of a command with status OK. Its address operands that were checked have been
        replaced by byte addresses, except those of spans. The command is not taken as `checked`
        before its last part is.
    region : Out(RegionPort(config))
    tables : Out(TableRangePort())
        Asked for batches only.

    Timing
    ------
    One command at a time: a cycle for each of its parts, then 6 cycles, 1 for each part from the
    first that any command of the queue has an address in to the last in use, for a batch
    `table_count` + 4, and for each address in use 2 and what the region check takes.
    """

    def __init__(self, config: Config, queue: str):
        self.config, self.queue = config, queue
        super().__init__({
            "words": In(stream.Signature(command_word(config))),
            "idle": Out(1),
            "commands": Out(stream.Signature(command)),
            "checked": Out(stream.Signature(checked_command)),
            "parts": Out(stream.Signature(command_part)),
            "region": Out(RegionPort(config)),
            "tables": Out(TableRangePort()),
        })

    def elaborate(self, platform):
        m = Module()
        of_queue = rules(self.queue, self.config)
        operands = {name for rule in of_queue.values() for name in rule.extents}
        part_of = {name: 8 * OPERANDS[name].offset // COMMAND_PART for name in operands}
        with_operands = sorted(set(part_of.values()))
        first, final = with_operands[0], with_operands[-1]
        has_plans = any(rule.is_plan for rule in of_queue.values())
        held, words, parts = Signal(command, reset_less=True), self.words, self.parts
        # `given` is the part of this `number`, as the memory is read for the one that follows.
        m.submodules.memory = memory = Ram(COMMAND_PART, COMMAND_PARTS)
        number, following, given = (
            Signal(range(COMMAND_PARTS)), Signal(range(COMMAND_PARTS)), memory.read_data)
        at_operand = Signal()  # the address of the operand under check is wrong
        shape = Signal(data.StructLayout({
            "known": 1, "flags_defined": 1, "batch": 1, "list": 1, "span": 1, "event": 1,
            "stride": 1, "pool": 1, "update": 1, **({"plan": 1} if has_plans else {})}))
        wrong = Signal(data.StructLayout({
            "event": 1, "batch": 1, "samples": 1, "lookups": 1, "nothing": 1, "stride": 1,
            "bytes": 1}))
        kind = Cat(shape.batch, shape.span, shape.pool, shape.update,
                   *([shape.plan] if has_plans else []))
        used = Signal(final + 1 - first)  # addresses from the part under check on
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
            defined = (held.flags & ~Const(rule.flags, 8)) == 0
            if rule.contrary:
                defined &= (held.flags & rule.contrary) != rule.contrary
            if has_plans:
                m.d.sync += shape.plan.eq(rule.is_plan)
            m.d.sync += [
                shape.known.eq(1),
                shape.flags_defined.eq(defined),
                shape.batch.eq(rule.is_batch),
                shape.list.eq(rule.is_list & ~everything),
                shape.span.eq(rule.is_span),
                shape.event.eq(rule.has_event),
                shape.stride.eq(rule.has_stride),
                shape.pool.eq(rule.is_pool),
                shape.update.eq(rule.is_update),
            ]
            for name, extent in rule.extents.items():
                wanted = flagged(extent.flag) if extent.flag else Const(1)
                m.d.sync += used[part_of[name] - first].eq(wanted & ~everything)

        def extents(part):
            """How long the operand in a part is, by the `kind` of the command."""
            return {(rule.is_batch, rule.is_span, rule.is_pool, rule.is_update, rule.is_plan):
                    extent for rule in of_queue.values()
                    for name, extent in rule.extents.items() if part_of[name] == part}

        units, element_log2 = Signal(max(32, len(bags))), Signal(3)  # of the operand under check

        def measure(extent):
            m.d.comb += [
                units.eq({"count": held.count, "samples": samples, "bags": held.bags,
                          "batch bags": bags}[extent.unit]),
                element_log2.eq(extent.element_log2),
            ]
            if extent.doubled_by:
                m.d.comb += element_log2.eq(extent.element_log2 + flagged(extent.doubled_by))

        # States with a flip-flop of their own, as what they enable is wide.
        receiving, asked = Signal(init=1), Signal()
        loads, turns, accepted = Signal(), Signal(), Signal()
        final_of_word = self.config.bus_width // COMMAND_PART - 1
        of_word = number & final_of_word
        part = words.p.data.word_select(of_word, COMMAND_PART)
        m.d.comb += [
            loads.eq(words.valid & receiving),
            words.ready.eq((of_word == final_of_word) & receiving),
            following.eq(number),
            memory.read_address.eq(following),
            memory.write_address.eq(number),
            memory.write_enable.eq(loads | accepted & ~shape.span),
            memory.write_data.eq(Mux(receiving, part, area.p.address)),
            self.commands.p.eq(held),
            self.checked.p.command.eq(held),
            self.checked.p.error_address.eq(Mux(at_operand, given, 0)),
            parts.p.number.eq(number),
            parts.p.data.eq(given),
            parts.p.last.eq(number == COMMAND_PARTS - 1),
            access.p.address.eq(given),
        ]
        m.d.sync += number.eq(following)
        low = area.p.address[:log2(LIST_ALIGNMENT)]
        misaligned = Mux(shape.span, low[:log2(STATE_ALIGNMENT)].any(), low.any())
        m.d.comb += accepted.eq(
            asked & area.valid & ~(area.p.region | area.p.read_only | misaligned))
        with m.If(loads):
            keep_part(m, held, number, part)
        with m.If(loads | turns):
            m.d.comb += following.eq(number + 1)
        with m.If(turns):
            m.d.sync += used.eq(used >> 1)
        with m.Switch(number):
            for at in with_operands:
                with m.Case(at):
                    for of_kind, extent in extents(at).items():
                        with m.If(kind == Cat(*map(Const, of_kind[:len(kind)]))):
                            measure(extent)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(number == 0)
                m.d.sync += [shape.eq(0), used.eq(0)]
                with m.If(words.valid & (number == COMMAND_PARTS - 1)):
                    m.d.sync += receiving.eq(0)
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.commands.valid.eq(1)
                with m.If(self.commands.ready):
                    m.next = "CLASSIFY"
            with m.State("CLASSIFY"):
                m.d.comb += following.eq(first)
                with m.Switch(held.opcode):
                    for opcode, rule in of_queue.items():
                        with m.Case(opcode):
                            classify(rule)
                m.next = "SHAPE"
            with m.State("SHAPE"):
                nothing, stride = held.count == 0, held.stride
                m.d.sync += [
                    bags.eq(samples * held.table_count),
                    wrong.event.eq(shape.event & (held.event >= self.config.events)),
                    wrong.batch.eq(shape.batch & (
                        nothing | (held.samples == 0) | (held.table_count == 0))),
                    wrong.samples.eq(shape.batch & (held.samples > self.config.batch_samples)),
                    wrong.lookups.eq(shape.batch & (held.count > self.config.batch_lookups)),
                    wrong.nothing.eq((shape.list | shape.span) & nothing
                                     | (shape.pool | shape.update) & (held.bags == 0)),
                    wrong.bytes.eq(shape.span & held.count[:log2(STATE_ALIGNMENT)].any()),
                    wrong.stride.eq(shape.stride & (
                        (stride == 0) | (stride > LARGEST_STRIDE)
                        | stride[:log2(ROW_ALIGNMENT)].any())),
                ]
                m.next = "JUDGE"
            with m.State("JUDGE"):
                with m.If(~shape.known):
                    fail(Status.BAD_OPCODE, held.opcode)
                with m.Elif(~shape.flags_defined):
                    fail(Status.BAD_FLAGS, held.flags)
                with m.Elif(wrong.event):
                    fail(Status.BAD_EVENT, held.event)
                with m.Elif(wrong.batch):
                    fail(Status.EMPTY)
                with m.Elif(wrong.samples):
                    fail(Status.TOO_LARGE, held.samples)
                with m.Elif(wrong.lookups):
                    fail(Status.TOO_LARGE, held.count)
                with m.Elif(wrong.nothing):
                    fail(Status.EMPTY)
                with m.Elif(wrong.stride):
                    fail(Status.MISALIGNED, held.stride)
                with m.Elif(wrong.bytes):
                    fail(Status.MISALIGNED, held.count)
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
                m.d.sync += access.p.bytes.eq(units << element_log2)
                with m.Switch(number):
                    for at in with_operands:
                        with m.Case(at):
                            extent, *_ = extents(at).values()
                            m.d.sync += access.p.write.eq(extent.write)
                with m.If(used[0]):
                    m.next = "ACCESS"
                with m.Elif(used.any()):
                    m.d.comb += turns.eq(1)
                with m.Else():
                    m.d.comb += following.eq(0)
                    fail(Status.OK)
            with m.State("ACCESS"):
                m.d.comb += access.valid.eq(1)
                with m.If(access.ready):
                    m.d.sync += asked.eq(1)
                    m.next = "VERDICT"
            with m.State("VERDICT"):
                with m.If(area.valid):
                    m.d.sync += asked.eq(0)
                    m.next = "ACCEPTED"
                    with m.If(area.p.region):
                        fail(Status.REGION, 0, 1)
                    with m.Elif(area.p.read_only):
                        fail(Status.READ_ONLY, 0, 1)
                    with m.Elif(misaligned):
                        fail(Status.MISALIGNED, 0, 1)
            with m.State("ACCEPTED"):  # told a cycle late: from verdicts to parts it is a long way
                m.d.comb += turns.eq(1)
                m.next = "OPERAND"
            with m.State("DONE"):
                m.d.comb += [
                    self.checked.valid.eq(1),
                    parts.valid.eq(self.checked.p.status == Status.OK),
                ]
                with m.If(parts.valid & parts.ready):
                    m.d.comb += following.eq(number + 1)
                with m.If(self.checked.ready):
                    m.d.comb += following.eq(0)
                    m.d.sync += receiving.eq(1)
                    m.next = "IDLE"
        return m
