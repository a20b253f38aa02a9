"""Embedding tables registered with a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from ..contract.errors import BatchError, RegistrationError
from ..contract.generated import (
    Element,
    TableCommitBits,
    TableFormatBits,
    TablePartitionBits,
    TableRowBits,
)
from ..contract.geometry import Geometry
from ..memory.buffer import Array, Buffer, Held, as_array, span
from ..memory.regions import Regions
from ..memory.registers import Registers, place
from ..system.forks import cached_property
from .batch import Batch
from .table import Table


class TableSet(tuple[Table, ...]):
    """Registered tables that a command uses.

    Attributes
    ----------
    numbers : tuple of int
        Of the tables on the card.
    buffers : tuple of Buffer
        Memory of all of them, each once.
    """

    numbers: tuple[int, ...]
    buffers: tuple[Buffer, ...]
    generation: object

    @classmethod
    def of(cls, tables: Iterable[Table], generation: object) -> TableSet:
        """A set of tables; `generation` is that of `Tables`."""
        found = cls(tables)
        found.numbers = tuple(table.number for table in found)
        found.buffers = tuple(dict.fromkeys(
            buffer for table in found for buffer in table.buffers))
        found.generation = generation
        return found

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Rows of each."""
        return tuple(table.rows for table in self)

    @cached_property
    def stranger(self) -> Table | None:
        """The first table whose rows are not of the kind of the first table's, state aside."""
        return next((table for table in self
                     if (table.dim, table.dtype) != (self[0].dim, self[0].dtype)), None)

    @cached_property
    def state_stranger(self) -> Table | None:
        """The first table whose state has not the size of the first table's."""
        return next((table for table in self if table.state_bytes != self[0].state_bytes), None)

    def check(self) -> None:
        """Raise RegistrationError if the memory is not what was registered."""
        for buffer in self.buffers:
            buffer.check()

    def hold(self, held: Held) -> None:
        """Keep the tables registered until a command has completed."""
        for buffer in self.buffers:
            held.use(buffer)


