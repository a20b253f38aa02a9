"""The checks that a command passes before it has any effect."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import LARGEST_STRIDE, LIST_ALIGNMENT, ROW_ALIGNMENT, STATE_ALIGNMENT, Config, log2
from ..contract.command_rules import rules
from ..contract.encoding import OPERANDS, AllFlag, BatchFlag, Status
from ..interfaces.command_assembler import keep_part
from ..interfaces.records import (
    COMMAND_PART,
    COMMAND_PARTS,
    check_result,
    command,
    command_part,
    command_word,
)
from ..primitives.ram import Ram
from .batch_order import list_range
from .region_arbiter import RegionPort
from .table_range_check import TableRangePort

# What the queue needs of a command before its checks, and of one that it executes itself.
queued_command = data.StructLayout({"tag": 32, "opcode": 8})
checked_command = data.StructLayout({
    "opcode": 8, "event": 32, "value": 32, "check": check_result})

# The properties of an opcode that select checks; see `contract.command_rules.Rule`.
_shape = data.StructLayout({
    "known": 1, "flags_defined": 1, "batch": 1, "list": 1, "span": 1, "event": 1, "stride": 1,
    "pool": 1, "update": 1, "plan": 1})
_error = data.StructLayout({
    "event": 1, "batch": 1, "samples": 1, "lookups": 1, "empty": 1, "stride": 1, "bytes": 1})


class CommandValidator(wiring.Component):
    """Check opcode, flags, shape, tables and address operands of a command, in this order.

    The command is stored here, and nowhere else in the queue, until the engine accepts it: in a
    memory of its parts, and in registers as far as logic reads it.

    `command_rules` defines the checks of each command and their order. The reader of a jagged batch
    checks the sum of its lengths.

    Parameters
    ----------
    config : Config
    queue : str
        "lookup" or "move": commands of the other queue are refused.

    Attributes
    ----------
    words : In(stream(command_word(config)))
        Accepted, over a cycle for each part, once the previous command was accepted at `checked`.
    idle : Out(1)
        No part of a command has arrived.
    commands : Out(stream(queued_command))
        Each command before its checks, which begin when it is accepted.
    checked : Out(stream(checked_command))
        One per command, in order.
    parts : Out(stream(command_part))
        The parts of a command with status OK. Address operands are replaced by byte addresses,
        except those of spans. The last part must be accepted before `checked`.
    ranges : Out(stream(list_range(config)))
        Each list that a command names as a whole, once it has passed its check.
    region : Out(RegionPort(config))
    tables : Out(TableRangePort())
        Used for batches only.

    Timing
    ------
    One command at a time: a cycle for each of its parts, then 6 cycles, 1 for each part from the
    queue's first address operand to the command's last, for a batch `table_count` + 4, and for each
    address in use 2, the latency of the region check and the cycles in which `ranges` stalls.
    """

    def __init__(self, config: Config, queue: str):
        self.config, self.queue = config, queue
        self.rules = rules(queue, config)
        self._pools_batches = any(rule.batch_flag for rule in self.rules.values())
        operands = {name for rule in self.rules.values() for name in rule.extents}
        self._part_of = {name: 8 * OPERANDS[name].offset // COMMAND_PART for name in operands}
        self._address_parts = sorted(set(self._part_of.values()))
        super().__init__({
            "words": In(stream.Signature(command_word(config))),
            "idle": Out(1),
            "commands": Out(stream.Signature(queued_command)),
            "checked": Out(stream.Signature(checked_command)),
            "parts": Out(stream.Signature(command_part)),
            "ranges": Out(stream.Signature(list_range(config))),
            "region": Out(RegionPort(config)),
            "tables": Out(TableRangePort()),
        })

    def elaborate(self, platform):
        m = Module()
        first, final = self._address_parts[0], self._address_parts[-1]
        words, parts, ranges = self.words, self.parts, self.ranges
        command_q = Signal(command, reset_less=True)
        # `part` has index `part_idx`; the memory is read at the next index.
        m.submodules.memory = memory = Ram(COMMAND_PART, COMMAND_PARTS)
        part_idx, next_idx = Signal(range(COMMAND_PARTS)), Signal(range(COMMAND_PARTS))
        part = memory.read_data
        at_operand = Signal()  # the error is in the address operand `part`
        shape, error = Signal(_shape), Signal(_error)
        used = Signal(final + 1 - first)  # parts with addresses to check, from `part` on
        samples = command_q.samples[:log2(self.config.batch_samples) + 1]  # TOO_LARGE if more
        bags = Signal(len(samples) + len(command_q.table_count))
        spans, tables = self.tables.spans, self.tables.verdicts
        check = self.checked.p.check
        access, verdict = self.region.accesses, self.region.verdicts

        def finish(status, index=0, at=0):
            m.d.sync += [
                check.status.eq(status),
                check.error_index.eq(index),
                at_operand.eq(at),
            ]
            m.next = "DONE"

        # Timing: states with flip-flops of their own, as they enable wide registers.
        receiving, access_sent = Signal(init=1), Signal()
        load, next_operand, accepted = Signal(), Signal(), Signal()
        last_of_word = self.config.bus_width // COMMAND_PART - 1
        idx_in_word = part_idx & last_of_word
        received = words.p.data.word_select(idx_in_word, COMMAND_PART)
        m.d.comb += [
            load.eq(words.valid & receiving),
            words.ready.eq((idx_in_word == last_of_word) & receiving),
            next_idx.eq(part_idx),
            memory.read_address.eq(next_idx),
            memory.write_address.eq(part_idx),
            memory.write_enable.eq(load | accepted & ~shape.span),
            memory.write_data.eq(Mux(receiving, received, verdict.p.address)),
            *(port[name].eq(command_q[name]) for port, names in (
                (self.commands.p, ("tag", "opcode")),
                (self.checked.p, ("opcode", "event", "value"))) for name in names),
            check.error_address.eq(Mux(at_operand, part, 0)),
            parts.p.number.eq(part_idx),
            parts.p.data.eq(part),
            parts.p.last.eq(part_idx == COMMAND_PARTS - 1),
            access.p.address.eq(part),
            ranges.p.bytes.eq(access.p.bytes),
            ranges.p.write.eq(access.p.write),
        ]
        m.d.sync += part_idx.eq(next_idx)
        low = verdict.p.address[:log2(LIST_ALIGNMENT)]
        misaligned = Mux(shape.span, low[:log2(STATE_ALIGNMENT)].any(), low.any())
        m.d.comb += accepted.eq(
            access_sent & verdict.valid
            & ~(verdict.p.region | verdict.p.read_only | misaligned))
        with m.If(load):
            keep_part(m, command_q, part_idx, received)
        with m.If(load | next_operand):
            m.d.comb += next_idx.eq(part_idx + 1)
        with m.If(next_operand):
            m.d.sync += used.eq(used >> 1)
        size_bytes = self._operand_size(m, command_q, part_idx, shape, samples, bags)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(part_idx == 0)
                m.d.sync += [shape.eq(0), used.eq(0)]
                with m.If(words.valid & (part_idx == COMMAND_PARTS - 1)):
                    m.d.sync += receiving.eq(0)
                    m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.commands.valid.eq(1)
                with m.If(self.commands.ready):
                    m.next = "CLASSIFY"
            with m.State("CLASSIFY"):
                m.d.comb += next_idx.eq(first)
                self._classify(m, command_q, shape, used)
                m.next = "SHAPE"
            with m.State("SHAPE"):
                m.d.sync += bags.eq(samples * command_q.table_count)
                self._compare(m, command_q, shape, error)
                m.next = "JUDGE"
            with m.State("JUDGE"):
                self._judge(m, command_q, shape, error, finish)
            with m.State("LOOKUPS"):
                dense = ~_flagged(command_q, BatchFlag.JAGGED)
                if self._pools_batches:
                    dense &= ~shape.pool
                with m.If(dense & (command_q.count != bags)):
                    finish(Status.LOOKUPS, bags)
                with m.Else():
                    m.next = "TABLES"
            with m.State("TABLES"):
                m.d.comb += [
                    spans.valid.eq(1),
                    spans.p.first.eq(command_q.first_table),
                    spans.p.count.eq(command_q.table_count),
                ]
                with m.If(spans.ready):
                    m.next = "TABLES CHECKED"
            with m.State("TABLES CHECKED"):
                m.d.comb += tables.ready.eq(1)
                with m.If(tables.valid & tables.p.unknown):
                    finish(Status.TABLE_UNKNOWN, tables.p.number)
                with m.Elif(tables.valid):
                    m.next = "OPERAND"
            with m.State("OPERAND"):
                m.d.sync += access.p.bytes.eq(size_bytes)
                with m.Switch(part_idx):
                    for at in self._address_parts:
                        with m.Case(at):
                            extent, *_ = self._extents(at).values()
                            m.d.sync += access.p.write.eq(extent.write)
                with m.If(used[0]):
                    m.next = "ACCESS"
                with m.Elif(used.any()):
                    m.d.comb += next_operand.eq(1)
                with m.Else():
                    m.d.comb += next_idx.eq(0)
                    finish(Status.OK)
            with m.State("ACCESS"):
                m.d.comb += access.valid.eq(1)
                with m.If(access.ready):
                    m.d.sync += access_sent.eq(1)
                    m.next = "VERDICT"
            with m.State("VERDICT"), m.If(verdict.valid):
                m.d.sync += [
                    access_sent.eq(0),
                    ranges.p.first.eq(verdict.p.address[log2(LIST_ALIGNMENT):]),
                ]
                m.next = "ACCEPTED"
                with m.If(verdict.p.region):
                    finish(Status.REGION, 0, 1)
                with m.Elif(verdict.p.read_only):
                    finish(Status.READ_ONLY, 0, 1)
                with m.Elif(misaligned):
                    finish(Status.MISALIGNED, 0, 1)
            with m.State("ACCEPTED"):  # Timing: registers the path from verdicts to parts
                m.d.comb += [ranges.valid.eq(1), next_operand.eq(ranges.ready)]
                with m.If(ranges.ready):
                    m.next = "OPERAND"
            with m.State("DONE"):
                m.d.comb += [
                    self.checked.valid.eq(1),
                    parts.valid.eq(check.status == Status.OK),
                ]
                with m.If(parts.valid & parts.ready):
                    m.d.comb += next_idx.eq(part_idx + 1)
                with m.If(self.checked.ready):
                    m.d.comb += next_idx.eq(0)
                    m.d.sync += receiving.eq(1)
                    m.next = "IDLE"
        return m

    def _judge(self, m, command_q, shape, error, finish):
        """Refuse a command by its first error, or go on with its tables or operands."""
        with m.If(~shape.known):
            finish(Status.BAD_OPCODE, command_q.opcode)
        with m.Elif(~shape.flags_defined):
            finish(Status.BAD_FLAGS, command_q.flags)
        with m.Elif(error.event):
            finish(Status.BAD_EVENT, command_q.event)
        with m.Elif(error.batch):
            finish(Status.EMPTY)
        with m.Elif(error.samples):
            finish(Status.TOO_LARGE, command_q.samples)
        with m.Elif(error.lookups):
            finish(Status.TOO_LARGE, command_q.count)
        with m.Elif(error.empty):
            finish(Status.EMPTY)
        with m.Elif(error.stride):
            finish(Status.MISALIGNED, command_q.stride)
        with m.Elif(error.bytes):
            finish(Status.MISALIGNED, command_q.count)
        with m.Elif(shape.batch):
            m.next = "LOOKUPS"
        with m.Else():
            m.next = "OPERAND"

    def _classify(self, m, command_q, shape, used):
        """Register the properties of the opcode and the address operands in use."""
        first = self._address_parts[0]
        with m.Switch(command_q.opcode):
            for opcode, rule in self.rules.items():
                everything = (_flagged(command_q, AllFlag.ALL) if rule.may_be_all else Const(0))
                defined = (command_q.flags & ~Const(rule.flags, 8)) == 0
                if rule.contrary:
                    defined &= (command_q.flags & rule.contrary) != rule.contrary
                with m.Case(opcode):
                    m.d.sync += [
                        shape.plan.eq(rule.is_plan),
                        shape.known.eq(1),
                        shape.flags_defined.eq(defined),
                        shape.batch.eq((command_q.flags & rule.batch_flag).any()
                                       if rule.batch_flag else rule.is_batch),
                        shape.list.eq(rule.is_list & ~everything),
                        shape.span.eq(rule.is_span),
                        shape.event.eq(rule.has_event),
                        shape.stride.eq(rule.has_stride),
                        shape.pool.eq(rule.is_pool),
                        shape.update.eq(rule.is_update),
                        *(used[self._part_of[name] - first].eq(
                            (_flagged(command_q, extent.flag) if extent.flag else Const(1))
                            & ~everything) for name, extent in rule.extents.items()),
                    ]

    def _compare(self, m, command_q, shape, error):
        """Register the errors in the command's numbers."""
        nothing, stride = command_q.count == 0, command_q.stride
        m.d.sync += [
            error.event.eq(shape.event & (command_q.event >= self.config.events)),
            error.batch.eq(shape.batch & (
                nothing | (command_q.samples == 0) | (command_q.table_count == 0))),
            error.samples.eq(shape.batch & (command_q.samples > self.config.batch_samples)),
            error.lookups.eq(shape.batch & (command_q.count > self.config.batch_lookups)),
            error.empty.eq((shape.list | shape.span) & nothing
                           | (shape.pool | shape.update) & (command_q.bags == 0)),
            error.bytes.eq(shape.span & command_q.count[:log2(STATE_ALIGNMENT)].any()),
            error.stride.eq(shape.stride & (
                (stride == 0) | (stride > LARGEST_STRIDE)
                | stride[:log2(ROW_ALIGNMENT)].any())),
        ]

    def _operand_size(self, m, command_q, part_idx, shape, samples, bags):
        """Bytes of memory that the address operand in the current part names."""
        units, element_log2 = Signal(max(32, len(bags))), Signal(3)
        kind = Cat(shape.batch, shape.span, shape.pool, shape.update, shape.plan)
        counts = {"count": command_q.count, "samples": samples, "bags": command_q.bags,
                  "batch bags": bags}
        with m.Switch(part_idx):
            for at in self._address_parts:
                with m.Case(at):
                    for of_kind, extent in self._extents(at).items():
                        doubled = (_flagged(command_q, extent.doubled_by)
                                   if extent.doubled_by else 0)
                        with m.If(kind == Cat(*map(Const, of_kind))):
                            m.d.comb += [units.eq(counts[extent.unit]),
                                         element_log2.eq(extent.element_log2 + doubled)]
        return units << element_log2

    def _extents(self, part):
        """The extents of the operands in a part, by the kind of command."""
        kinds = [(rule, rule.is_batch, rule.extents) for rule in self.rules.values()]
        kinds += [(rule, True, rule.batch_extents)
                  for rule in self.rules.values() if rule.batch_flag]
        return {(batch, rule.is_span, rule.is_pool, rule.is_update, rule.is_plan): extent
                for rule, batch, extents in kinds
                for name, extent in extents.items() if self._part_of[name] == part}


def _flagged(command_q, flag):
    return (command_q.flags & flag).any()
