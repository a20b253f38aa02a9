"""One embedding table: its memory, and what that must be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import PaddedCopyWarning, RegistrationError
from ..contract.generated import LARGEST_STRIDE, ROW_ALIGNMENT
from ..memory.buffer import Array, Buffer, empty, is_tensor, memory_of

_ELEMENTS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "uint16": "bf16"}
_STATE_BYTES = (4, 8, 16, 32)


class Table:
    """One embedding table in host memory.

    Attributes
    ----------
    number : int
        Its number on the card.
    name : str
    element : str
        "fp32", "fp16" or "bf16"; bf16 weights are uint16 in NumPy.
    row_bytes, stride, state_bytes : int
        Bytes of a row that the device carries (padding included), bytes from one row to the next,
        and bytes of one row's state.
    rows : int
        Rows of the table.
    elsewhere : bool
        Whether the device does not reach the rows, and no command moves them.
    buffers : tuple of Buffer
        Of the weights, and of the state if the table has one.
    """

    def __init__(self, number: int, name: str | None, weights: Array, state: Array | None,
                 largest_row: int, rows: int | None = None):
        self.number = number
        self.name = f"table{number}" if name is None else str(name)
        self.source, self._weights, self.element = _weights(weights, self.name, largest_row)
        self.refresh: Callable[[], None] | None = None  # brings rows of a table on the card here
        self.rows, self.elsewhere = len(self._weights), rows is not None
        self.row_bytes = _padded(self.dim * self.dtype.itemsize)
        self.stride = self._weights.strides[0] if self.rows > 1 else self.row_bytes
        self.state_source = state
        self._state: NDArray[Any] | None = None
        self.state_bytes = 0
        if state is not None:
            self._state = memory_of(state, f"the state of {self.name!r}")
            self.state_bytes = _state_bytes(self._state, self.rows, self.name)
        if rows is not None:
            if self.rows != 1 or not 1 <= rows <= 1 << 32:
                raise RegistrationError(
                    f"{self.name!r}: expected one row as the kind of 1 to 2**32 rows elsewhere, "
                    f"got {self.rows} as that of {rows}")
            self.rows = rows
        self.partition = 0  # operand of the descriptor
        self.buffers: tuple[Buffer, ...] = ()
        self.own_buffers: list[Buffer] = []  # those registered for the table alone

    @property
    def weights(self) -> NDArray[Any]:
        """The rows that the device moves: the caller's own memory, or a padded copy of it.

        Of a table on the card they are those of the card at the time of the call.
        """
        if self.refresh is not None:
            self.refresh()
        return self._weights

    @property
    def state(self) -> NDArray[Any] | None:
        """Optimizer state of each row, like `weights`; None without any."""
        if self.refresh is not None:
            self.refresh()
        return self._state

    @property
    def state_dtype(self) -> np.dtype[Any] | None:
        """Type of an element of the state in NumPy."""
        return None if self._state is None else self._state.dtype

    @property
    def dim(self) -> int:
        """Elements of a row."""
        return int(self._weights.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element in NumPy."""
        return self._weights.dtype

    @property
    def on_card(self) -> bool:
        """Whether the card has the rows, and the host's are those of the last flush."""
        return any(buffer.on_card for buffer in self.buffers)

    @property
    def kind(self) -> tuple[int, str, int]:
        """Elements of a row, their type, and bytes of a row's state."""
        return self.dim, self.element, self.state_bytes

    @property
    def padded(self) -> bool:
        """Whether the device carries more bytes of a row than its elements have."""
        return self.row_bytes != self.dim * self.dtype.itemsize

    def check(self) -> None:
        """Raise RegistrationError if the memory is not what was registered."""
        for buffer in self.buffers:
            buffer.check()

    def __repr__(self) -> str:
        return f"<Table {self.number} {self.name!r}, {self.rows} x {self.dim} {self.element}>"


def _padded(size: int) -> int:
    return -(-size // ROW_ALIGNMENT) * ROW_ALIGNMENT


def _weights(source: Array, name: str, largest_row: int) -> tuple[Array, NDArray[Any], str]:
    """Memory to register, the weights in it as [rows, dim], and their element type."""
    array = memory_of(source, f"the weights of {name!r}")
    if array.ndim != 2 or array.size == 0:
        raise RegistrationError(
            f"the weights of {name!r} must be [rows, dim] with at least one of each, not of "
            f"shape {array.shape}")
    if len(array) > 1 << 32:
        raise RegistrationError(f"{name!r} has {len(array)} rows: the limit is 2**32")
    kind = str(source.dtype).removeprefix("torch.") if is_tensor(source) else array.dtype.name
    if kind not in _ELEMENTS or not array.dtype.isnative:
        raise RegistrationError(
            f"the weights of {name!r} must be float32, float16 or bfloat16, not {kind}"
            + " in another byte order than the host's" * (not array.dtype.isnative))
    row = array.shape[1] * array.itemsize
    if _padded(row) > largest_row:
        raise RegistrationError(
            f"a row of {name!r} has {row} bytes: this card carries at most {largest_row}")
    apart = array.strides[0] if len(array) > 1 else row
    if (array.shape[1] > 1 and array.strides[1] != array.itemsize) or apart < row:
        raise RegistrationError(
            f"each row of {name!r} must be contiguous, but its strides are {array.strides}: pass "
            f"a contiguous copy")
    if row % ROW_ALIGNMENT or apart % ROW_ALIGNMENT:
        memory = _padded_copy(array, name)
        return memory, memory[:, :array.shape[1]], _ELEMENTS[kind]
    if array.ctypes.data % ROW_ALIGNMENT:
        raise RegistrationError(
            f"the weights of {name!r} start at {array.ctypes.data:#x}, which is not a multiple of "
            f"{ROW_ALIGNMENT} bytes: allocate them with hotrow.empty(shape, dtype)")
    if apart > LARGEST_STRIDE:
        raise RegistrationError(
            f"the rows of {name!r} lie {apart} bytes apart: the limit is {LARGEST_STRIDE}")
    return source, array, _ELEMENTS[kind]


def _padded_copy(array: NDArray[Any], name: str) -> NDArray[Any]:
    row = array.shape[1] * array.itemsize
    warnings.warn(
        f"a row of {name!r} has {row} bytes, {array.strides[0]} apart, and the device carries "
        f"multiples of {ROW_ALIGNMENT}: it works on a padded copy, Table.weights; changes to the "
        f"array that was passed do not reach it", PaddedCopyWarning, stacklevel=6)
    memory = empty((len(array), _padded(row) // array.itemsize), array.dtype)
    memory[:, array.shape[1]:] = 0
    memory[:, :array.shape[1]] = array
    return memory


def _state_bytes(state: NDArray[Any], rows: int, name: str) -> int:
    if state.ndim not in (1, 2) or len(state) != rows or not state.flags.c_contiguous:
        raise RegistrationError(
            f"the state of {name!r} must be a contiguous [rows] or [rows, n] array with {rows} "
            f"rows, not of shape {state.shape} with strides {state.strides}")
    size = state.nbytes // rows
    if size not in _STATE_BYTES:
        raise RegistrationError(
            f"the state of {name!r} has {size} bytes a row: expected "
            f"{', '.join(map(str, _STATE_BYTES))}")
    return size
