"""What the commands of the move queue do: rows and their state, copied between arrays."""

import numpy as np
from hotrow_rtl.config import ROW_ALIGNMENT, STATE_ALIGNMENT
from hotrow_rtl.contract import OFFSET_WIDTH, GatherFlag, Status

from ..golden.records import ROW_RECORD
from ..golden.regions import check_operand
from .outcome import list_errors, lowest

OFFSET_MASK = (1 << OFFSET_WIDTH) - 1


class MoveEngine:
    """The row mover behind the move queue.

    Parameters
    ----------
    config : Config
    memory : Memory
    regions : dict of int to Region
    tables : dict of int to Table
        As registered; shared with the registers.
    """

    def __init__(self, config, memory, regions, tables):
        self.config, self.memory, self.regions, self.tables = config, memory, regions, tables

    def execute(self, command, addresses):
        """Carry out a GATHER that passed validation; see `LookupEngines.execute`."""
        entries, faults = self._read(addresses["source"], ROW_RECORD, command["count"])
        errors = list_errors(entries, faults, self.tables)
        slots = np.arange(command["count"])
        if command["flags"] & GatherFlag.LISTED:
            slots, faults = self._read(addresses["targets"], np.dtype("<u4"), command["count"])
            errors = np.where((errors == 0) & (faults > 0), faults + 13, errors)
        where = np.zeros(len(entries), np.uint64)
        outcome = lowest(errors)
        moved = 0
        for i in np.flatnonzero(errors == 0):
            status, address, size = self._move(command, entries[i], int(slots[i]))
            errors[i], where[i] = status, address
            moved += size
        outcome = lowest(errors)
        outcome.error_address = int(where[outcome.error_index]) if outcome.status else 0
        outcome.entries, outcome.bytes = int(np.count_nonzero(errors == 0)), moved
        return outcome

    def _move(self, command, entry, slot):
        table, row = self.tables[int(entry["table"])], int(entry["row"])
        if table.row_bytes > command["stride"]:
            return Status.STRIDE, 0, 0
        copies = [(table.weights, row * table.stride, command["destination"],
                   slot * command["stride"], table.row_bytes, ROW_ALIGNMENT)]
        if command["flags"] & GatherFlag.STATE and table.state_bytes:
            copies.append((table.state, row * table.state_bytes, command["state_destination"],
                           slot * table.state_bytes, table.state_bytes, STATE_ALIGNMENT))
        resolved = []
        for source, source_offset, target, target_offset, size, alignment in copies:
            for base, offset, write in ((source, source_offset, False),
                                        (target, target_offset, True)):
                packed = base & ~OFFSET_MASK | (base + offset) & OFFSET_MASK
                status, address = check_operand(self.regions, packed, size, write)
                if (base & OFFSET_MASK) + offset > OFFSET_MASK:
                    status = Status.REGION
                if status is Status.OK and write and address % alignment:
                    status = Status.MISALIGNED
                if status is not Status.OK:
                    return status, packed, 0
                resolved.append((address, packed, size))
        for (source, packed, size), (target, to, _) in zip(resolved[::2], resolved[1::2]):
            here = self.memory.view(source, size)
            if here is None:
                return Status.DECERR, packed, 0
            fault = self.memory.write(target, here)
            if fault:
                return Status(Status.SLVERR - 1 + fault), to, 0
        return Status.OK, 0, sum(size for *_, size in resolved[::2])

    def _read(self, address, dtype, count):
        octets, faults = self.memory.read(address, dtype.itemsize * count)
        per_word = self.memory.bus_bytes // dtype.itemsize
        return octets.view(dtype), np.repeat(faults, per_word)[:count]
