"""The control registers of `contract.registers` on AXI4-Lite."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..contract.encoding import IDENTITY, QUEUES, VERSION
from ..contract.registers import (
    GEOMETRY,
    REGISTERS,
    Access,
    ControlBits,
    FaultBits,
    QueueControlBits,
    RegionCommitBits,
    StatusBits,
    TableFormatBits,
    TablePartitionBits,
    TableRowBits,
    registers_of,
)
from ..interfaces.records import region_update, table_update
from ..interfaces.retirement import Retirement
from ..memory.axi import AXI4Lite
from ..primitives.bits import saturate
from ..primitives.ram import ClearedRam
from .axi_lite_slave import AXI4LiteSlave
from .event_counters import EventPort
from .queue_control import QueueControl, fields_of, register_layout

REGISTER_ADDRESS_WIDTH = 12  # a page of the host, larger than the register space

# Registers that are written and have logic of their own; a read of the others returns what was
# written.
_WITH_LOGIC = {"CONTROL", "FAULT", "INTERRUPT", "EVENT_VALUE", "PLAN_RETIRED",
               *(f"{queue.upper()}_{name}" for queue in QUEUES for name in ("CONTROL", "TAIL"))}


class RegisterBlock(wiring.Component):
    """Registers of the card, one access at a time.

    Byte strobes are honoured. A write to a read-only register is ignored; a write-only register
    reads as 0. An access to an unknown register, a commit of a region or table that the card does
    not have, and EVENT_VALUE of an unknown event are answered with SLVERR, change nothing and set
    UNKNOWN of FAULT. A number that PLAN_RETIRED refuses sets RETIREMENT, and is answered with OKAY.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    bus : In(AXI4Lite(address_width=REGISTER_ADDRESS_WIDTH))
    queues : Out(QueueControl()).array(2)
        In the order of `contract.QUEUES`.
    events : Out(EventPort(config))
    region_update, table_update : Out
        One pulse of `enable` per commit, for every copy of the table.
    timeout : Out(32)
    soft_reset : Out(1)
        A pulse.
    cycle : Out(64)
        Cycles since reset.
    ready : In(1)
        Memories are cleared and ports drained.
    stopped : In(4)
        After a time-out: list port, a result port, reads of a row port, its writes.
    interrupt : Out(1)
    retirement : Out(Retirement())
        Card with a planner.

    Timing
    ------
    A response follows 8 cycles after its request. EVENT_VALUE also waits for the event counters,
    and the first access after reset for the clearing of a memory: one cycle per plain register,
    rounded up to a power of two. The next access sees the effect of a write.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bus": In(AXI4Lite(address_width=REGISTER_ADDRESS_WIDTH)),
            "queues": Out(QueueControl()).array(len(QUEUES)),
            "events": Out(EventPort(config)),
            "region_update": Out(region_update(config)),
            "table_update": Out(table_update(config)),
            "timeout": Out(32),
            "soft_reset": Out(1),
            "cycle": Out(64),
            "ready": In(1),
            "stopped": In(4),
            "interrupt": Out(1),
            **({"retirement": Out(Retirement())} if config.planner else {}),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.slave = slave = AXI4LiteSlave(REGISTER_ADDRESS_WIDTH)
        wiring.connect(m, block=wiring.flipped(self.bus), slave=slave.bus)
        access = _Access(m, slave.accesses.p)

        registers = registers_of(self.config)
        plain = {name: Signal(32, name=name.lower()) for name, register in registers.items()
                 if register.access == Access.READ_WRITE and name not in _WITH_LOGIC}
        self._plain(m, access, plain)
        # Timing: a register, as its sources are far.
        status = Signal(register_layout(StatusBits))
        m.d.sync += [
            status.ready.eq(self.ready), status.list_port.eq(self.stopped[0]),
            status.result_ports.eq(self.stopped[1]), status.row_reads.eq(self.stopped[2]),
            status.row_writes.eq(self.stopped[3]),
        ]
        reads = {
            "IDENTITY": Const(IDENTITY, 32),
            "VERSION": Const(VERSION, 32),
            **{name: Const(getattr(self.config, parameter), 32)
               for name, _, parameter in GEOMETRY},
            "STATUS": status.as_value(),
            "EVENT_VALUE": Const(0, 32),  # replaced by the event counters' reply
            **self._control(m, access),
            **self._cycle(m, access),
        }
        if self.config.planner:
            reads |= self._planner(m, access)
        for queue, control in zip(QUEUES, self.queues, strict=True):
            reads |= self._queue(m, access, queue, control, plain)
        nothing = [name for name, register in registers.items() if name not in reads | plain
                   and register.access != Access.WRITE_ONLY]
        assert not nothing, f"a read of {', '.join(nothing)} has no source"
        self._commits(m, access, plain)
        m.d.comb += [
            self.timeout.eq(plain["TIMEOUT"]),
            self.events.request.p.event.eq(plain["EVENT_SELECT"]),
            self.events.request.p.value.eq(access.merged),
        ]
        exists = {
            "REGION_COMMIT": plain["REGION_HANDLE"] < self.config.handles,
            "TABLE_COMMIT": plain["TABLE_NUMBER"] < self.config.tables,
            "EVENT_VALUE": plain["EVENT_SELECT"] < self.config.events,
        }
        self._serve(m, access, slave, reads, exists)
        return m

    def _plain(self, m, access, plain):
        """Write plain registers; reads use a copy in a memory, which takes less logic."""
        m.submodules.plain = copy = ClearedRam(32, 1 << (len(plain) - 1).bit_length())
        row, is_plain = Signal.like(copy.read_address), Signal()
        m.d.comb += [
            access.ready.eq(copy.ready),
            access.plain.eq(Mux(is_plain, copy.read_data, 0)),
            copy.write_enable.eq(access.write & access.payload.write & is_plain),
            copy.write_address.eq(row),
            copy.write_data.eq(access.merged),
            copy.read_address.eq(row),
        ]
        with m.If(access.lookup):
            m.d.sync += is_plain.eq(0)
            with m.Switch(access.word):
                for number, name in enumerate(plain):
                    with m.Case(REGISTERS[name].offset // 4):
                        m.d.sync += [row.eq(number), is_plain.eq(1)]
        for number, register in enumerate(plain.values()):
            with m.If(copy.write_enable & (row == number)):
                m.d.sync += register.eq(access.merged)

    def _serve(self, m, access, slave, reads, exists):
        """Look the register up, carry a write out, reply."""
        setting = Signal()  # EVENT_VALUE is written, after it was read
        request, event = self.events.request, self.events.reply
        m.d.comb += [
            request.p.write.eq(setting),
            slave.replies.p.data.eq(Mux(access.known, access.value, 0)),
            slave.replies.p.refused.eq(~access.known),
        ]
        with m.FSM():
            with m.State("ACCEPT"):
                m.d.sync += access.word.eq(access.payload.word)
                with m.If(slave.accesses.valid & access.ready):
                    m.next = "LOOKUP"
            with m.State("LOOKUP"):
                m.d.comb += access.lookup.eq(1)
                m.d.sync += [access.value.eq(0), access.known.eq(0), setting.eq(0)]
                m.next = "READ"
                with m.If(access.at("EVENT_VALUE") & exists["EVENT_VALUE"]):
                    m.next = "REQUEST EVENT"
                with m.Switch(access.word):
                    for register in registers_of(self.config).values():
                        with m.Case(register.offset // 4):
                            m.d.sync += access.known.eq(exists.get(register.name, 1))
                            if register.name in reads:
                                m.d.sync += access.value.eq(reads[register.name])
            with m.State("READ"):
                m.next = "MERGE"
            with m.State("MERGE"):
                m.d.sync += access.value.eq(access.value | access.plain)
                m.next = "WRITE"
            with m.State("REQUEST EVENT"):
                m.d.comb += request.valid.eq(1)
                with m.If(request.ready):
                    m.next = "EVENT"
            with m.State("EVENT"):
                m.d.comb += event.ready.eq(1)
                with m.If(event.valid & setting):
                    m.d.comb += slave.accesses.ready.eq(1)
                    m.next = "REPLY"
                with m.Elif(event.valid):
                    m.d.sync += access.value.eq(event.p)
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += access.write.eq(1)
                with m.If(access.writes("EVENT_VALUE")):
                    m.d.sync += setting.eq(1)
                    m.next = "REQUEST EVENT"
                with m.Else():
                    m.d.comb += slave.accesses.ready.eq(1)
                    m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += slave.replies.valid.eq(1)
                with m.If(slave.replies.ready):
                    m.next = "ACCEPT"

    def _control(self, m, access):
        """CONTROL, FAULT and INTERRUPT."""
        enabled, pending = Signal(len(QUEUES)), Signal(len(QUEUES))
        faults, fault = (Signal(register_layout(FaultBits)) for _ in range(2))
        control = fields_of(ControlBits, access.merged)
        m.d.sync += self.soft_reset.eq(access.writes("CONTROL") & control.soft_reset)
        with m.If(access.writes("CONTROL")):
            m.d.sync += enabled.eq(Cat(control.interrupt_lookup, control.interrupt_move))
        m.d.comb += [
            fault.doorbell_lookup.eq(self.queues[0].refused),
            fault.doorbell_move.eq(self.queues[1].refused),
            fault.unknown.eq(access.write & ~access.known),
        ]
        if self.config.planner:
            m.d.comb += fault.retirement.eq(self.retirement.refused)
        sticky_bits = {
            "INTERRUPT": (pending, Cat(queue.completed_pulse for queue in self.queues)),
            "FAULT": (faults.as_value(), fault.as_value()),
        }
        for name, (sticky, events) in sticky_bits.items():
            cleared = Mux(access.writes(name), access.strobed, 0)
            m.d.sync += sticky.eq(sticky & ~cleared | events)
        m.d.comb += self.interrupt.eq((pending & enabled).any())
        return {"CONTROL": Cat(Const(0, 1), enabled), "FAULT": faults.as_value(),
                "INTERRUPT": pending}

    def _cycle(self, m, access):
        """The cycle counter; a read of the lower half latches the upper half."""
        lower, upper = Signal(32), Signal(32)
        m.d.sync += self.cycle.eq(self.cycle + 1)
        m.d.comb += lower.eq(self.cycle)
        with m.If(access.lookup & access.at("CYCLE_LOW") & ~access.payload.write):
            m.d.sync += upper.eq(self.cycle[32:])
        return {"CYCLE_LOW": lower, "CYCLE_HIGH": upper}

    def _planner(self, m, access):
        """PLAN_RETIRED and PLAN_WINDOW."""
        host = self.retirement
        m.d.sync += [host.write.eq(access.writes("PLAN_RETIRED")), host.number.eq(access.merged)]
        return {"PLAN_RETIRED": host.retired,
                "PLAN_WINDOW": Const(self.config.sweep_batches, 32)}

    def _queue(self, m, access, queue, control, plain):
        """The registers of one command queue."""
        writes_control = access.writes(_of(queue, "CONTROL"))
        written = fields_of(QueueControlBits, access.merged)
        m.d.sync += [
            control.start.eq(writes_control & written.enable & ~control.enable),
            control.abort.eq(writes_control & written.abort),
            control.resume.eq(writes_control & written.resume),
            control.doorbell.eq(access.writes(_of(queue, "TAIL"))),
            control.submitted.eq(access.merged),
        ]
        with m.If(writes_control):
            m.d.sync += [control.enable.eq(written.enable),
                         control.halt_on_error.eq(written.halt_on_error)]
        with m.If(self.soft_reset):
            m.d.sync += control.enable.eq(0)
        m.d.comb += [
            Cat(control.commands).eq(_wide(plain, _of(queue, "COMMANDS"))),
            Cat(control.completions).eq(_wide(plain, _of(queue, "COMPLETIONS"))),
        ]
        # The port is narrower than the register: an illegal number must stay illegal.
        entries = plain[_of(queue, "ENTRIES")]
        m.d.sync += control.entries.eq(Mux(entries < 32, entries, 0))
        return {
            _of(queue, "CONTROL"): Cat(control.enable, control.halt_on_error),
            _of(queue, "TAIL"): control.tail,
            _of(queue, "HEAD"): control.head,
            _of(queue, "COMPLETED"): control.completed,
            _of(queue, "STATE"): Cat(control.state),
        }

    def _commits(self, m, access, plain):
        """Update all copies of the region and table descriptors."""
        region, table = self.region_update, self.table_update
        commit = fields_of(RegionCommitBits, access.merged)  # VALID of a table is the same bit
        row = fields_of(TableRowBits, plain["TABLE_ROW"])
        form = fields_of(TableFormatBits, plain["TABLE_FORMAT"])
        partition = fields_of(TablePartitionBits, plain["TABLE_PARTITION"])
        for name, update, number in (("REGION_COMMIT", region, "REGION_HANDLE"),
                                     ("TABLE_COMMIT", table, "TABLE_NUMBER")):
            m.d.sync += [
                # A write without a strobe for the valid bit must not remove the entry.
                update.enable.eq(access.writes(name) & access.payload.strobe[0]),
                update.entry.valid.eq(commit.valid),
            ]
            m.d.comb += update.index.eq(plain[number])
        m.d.sync += region.entry.writable.eq(commit.writable)
        m.d.comb += [  # stable in the cycle of `enable`: the next access takes longer
            region.entry.base16.eq(_wide(plain, "REGION_BASE")[4:]),
            region.entry.size.eq(_wide(plain, "REGION_SIZE")),
            table.entry.last_row.eq(saturate(plain["TABLE_LAST_ROW"], len(table.entry.last_row))),
            Cat(table.entry.weights).eq(_wide(plain, "TABLE_WEIGHTS")),
            table.entry.row16.eq(row.bytes[4:]),
            table.entry.stride16.eq(row.stride[4:]),
            Cat(table.entry.state).eq(_wide(plain, "TABLE_STATE")),
            table.entry.state4.eq(form.state_bytes[2:]),
            table.entry.type.eq(form.type),
            table.entry.parts_log2.eq(partition.parts_log2),
            table.entry.part.eq(partition.part),
        ]


def _of(queue, name):
    return f"{queue.upper()}_{name}"


def _wide(plain, name):
    return Cat(plain[f"{name}_LOW"], plain[f"{name}_HIGH"])


class _Access:
    """The access in progress.

    Attributes
    ----------
    payload : register_access
    known : Signal()
        The register exists; valid, as is `value`, from the cycle after the lookup.
    value : Signal(32)
    word : Signal
        Word address of the register, from the lookup on.
    ready : Signal()
        The memory of plain registers is cleared.
    plain : Signal(32)
        Value of a plain register, 0 for other registers; two cycles after the lookup.
    lookup, write : Signal()
        High for one cycle: the register is looked up; a write takes effect.
    merged, strobed : Signal(32)
        `value` with the strobed bytes replaced; the data with all other bytes zero.
    """

    def __init__(self, m, payload):
        self.payload = payload
        self.word = Signal.like(payload.word)
        self.lookup, self.known, self.write = Signal(), Signal(), Signal()
        self.ready, self.value, self.plain = Signal(), Signal(32), Signal(32)
        self.strobed, self.merged, mask = Signal(32), Signal(32), Signal(32)
        m.d.comb += [
            mask.eq(Cat(strobe.replicate(8) for strobe in payload.strobe)),
            self.strobed.eq(payload.data & mask),
            self.merged.eq(self.strobed | self.value & ~mask),
        ]

    def at(self, name):
        return self.word == REGISTERS[name].offset // 4

    def writes(self, name):
        return self.write & self.payload.write & self.known & self.at(name)
