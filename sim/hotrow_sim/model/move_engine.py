"""What the commands of the move queue do: the golden model of the row mover, on memory."""

import numpy as np
from hotrow_rtl.contract import GatherFlag, Opcode

from ..golden.records import ROW_RECORD
from ..golden.rows import move_rows
from ..golden.spans import move_span
from .outcome import Outcome


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
        """Carry out a command that passed validation; see `LookupEngines.execute`."""
        if command["opcode"] in (Opcode.COPY, Opcode.FILL):
            return Outcome(**vars(move_span(command, self.regions, self.memory, self.config)))
        count = command["count"]
        entries, faults = self.memory.read_list(addresses["source"], ROW_RECORD, count)
        slots, slot_faults = np.arange(count, dtype=np.uint32), 0
        if command["flags"] & GatherFlag.LISTED:
            slots, slot_faults = self.memory.read_list(
                addresses["targets"], np.dtype("<u4"), count)
        return Outcome(**vars(move_rows(
            command, entries, slots, self.tables, self.regions, self.memory, self.config,
            faults, slot_faults)))
