"""The register block: the registers that the host reads and writes."""

from hotrow_rtl.contract.encoding import IDENTITY, QUEUES, VERSION
from hotrow_rtl.contract.registers import (
    GEOMETRY,
    REGISTERS,
    Access,
    ControlBits,
    FaultBits,
    QueueControlBits,
    RegionCommitBits,
    StatusBits,
    TableCommitBits,
    TableFormatBits,
    TablePartitionBits,
    TableRowBits,
    extract,
    registers_of,
)

from ..golden.region_check import Region, Table
from .command_queue import WORD

DOORBELL_FAULTS = {"lookup": FaultBits.DOORBELL_LOOKUP, "move": FaultBits.DOORBELL_MOVE}
INTERRUPTS = ControlBits.INTERRUPT_LOOKUP | ControlBits.INTERRUPT_MOVE
ADDRESS_MASK = 0xFFC  # the slave decodes 12 address bits without the lowest two


class RegisterBlock:
    """Registers of one device.

    Parameters
    ----------
    device : Device
        Owner of the state.
    """

    def __init__(self, device):
        self.device = device
        self._by_offset = {
            register.offset: register for register in registers_of(device.config).values()}
        self.stored = {register.name: 0 for register in REGISTERS.values()
                       if register.access is Access.READ_WRITE}
        self.fault = 0
        self.interrupts_seen = {name: 0 for name in QUEUES}
        self.cycle_high = 0
        self._readers = self._make_readers()

    def read(self, offset):
        """Read the register at a byte offset; an undefined offset returns 0 and sets a fault."""
        register = self._find(offset)
        return 0 if register is None else self._readers[register.name]()

    def write(self, offset, value):
        """Write the register at a byte offset; a read-only register keeps its value."""
        register = self._find(offset)
        if register is not None and register.access is not Access.READ_ONLY:
            self._write(register.name, value & WORD)

    def _find(self, offset):
        """The register at an offset. None, with a fault set, if the offset is undefined, or if the
        register acts on a selected entry that does not exist."""
        register = self._by_offset.get(offset & ADDRESS_MASK)
        limits = {  # by register: the register that selects its entry, and the number of entries
            "REGION_COMMIT": ("REGION_HANDLE", self.device.config.handles),
            "TABLE_COMMIT": ("TABLE_NUMBER", self.device.config.tables),
            "EVENT_VALUE": ("EVENT_SELECT", self.device.config.events),
        }
        selector, limit = limits.get(register.name, (None, 0)) if register else (None, 0)
        if register is None or (selector and self.stored[selector] >= limit):
            self.fault |= FaultBits.UNKNOWN
            return None
        return register

    def _make_readers(self):
        """Function that returns the value, by register."""
        device, stored = self.device, self.stored
        readers = {name: lambda name=name: stored.get(name, 0) for name in REGISTERS}
        readers |= {name: lambda parameter=parameter: getattr(device.config, parameter)
                    for name, _, parameter in GEOMETRY}
        for queue, prefix in ((device.queues[name], name.upper()) for name in QUEUES):
            readers[f"{prefix}_CONTROL"] = lambda queue=queue: (
                queue.enabled * QueueControlBits.ENABLE
                | queue.halt_on_error * QueueControlBits.HALT_ON_ERROR)
            for field in ("tail", "head", "completed", "state"):
                readers[f"{prefix}_{field.upper()}"] = lambda queue=queue, field=field: (
                    getattr(queue, field))
        return readers | {
            "IDENTITY": lambda: IDENTITY,
            "VERSION": lambda: VERSION,
            "STATUS": lambda: int(StatusBits.READY),  # the model clears memories at once
            "FAULT": lambda: self.fault,
            "INTERRUPT": self._interrupts,
            "CYCLE_LOW": self._latch_cycle,
            "CYCLE_HIGH": lambda: self.cycle_high,
            "EVENT_VALUE": lambda: device.events.value[stored["EVENT_SELECT"]],
            "PLAN_RETIRED": lambda: device.planning.retired,
            "PLAN_WINDOW": lambda: device.config.sweep_batches,
        }

    def _interrupts(self):
        return sum((self.device.queues[name].landed != self.interrupts_seen[name]) << bit
                   for bit, name in enumerate(QUEUES))

    def _latch_cycle(self):
        self.cycle_high = self.device.cycle >> 32 & WORD
        return self.device.cycle & WORD

    def _write(self, name, value):
        action = getattr(self, f"_write_{name.lower()}", None)
        queue, _, field = name.partition("_")
        if action:
            action(value)
        elif queue.lower() in QUEUES:
            self.stored[name] = value
            self._write_queue(self.device.queues[queue.lower()], queue, field, value)
        else:
            self.stored[name] = value

    def _write_queue(self, queue, prefix, field, value):
        match field:
            case "CONTROL":
                queue.control(value)
            case "TAIL":
                if not queue.ring(value):
                    self.fault |= DOORBELL_FAULTS[queue.name]
            case "ENTRIES":
                queue.entries_log2 = value
            case _:
                ring = field.rpartition("_")[0].lower()
                setattr(queue, ring, self._wide(f"{prefix}_{ring.upper()}"))

    def _write_control(self, value):
        if value & ControlBits.SOFT_RESET:
            self.device.reset()
        self.stored["CONTROL"] = value & INTERRUPTS

    def _write_fault(self, value):
        self.fault &= ~value

    def _write_interrupt(self, value):
        for bit, name in enumerate(QUEUES):
            if value >> bit & 1:
                self.interrupts_seen[name] = self.device.queues[name].landed

    def _write_event_value(self, value):
        self.device.events.set(self.stored["EVENT_SELECT"], value, self.device.cycle)

    def _write_plan_retired(self, value):
        if not self.device.planning.retire(value):
            self.fault |= FaultBits.RETIREMENT

    def _write_region_commit(self, value):
        handle = self.stored["REGION_HANDLE"]
        self.device.regions.pop(handle, None)
        if value & RegionCommitBits.VALID:
            self.device.regions[handle] = Region(
                base=self._wide("REGION_BASE") & ~15 & (1 << self.device.config.address_width) - 1,
                size=self._wide("REGION_SIZE") & (1 << 48) - 1,
                writable=bool(value & RegionCommitBits.WRITABLE))

    def _write_table_commit(self, value):
        number = self.stored["TABLE_NUMBER"]
        self.device.tables.pop(number, None)
        if value & TableCommitBits.VALID:
            # More parts than the directory has count as one.
            parts_log2 = self._field("TABLE_PARTITION", TablePartitionBits.PARTS_LOG2) & 7
            if 1 << parts_log2 > self.device.config.directory_partitions:
                parts_log2 = 0
            part = self._field("TABLE_PARTITION", TablePartitionBits.PART)
            self.device.tables[number] = Table(
                last_row=min(self.stored["TABLE_LAST_ROW"],
                             (1 << self.device.config.row_width) - 1),
                weights=self._wide("TABLE_WEIGHTS"),
                row_bytes=self._field("TABLE_ROW", TableRowBits.BYTES) & 0x1FF0,
                stride=self._field("TABLE_ROW", TableRowBits.STRIDE) & ~15,
                state=self._wide("TABLE_STATE"),
                state_bytes=self._field("TABLE_FORMAT", TableFormatBits.STATE_BYTES) & 0x3C,
                type=self._field("TABLE_FORMAT", TableFormatBits.TYPE),
                parts_log2=parts_log2, part=part & (1 << parts_log2) - 1)

    def _field(self, name, field):
        return extract(field, self.stored[name])

    def _wide(self, name):
        return self.stored[f"{name}_HIGH"] << 32 | self.stored[f"{name}_LOW"]
