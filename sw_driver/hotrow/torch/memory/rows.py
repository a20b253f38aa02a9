"""Embedding rows with their optimizer state, and how both lie in memory."""

from dataclasses import dataclass

import numpy as np
import torch

from ...kernels.copying import copy_rows
from ...memory.buffer import zeros
from ...system.huge_pages import advise_huge_pages

_ALIGNMENT = 16  # bytes: a device carries rows in multiples of it


@dataclass(frozen=True)
class RowKind:
    """How a row lies in memory.

    State per row lies in an array of its own. State per element follows the row's elements and
    moves with them, so that rows are longer. Zeros pad a row to a multiple of 16 bytes.

    Parameters
    ----------
    dim : int
        Elements of a row.
    state : str, optional
        "row" for one fp32 number per row, "element" for numbers that follow it; None without.
    dtype : torch.dtype
        Type of the elements: float32, float16 or bfloat16; "element" needs float32.
    columns : int, optional
        Numbers of state that follow a row with "element"; by default one per element.
    """

    dim: int
    state: str | None = None
    dtype: torch.dtype = torch.float32
    columns: int | None = None

    @property
    def used(self) -> int:
        """Elements of a row with the state that follows it, without padding."""
        if self.state != "element":
            return self.dim
        return self.dim + (self.dim if self.columns is None else self.columns)

    @property
    def width(self) -> int:
        """Elements that a device carries per row."""
        step = _ALIGNMENT // self.dtype.itemsize
        return -(-self.used // step) * step

    @property
    def row_bytes(self) -> int:
        """Bytes that a device carries per row, state included."""
        return self.width * self.dtype.itemsize + 4 * (self.state == "row")

    def allocate(self, count: int, device: str | torch.device = "cpu",
                 pinned: bool = False) -> "Rows":
        """`count` rows with undefined contents, in `pinned` memory or not: Rows."""
        array = torch.empty(count, self.width, dtype=self.dtype, device=device, pin_memory=pinned)
        side = None
        if self.state == "row":
            side = torch.empty(count, dtype=torch.float32, device=device, pin_memory=pinned)
        for each in (array, side):
            if each is not None and each.device.type == "cpu" and not pinned:
                advise_huge_pages(each.data_ptr(), each.nbytes)
        array[:, self.used:] = 0
        return Rows.of(self, array, side)


class Reserved:
    """Host memory for `count` rows of a kind: zeros, of which a page is taken when it is first
    written."""

    def __init__(self, kind: RowKind, count: int):
        self._kind, self._count = kind, count
        self._array = zeros((count, kind.width * kind.dtype.itemsize), np.uint8)
        self._side = zeros(count, np.float32) if kind.state == "row" else None
        advise_huge_pages(self._array.ctypes.data, self._array.nbytes)

    def __len__(self) -> int:
        return self._count

    def first(self, count: int) -> "Rows":
        """The first rows, with undefined contents: Rows whose tensors are no larger than these."""
        array = torch.from_numpy(self._array[:count]).view(self._kind.dtype)
        side = None if self._side is None else torch.from_numpy(self._side[:count])
        return Rows.of(self._kind, array, side)


class Rows:
    """An array of rows with their state.

    Parameters
    ----------
    weights : [R, D]
    state : float32[R] or float32[R, columns], optional
    array : [R, width], optional
        The rows as a device carries them; `weights` by default.
    side : float32[R], optional
        State that a device carries in an array of its own.
    """

    def __init__(self, weights: torch.Tensor, state: torch.Tensor | None = None,
                 array: torch.Tensor | None = None, side: torch.Tensor | None = None):
        self.weights, self.state = weights, state
        self.array = weights if array is None else array
        self.side = state if array is None else side

    @classmethod
    def of(cls, kind: RowKind, array: torch.Tensor, side: torch.Tensor | None = None) -> "Rows":
        """On existing memory: array [R, width], side float32[R] or None."""
        dim = kind.dim
        state = array[:, dim:kind.used] if kind.state == "element" else side
        return cls(array[:, :dim], state, array, side)

    def __len__(self) -> int:
        return self.weights.shape[0]

    def read(self, at: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(weights [u, D], state or None) of rows int64[u] or a slice."""
        return self.weights[at], None if self.state is None else self.state[at]

    def write(self, at: torch.Tensor | slice, weights: torch.Tensor,
              state: torch.Tensor | None = None) -> None:
        """Set rows int64[u] or a slice, and their state if they have any."""
        self.weights[at] = weights.to(self.weights.dtype)
        if self.state is not None:
            assert state is not None
            self.state[at] = state

    def take(self, kind: RowKind, at: torch.Tensor | slice) -> "Rows":
        """Copies of rows int64[u], or views of a slice: Rows of the kind."""
        return Rows.of(kind, self.array[at], None if self.side is None else self.side[at])

    def copy(self, rows: "Rows", at: torch.Tensor | None = None) -> None:
        """Copy other Rows, in any memory, all or those of integers `at`, to these; the host does
        not wait for a GPU."""
        for target, source in ((self.array, rows.array), (self.side, rows.side)):
            if target is None:
                continue
            assert source is not None  # rows of one kind
            if at is None:
                target.copy_(source, non_blocking=True)
            elif source.device.type == "cpu":
                copy_rows(target, source, start=at)
            else:
                target.copy_(source[at], non_blocking=True)

    def put(self, at: torch.Tensor | slice, rows: "Rows") -> None:
        """Set distinct rows, integers [u] or a slice, to those of other Rows."""
        for target, source in ((self.array, rows.array), (self.side, rows.side)):
            if target is None:
                continue
            assert source is not None  # rows of one kind
            if isinstance(at, slice) or target.device.type != "cpu":
                target[at] = source
            else:
                copy_rows(target, source, to=at)