class Tables:
    """The tables of a device by number, and the card's descriptors of them.

    Parameters
    ----------
    registers : Registers
    regions : Regions
    geometry : Geometry

    Attributes
    ----------
    last_rows : int64[tables]
        Last row of each table by number, -1 where there is none.
    in_directory, in_counters : set of int
        Numbers of which the directory, or the counters, may hold rows.
    stale_counts : set of int
        Numbers of which the counters may hold rows of an earlier table.
    generation : object
        Another one after a table is unregistered, and of each device.
    """

    def __init__(self, registers: Registers, regions: Regions, geometry: Geometry):
        self._registers, self._regions, self._geometry = registers, regions, geometry
        self._tables: list[Table | None] = [None] * geometry.tables
        self.last_rows = np.full(geometry.tables, -1)
        self.in_directory: set[int] = set()
        self.in_counters: set[int] = set()
        self.stale_counts: set[int] = set()
        self.generation = object()
        self._resolved: tuple[Any, TableSet] | None = None  # the last tables of a batch

    def clear(self) -> None:
        """Remove every table from the card: another program may have left some."""
        for number in range(len(self._tables)):
            self._commit(number, 0)

    def remove_all(self) -> None:
        """Unregister every table, also those that commands under way use."""
        for table in self.registered:
            self._drop(table)

    def add(self, weights: Array, name: str | None, state: Array | None,
            partition: tuple[int, int], on_card: bool, rows: int | None = None) -> Table:
        """Register a table under the lowest free number.

        Raises
        ------
        RegistrationError
        """
        parts_log2, part = _partition(partition, self._geometry.directory_partitions)
        table = Table(self._free_number(), name, weights, state, self._geometry.row_bytes, rows)
        if any(other and other.name == table.name for other in self._tables):
            raise RegistrationError(f"there is a table named {table.name!r} already")
        table.partition = (place(TablePartitionBits.PART, part)
                           | place(TablePartitionBits.PARTS_LOG2, parts_log2))
        self._place(table, on_card)
        return table

    def _place(self, table: Table, on_card: bool) -> None:
        """Register the memory of a table, and write its descriptor."""
        sources = [(table.source, "weights"), (table.state_source, "state")]
        buffers: list[Buffer] = []
        try:
            for source, what in sources[:1 if table.state_source is None else 2]:
                array = as_array(source)
                writable, named = array.flags.writeable, f"{what} of {table.name!r}"
                buffer = self._regions.find(*span(array), writable)
                if buffer is not None and on_card and not buffer.on_card:
                    raise RegistrationError(
                        f"the {named} cannot be on the card: they lie in {buffer.name}, "
                        f"which was registered without on_card=True")
                if buffer is None or self._owner(buffer) is not None:
                    buffer = self._regions.add(source, writable, named,
                                               owner="card" if on_card else "both")
                    table.own_buffers.append(buffer)
                buffers.append(buffer)
            table.buffers = tuple(buffers)
            self._describe(table)
        except BaseException:
            for buffer in table.own_buffers:
                self._regions.remove(buffer)
            raise
        self._resolved = None
        self.last_rows[table.number], self._tables[table.number] = table.rows - 1, table

    def remove(self, table: Table) -> None:
        """Unregister a table and its memory."""
        self.settle(table)
        self._drop(table)

    def settle(self, table: Table) -> None:
        """Fetch what the card wrote to a table that is to be unregistered.

        Raises
        ------
        RegistrationError
            It is not registered, a command uses it, or the host wrote to its rows on the card.
        """
        self.check(table)
        if any(buffer.uses for buffer in table.buffers):
            raise RegistrationError(
                f"table {table.name!r} is in use by a command under way: take its result first")
        for buffer in table.own_buffers:
            self._regions.flush(buffer)

    def check(self, table: object) -> Table:
        """Raise RegistrationError unless `table` is registered here."""
        if not isinstance(table, Table) or self[table.number] is not table:
            raise RegistrationError(f"{table!r} is not a table registered with this device")
        return table

    @property
    def registered(self) -> tuple[Table, ...]:
        """The registered tables, by number."""
        return tuple(table for table in self._tables if table)

    def __getitem__(self, number: int) -> Table | None:
        return self._tables[number] if 0 <= number < len(self._tables) else None

    def set_of(self, tables: Iterable[Table]) -> TableSet:
        """Registered tables as a set."""
        return TableSet.of(tables, self.generation)

    def resolve(self, batch: Batch) -> TableSet:
        """The tables of a batch's columns, their memory checked.

        Raises
        ------
        BatchError, RegistrationError
        """
        if (self._resolved is None or self._resolved[0] != batch.tables
                or len(self._resolved[1]) != batch.table_count):
            self._resolved = batch.tables, self.set_of(self._resolve(batch))
        tables = self._resolved[1]
        tables.check()
        return tables

    def _resolve(self, batch: Batch) -> Sequence[Table]:
        tables = list(self.registered) if batch.tables is None else [
            self._one(table) for table in batch.tables]
        if len(tables) != batch.table_count:
            named = f"{len(tables)} table{'s' * (len(tables) != 1)}"
            raise BatchError(
                f"the batch has {batch.table_count} columns, but "
                f"{f'{named} are registered' if batch.tables is None else f'it names {named}'}: "
                f"pass tables= with one table per column")
        first = tables[0].number
        if [table.number for table in tables] != list(range(first, first + len(tables))):
            raise BatchError(
                "the tables of a batch must have consecutive numbers, got "
                + ", ".join(f"{table.number} ({table.name!r})" for table in tables))
        return tables

    def _one(self, table: Table | str) -> Table:
        if isinstance(table, str):
            found = next((each for each in self.registered if each.name == table), None)
            if found is None:
                raise BatchError(f"there is no table named {table!r}: expected one of "
                                 f"{', '.join(each.name for each in self.registered)}")
            return found
        return self.check(table)

    def _owner(self, buffer: Buffer) -> Table | None:
        """The table for which alone a buffer is registered, or None."""
        return next((table for table in self.registered if buffer in table.own_buffers), None)

    def _free_number(self) -> int:
        """The lowest number without a table, of which the directory holds no rows.

        It would take the rows of an earlier table for rows of the later one.
        """
        free = [number for number, table in enumerate(self._tables) if table is None]
        if not free:
            raise RegistrationError(f"all {len(self._tables)} tables of this card are in use: "
                                    f"unregister one")
        number = next((number for number in free if number not in self.in_directory), None)
        if number is None:
            raise RegistrationError(
                f"the directory may hold rows of the tables that had the numbers "
                f"{', '.join(map(str, free))}: call clear_directory() before another table gets "
                f"one of them")
        return number

    def _describe(self, table: Table) -> None:
        """Write the card's descriptor."""
        write = self._registers.write
        write("TABLE_LAST_ROW", table.rows - 1)
        self._registers.write_wide("TABLE_WEIGHTS", _address(table.buffers[0], table.source))
        write("TABLE_ROW", place(TableRowBits.STRIDE, table.stride)
              | place(TableRowBits.BYTES, table.row_bytes))
        self._registers.write_wide("TABLE_STATE", _address(
            table.buffers[1], table.state_source) if table.state_source is not None else 0)
        write("TABLE_FORMAT", place(TableFormatBits.TYPE, Element[table.element.upper()])
              | place(TableFormatBits.STATE_BYTES, table.state_bytes))
        write("TABLE_PARTITION", table.partition)
        self._commit(table.number, TableCommitBits.VALID)

    def _drop(self, table: Table) -> None:
        self._commit(table.number, 0)
        self._tables[table.number] = self._resolved = None
        self.generation = object()
        self.stale_counts |= self.in_counters & {table.number}
        self.last_rows[table.number] = -1
        for buffer in table.own_buffers:
            self._regions.drop(buffer)
        table.refresh = None

    def _commit(self, number: int, valid: int) -> None:
        self._registers.write("TABLE_NUMBER", number)
        self._registers.write("TABLE_COMMIT", valid)


def _address(buffer: Buffer, source: Array) -> int:
    """Address operand of memory that lies in a buffer."""
    return buffer.packed(span(as_array(source))[0] - buffer.host)


def _partition(partition: tuple[int, int], most: int) -> tuple[int, int]:
    """(log2 of the parts, which part) from (part, parts)."""
    try:
        part, parts = map(index, partition)
    except (TypeError, ValueError):
        part = parts = 0
    if parts < 1 or parts & parts - 1 or parts > most or not 0 <= part < parts:
        raise RegistrationError(
            f"partition must be (part, parts) with parts a power of two up to {most} and part "
            f"below parts, not {partition}")
    return parts.bit_length() - 1, part
