"""The slots of one kind of row, with the bypass area for rows without a slot."""

from collections.abc import Iterator

import torch

from ...kernels.copying import assign_slots, mark_dirty
from ...kernels.grouping import Grouper
from ...system.huge_pages import advise_huge_pages
from .rows import Reserved, RowKind, Rows
from .slot_memory import SlotMemory

_CHUNK = 1 << 16  # slots per step of a scan: copies of their rows take little memory
_ROOM = 1 << 16  # rows by which the bypass area grows in place, at least


class SlotStorage:
    """One buffer [slots | bypass area], so that one pass pools bags with rows of both.

    The map from slots to rows takes 5 bytes a slot, and 4 more from the first `find` until the next
    change; twice as much where flat rows do not fit 32 bits.

    Parameters
    ----------
    slots, area : int
        Slots, and first rows of the bypass area.
    kind : RowKind
    flat_rows : int
        Flat rows of the group.
    memory : SlotMemory
        Memory of the buffer.

    Attributes
    ----------
    rows : Rows
        slots + area rows.
    held : int32[slots] or int64[slots]
        Flat row in each slot, -1 in a free one.
    dirty : bool[slots]
        Slots whose row was trained since it was fetched or written back.
    """

    def __init__(self, slots: int, area: int, kind: RowKind, flat_rows: int,
                 memory: SlotMemory | None = None):
        self.slots, self.kind, self.memory = slots, kind, memory or SlotMemory()
        # On the host the bypass area grows in place, in memory that takes no page until it is used.
        on_host = self.memory.device.type == "cpu"
        self._reserved = Reserved(kind, slots + area + max(slots, _ROOM)) if on_host else None
        self.rows = self._allocate(slots + area)
        if self._reserved is None:  # whose pages are zeros
            self.rows.array.zero_()
        narrow = flat_rows <= torch.iinfo(torch.int32).max
        self.held = torch.empty(slots, dtype=torch.int32 if narrow else torch.int64)
        self.dirty = torch.empty(slots, dtype=torch.bool)
        for each, value in ((self.held, -1), (self.dirty, False)):
            advise_huge_pages(each.data_ptr(), each.nbytes)
            each.fill_(value)
        self._free = torch.arange(slots, slots + area)
        self._by_row: torch.Tensor | None = None
        self._bypassed = torch.empty(area, dtype=torch.int64)
        self._grouper = Grouper(slots + area)

    @property
    def area_rows(self) -> int:
        """Rows of the bypass area."""
        return len(self.rows) - self.slots

    @property
    def metadata_bytes(self) -> int:
        """Bytes of the map from slots to rows, with the sorted index while it exists."""
        index = () if self._by_row is None else (self._by_row,)
        return sum(each.nbytes for each in (self.held, self.dirty, self._free, self._bypassed,
                                            *index))

    @property
    def grouper(self) -> Grouper:
        """Groups lookups by place: Grouper."""
        if self._grouper.slots < len(self.rows):
            self._grouper = Grouper(len(self.rows))
        return self._grouper

    def grow(self, area: int) -> None:
        """Give the bypass area `area` rows.

        Where that needs another buffer, the host waits for every operation on the memory.
        """
        self._free = torch.cat((self._free, torch.arange(len(self.rows), self.slots + area)))
        self._bypassed = torch.cat((self._bypassed, torch.empty(
            area - self.area_rows, dtype=torch.int64)))
        if self._reserved is not None and self.slots + area <= len(self._reserved):
            self.rows = self._allocate(self.slots + area)
            return
        self._reserved = None
        self.memory.synchronize_all()
        before, self.rows = self.rows, self._allocate(self.slots + area)
        self.rows.put(slice(len(before)), before)
        self.memory.synchronize_all()

    def _allocate(self, count: int) -> Rows:
        """Memory of the first rows: Rows."""
        if self._reserved is None:
            return self.kind.allocate(count, self.memory.device)
        return self._reserved.first(count)

    def reserve(self, count: int) -> torch.Tensor:
        """Reserve places of the bypass area until `release`: int64[count]."""
        if not count:
            return self._free[:0]
        if count > len(self._free):
            self.grow(2 * self.area_rows + count)
        reserved, self._free = self._free[:count], self._free[count:]
        return reserved

    def release(self, places: torch.Tensor) -> None:
        if places.shape[0]:
            self._free = torch.cat((places, self._free))  # used next, while caches have them

    def bypass(self, rows: torch.Tensor, places: torch.Tensor) -> None:
        """Record which flat rows some places of the bypass area hold."""
        self._bypassed[places - self.slots] = rows

    def bypassed_rows(self, places: torch.Tensor) -> torch.Tensor:
        """Flat rows in places of the bypass area: int64."""
        return self._bypassed[places - self.slots]

    def mark_trained(self, places: torch.Tensor) -> None:
        """Record that the rows in some places were trained."""
        mark_dirty(self.dirty, places)

    def bypassed(self, places: torch.Tensor) -> torch.Tensor | None:
        """The places of the bypass area among some places, int64[n]; None if there is none."""
        if len(self._free) == self.area_rows:  # nobody has any
            return None
        found = places[places >= self.slots].long()
        return found if len(found) else None

    def assign(self, rows: torch.Tensor, slots: torch.Tensor) -> None:
        """Record which flat rows some slots hold; the other slots keep theirs."""
        assign_slots(self.held, self.dirty, slots, rows)
        self._by_row = None

    def clear(self, slots: torch.Tensor | slice = slice(None)) -> None:
        """Record that these slots, by default all, hold no row."""
        self.held[slots], self.dirty[slots] = -1, False
        self._by_row = None

    @property
    def resident(self) -> torch.Tensor:
        """Flat rows in slots, int64[h] ascending."""
        return self.held[self._sorted()].long()

    @property
    def resident_slots(self) -> torch.Tensor:
        """Slot of each of `resident`, int64[h]."""
        return self._sorted().long()

    @property
    def count(self) -> int:
        """Rows in slots."""
        return int((self.held >= 0).sum())

    def chunks(self, dirty: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Scan the rows in slots, or only the dirty ones, in the order of the slots.

        Yields
        ------
        (int64[k], int64[k])
            Flat rows and their slots, at least one.
        """
        for start in range(0, self.slots, _CHUNK):
            here = slice(start, start + _CHUNK)
            slots = torch.nonzero(self.dirty[here] if dirty else self.held[here] >= 0).squeeze(1)
            if len(slots):
                slots += start
                yield self.held[slots].long(), slots

    def find(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions in `rows` of the rows that are in slots, and their slots: int64 both."""
        by_row = self._sorted()
        low, high = torch.zeros_like(rows), torch.full_like(rows, len(by_row))
        for _ in range(len(by_row).bit_length()):  # a binary search of all rows at once
            middle = (low + high) // 2
            below = self.held[by_row[middle.clamp(max=len(by_row) - 1)]] < rows
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        where = torch.nonzero(low < len(by_row)).squeeze(1)
        slots = by_row[low[where]].long()
        found = self.held[slots] == rows[where]
        return where[found], slots[found]

    def _sorted(self) -> torch.Tensor:
        """Slots that hold a row, by flat row: int32[h]."""
        if self._by_row is None:
            by_row = torch.argsort(self.held)
            self._by_row = by_row[self.slots - self.count:].int()
        return self._by_row
