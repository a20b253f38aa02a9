"""The commands of the move queue: the golden models of the row mover applied to memory."""

import numpy as np
from hotrow_rtl.contract.encoding import GatherFlag, Opcode, PoolFlag, UpdateFlag

from ..golden.arithmetic.pooling import ONE
from ..golden.mover.copy_fill import move_span
from ..golden.mover.gather_scatter import move_rows
from ..golden.mover.pool import pool_rows
from ..golden.mover.update import update_rows
from ..golden.records import ROW_RECORD


class MoveEngine:
    """The row mover of the move queue.

    Parameters
    ----------
    config : Config
    memory : Memory
    regions : dict of int to Region
    tables : dict of int to Table
        As registered; shared with the register block.
    """

    def __init__(self, config, memory, regions, tables):
        self.config, self.memory, self.regions, self.tables = config, memory, regions, tables

    def execute(self, command, addresses):
        """Execute a validated command; see `LookupEngine.execute`."""
        if command["opcode"] in (Opcode.COPY, Opcode.FILL):
            return move_span(command, self.regions, self.memory, self.config)
        serve = {Opcode.POOL: self._pool, Opcode.UPDATE: self._update}.get(
            command["opcode"], self._move)
        entries, faults = self.memory.read_list(addresses["source"], ROW_RECORD, command["count"])
        return serve(command, addresses, entries, faults)

    def _move(self, command, addresses, entries, faults):
        slots, slot_faults = self._numbers(command, addresses, GatherFlag.LISTED, len(entries))
        return move_rows(command, entries, slots, self.tables, self.regions, self.memory,
                         self.config, faults, slot_faults)

    def _pool(self, command, addresses, entries, faults):
        bags, weights, weight_faults = command["bags"], np.full(len(entries), ONE), 0
        if command["flags"] & PoolFlag.WEIGHTED:
            weights, weight_faults = self._list(addresses, "weights", "<u4", len(entries))
        lengths, length_faults = self._list(addresses, "lengths", "<u2", bags)
        slots, slot_faults = self._numbers(command, addresses, PoolFlag.LISTED, bags)
        return pool_rows(command, entries, lengths, slots, weights, self.tables, self.regions,
                         self.memory, self.config, faults, length_faults, slot_faults,
                         weight_faults)

    def _update(self, command, addresses, entries, faults):
        counts, count_faults = self._list(addresses, "lengths", "<u2", len(entries))
        numbers, number_faults = self._numbers(
            command, addresses, UpdateFlag.LISTED,
            min(command["gradient_count"], int(counts.sum(dtype=np.int64))))
        return update_rows(command, entries, counts, numbers, self.tables, self.regions,
                           self.memory, self.config, faults, count_faults, number_faults)

    def _numbers(self, command, addresses, listed, count):
        """The targets if the command has the flag `listed`, else 0, 1, 2, ...; their faults."""
        if command["flags"] & listed:
            return self._list(addresses, "targets", "<u4", count)
        return np.arange(count, dtype=np.uint32), 0

    def _list(self, addresses, name, kind, count):
        return self.memory.read_list(addresses[name], np.dtype(kind), count)
