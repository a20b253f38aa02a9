"""How many slots, and how much of the log's end, fit into a limit of memory."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..contract.errors import Error
from ..operands.integers import whole
from .table import Table, block_bytes, fitting

LOOKUPS = 1 << 14  # most distinct rows of a batch, by default
SLOT_BYTES = 40  # of a slot beside its row: directory, map, grouping
_FEWEST_SLOTS = 1 << 14
_LEAST_TAIL = 16 << 20
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of memory by their use; `str` of it is a line to print.

    Parameters
    ----------
    limit : int
    process : int
        Of the process without the tables, where the limit counts it, else 0.
    index : int
        Places of rows on disk.
    buffers : int
        Reads and rows on their way.
    slots : int
        Number of slots, a power of two.
    slot_bytes : int
        Of all slots, with their rows.
    tail : int
        Of the end of the log.
    beside : int
        Of the process as it was, where the limit does not count it, else 0.
    """

    limit: int
    process: int
    index: int
    buffers: int
    slots: int
    slot_bytes: int
    tail: int
    beside: int = 0

    @property
    def total(self) -> int:
        """All of them, at most the limit."""
        return self.process + self.index + self.buffers + self.slot_bytes + self.tail

    def __str__(self) -> str:
        parts = {"process": self.process, "places of rows": self.index, "buffers": self.buffers,
                 f"{self.slots:,} slots": self.slot_bytes, "end of the log": self.tail}
        if not self.process:
            del parts["process"]
        said = (f"{self.total / 1e6:,.0f} of {self.limit / 1e6:,.0f} MB: " + ", ".join(
            f"{name} {size / 1e6:,.0f}" for name, size in parts.items()))
        return said if self.process else (
            f"{said}; the rest of the process comes on top: {self.beside / 1e6:,.0f} so far, and "
            f"what its first steps take")


def plan_memory(limit: int | str, tables: Sequence[Table], lookups: int = LOOKUPS, depth: int = 4,
                process: int = 0) -> MemoryPlan:
    """Divide a limit of memory between slots and the end of the log.

    memory = process + index + buffers + slots x (row + 40) + tail, where the index has
    log2(2.25 x blocks) bits a row, and `depth` batches of fetched and leaving rows are on their
    way. Slots are the greatest power of two that leaves 16 MiB to the end of the log, which gets
    the rest; small tables take less.

    Parameters
    ----------
    limit : int or str
        Bytes, or such as "640MB" or "2GiB".
    tables : sequence of Table
    lookups : int
        Most distinct rows of a batch.
    depth : int
        Batches on their way.
    process : int
        Bytes of the process without the tables, where the limit counts it: `most_resident` measures
        them. By default the limit is that of the tables alone.

    Returns
    -------
    MemoryPlan

    Raises
    ------
    Error
        The limit is none, or too low: it names the least.
    """
    limit = memory_bytes(limit)
    for name, value, fewest in (("lookups", lookups, 0), ("depth", depth, 1),
                                ("process", process, 0), ("number of tables", len(tables), 1)):
        if whole(value, name) < fewest:
            raise Error(f"expected a {name} of {fewest} or more, got {value}")
    block = block_bytes(tables)
    record = max(max(table.memory_bytes, table.row_bytes) + table.side_bytes for table in tables)
    blocks = sum(-(-table.rows // fitting(table.record, block)) for table in tables)
    index = sum(table.rows for table in tables) * (blocks * 9 // 4 + 2).bit_length() // 8
    buffers = 2 * depth * lookups * (record + 8) + (3 << 20) + 256 * (block + 4096)
    each = record + SLOT_BYTES
    room = limit - process - index - buffers - _LEAST_TAIL
    if room < _FEWEST_SLOTS * each:
        least = limit - room + _FEWEST_SLOTS * each
        raise Error(f"memory of {limit / 1e6:,.0f} MB is too little for tables of "
                    f"{sum(table.rows for table in tables):,} rows: give "
                    f"{-(-least // 10**6):,} MB or more, of which the process has "
                    f"{process / 1e6:,.0f} MB and the places of rows {index / 1e6:,.0f} MB")
    rows = sum(table.rows for table in tables)
    slots = min(1 << (room // each).bit_length() - 1, max(_FEWEST_SLOTS, 1 << rows.bit_length()))
    tail = min(room + _LEAST_TAIL - slots * each, max(_LEAST_TAIL, blocks * block))
    return MemoryPlan(limit, process, index, buffers, slots, slots * each, tail,
                      0 if process else resident_bytes())


def memory_bytes(limit: int | str) -> int:
    """A size in bytes, or such as "640MB": int."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,2})?)\s*([A-Za-z]*)\s*",
                         str(limit))
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or isinstance(limit, bool) or len(found[1]) > 40:
        raise Error(f"expected a size of memory in bytes, or such as '640MB' or '2GiB', got "
                    f"{limit!r}")
    return int(float(found[1]) * unit)


def resident_bytes() -> int:
    """Bytes that this process has in memory."""
    return _status("VmRSS")


def most_resident(work: Callable[[], object]) -> int:
    """The most bytes that this process has in memory during a call: int."""
    with suppress(OSError):  # where it may not be set back, it is that of the whole run
        Path("/proc/self/clear_refs").write_text("5")
    work()
    return _status("VmHWM")


def _status(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) << 10
