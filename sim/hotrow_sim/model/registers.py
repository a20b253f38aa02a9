"""The register block: what the host reads and writes at which offset."""

from hotrow_rtl.contract import (
    GEOMETRY,
    IDENTITY,
    QUEUES,
    REGISTERS,
    VERSION,
    Access,
)

from ..golden.regions import Region, Table

WORD = 0xFFFF_FFFF
BY_OFFSET = {register.offset: register for register in REGISTERS.values()}
FAULT_UNKNOWN_REGISTER = 1 << 2


class RegisterBlock:
    """Registers of one device.

    Parameters
    ----------
    device : Device
        Whose state the registers show and change.
    """

    def __init__(self, device):
        self.device = device
        self.stored = {register.name: 0 for register in REGISTERS.values()
                       if register.access is Access.READ_WRITE}
        self.fault = 0
        self.interrupts_seen = {name: 0 for name in QUEUES}
        self.cycle_high = 0

    def read(self, offset):
        """The register at a byte offset; zero, and a fault noted, where there is none."""
        register = BY_OFFSET.get(offset)
        if register is None:
            self.fault |= FAULT_UNKNOWN_REGISTER
            return 0
        if register.access is Access.WRITE_ONLY:
            return 0
        return getattr(self, f"_read_{register.name.lower()}", self._plain(register.name))()

    def write(self, offset, value):
        """Write the register at a byte offset; writes to read-only registers do nothing."""
        register = BY_OFFSET.get(offset)
        if register is None:
            self.fault |= FAULT_UNKNOWN_REGISTER
        elif register.access is not Access.READ_ONLY:
            self._write(register.name, value & WORD)

    def _plain(self, name):
        queue, _, field = name.partition("_")
        if queue.lower() in QUEUES:
            return lambda: self._read_queue(self.device.queues[queue.lower()], name, field)
        constants = {geometry: parameter for geometry, _, parameter in GEOMETRY}
        if name in constants:
            return lambda: getattr(self.device.config, constants[name])
        return lambda: self.stored[name]

    def _read_queue(self, queue, name, field):
        match field:
            case "CONTROL":
                return queue.enabled | queue.halt_on_error << 1
            case "TAIL" | "HEAD" | "COMPLETED" | "STATE":
                return getattr(queue, field.lower())
            case _:
                return self.stored[name]

    def _read_identity(self):
        return IDENTITY

    def _read_version(self):
        return VERSION

    def _read_status(self):
        return 1  # memories are cleared at once, and ports do not stop

    def _read_fault(self):
        return self.fault

    def _read_interrupt(self):
        return sum((self.device.queues[name].landed != self.interrupts_seen[name]) << bit
                   for bit, name in enumerate(QUEUES))

    def _read_cycle_low(self):
        self.cycle_high = self.device.cycle >> 32 & WORD
        return self.device.cycle & WORD

    def _read_cycle_high(self):
        return self.cycle_high

    def _read_event_value(self):
        return self.device.events.value[self._event()]

    def _event(self):
        return self.stored["EVENT_SELECT"] & (self.device.config.events - 1)

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
                    self.fault |= 1 << QUEUES.index(queue.name)
            case "ENTRIES":
                queue.entries_log2 = value & 0x1F
            case _:
                ring = field.rpartition("_")[0].lower()
                setattr(queue, ring, self._wide(f"{prefix}_{ring.upper()}"))

    def _write_control(self, value):
        if value & 1:
            self.device.reset()
        self.stored["CONTROL"] = value & 0b110

    def _write_fault(self, value):
        self.fault &= ~value

    def _write_interrupt(self, value):
        for bit, name in enumerate(QUEUES):
            if value >> bit & 1:
                self.interrupts_seen[name] = self.device.queues[name].landed

    def _write_event_value(self, value):
        self.device.events.set(self._event(), value, self.device.cycle)

    def _write_region_commit(self, value):
        handle = self.stored["REGION_HANDLE"] & (self.device.config.handles - 1)
        self.device.regions.pop(handle, None)
        if value & 1:
            self.device.regions[handle] = Region(
                base=self._wide("REGION_BASE") & ~15 & (1 << self.device.config.address_width) - 1,
                size=self._wide("REGION_SIZE") & (1 << 48) - 1, writable=bool(value & 2))

    def _write_table_commit(self, value):
        number = self.stored["TABLE_NUMBER"] & (self.device.config.tables - 1)
        self.device.tables.pop(number, None)
        if value & 1:
            partition, row = self.stored["TABLE_PARTITION"], self.stored["TABLE_ROW"]
            self.device.tables[number] = Table(
                last_row=self.stored["TABLE_LAST_ROW"],
                weights=self._wide("TABLE_WEIGHTS"), row_bytes=row & 0x1FF0, stride=row >> 16 & ~15,
                state=self._wide("TABLE_STATE"),
                state_bytes=self.stored["TABLE_STATE_BYTES"] & 0x3C,
                parts_log2=partition & 7, part=partition >> 8 & 63)

    def _wide(self, name):
        return self.stored[f"{name}_HIGH"] << 32 | self.stored[f"{name}_LOW"]


