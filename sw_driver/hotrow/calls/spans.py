"""Whole arrays: COPY and FILL."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import BatchError, RegistrationError
from ..contract.generated import STATE_ALIGNMENT, Opcode
from ..memory.buffer import Array, Buffer, as_array, is_tensor, span
from ..operands.results import Done
from ..operands.slot_arrays import array_of
from ..queues.commands import Commands
from ..queues.futures import Future

_MOST_BYTES = (1 << 32) - STATE_ALIGNMENT


class Spans:
    """Part of `Device`.

    Arrays are contiguous, and begin and end on a multiple of 4 bytes. Arrays that are not
    registered are registered during the command; they must begin on a multiple of 16 bytes.
    """

    def __init__(self, commands: Commands):
        self._commands = commands

    def copy(self, source: Buffer | Array, destination: Buffer | Array) -> Future[Done]:
        """Copy the bytes of one array to another.

        Parameters
        ----------
        source, destination : Buffer, numpy.ndarray or torch tensor
            Of the same number of bytes; they must not overlap.
        """
        read, (read_at, size) = _contiguous(source, "source", writable=False)
        written, (write_at, room) = _contiguous(destination, "destination", writable=True)
        if size != room:
            raise BatchError(f"source has {size} bytes and destination {room}: expected the same "
                             f"number")
        if max(read_at, write_at) < min(read_at, write_at) + size:
            raise BatchError("source and destination overlap: copy bytes that do not")
        with self._commands.open(Opcode.COPY) as held:
            reach = self._commands.regions.reach
            operands = {"count": size,
                        "source": reach(read, "source", False, STATE_ALIGNMENT, held),
                        "destination": reach(written, "destination", True, STATE_ALIGNMENT, held)}
            return self._commands.submit(Opcode.COPY, operands, self._commands.done, held)

    def fill(self, buffer: Buffer | Array, value: float) -> Future[Done]:
        """Set every element of an array.

        Parameters
        ----------
        buffer : Buffer, numpy.ndarray or torch tensor
        value : number
            As an element of the array. The bytes of an element longer than 4 bytes must repeat
            every 4 bytes, like those of 0.
        """
        array, (_, size) = _contiguous(buffer, "buffer", writable=True)
        source = buffer.source if isinstance(buffer, Buffer) else buffer
        try:
            one = _element(source, array.dtype, value)
        except (TypeError, ValueError, ArithmeticError, RuntimeError) as refusal:
            raise BatchError(f"value must be a number that {array.dtype} holds, not {value!r}: "
                             f"{refusal}") from refusal
        octets = np.resize(one.view(np.uint8), max(4, array.itemsize))
        words = np.unique(octets.view("<u4"))
        if len(words) > 1:
            raise BatchError(f"{value!r} as {array.dtype} does not repeat every 4 bytes: the "
                             f"device fills memory with patterns of 4 bytes")
        with self._commands.open(Opcode.FILL) as held:
            where = self._commands.regions.reach(array, "buffer", True, STATE_ALIGNMENT, held)
            return self._commands.submit(
                Opcode.FILL, {"count": size, "value": int(words[0]), "destination": where},
                self._commands.done, held)


def _element(source: Array, dtype: np.dtype[Any], value: Any) -> NDArray[Any]:
    """A number as one element of an array or tensor, whose type in NumPy is `dtype`."""
    if dtype.kind == "V" or isinstance(value, str | bytes):
        raise TypeError("expected one number for an element that is one")
    # NumPy would take None for NaN, and the real part of a complex number.
    number = complex(value) if dtype.kind == "c" else float(value)
    if is_tensor(source) and source.dtype.is_floating_point:  # NumPy has no bfloat16
        one = as_array(source.new_full((1,), value)).view(np.uint8)
        beyond = as_array(source.new_full((1,), math.copysign(math.inf, value))).view(np.uint8)
        if math.isfinite(value) and np.array_equal(one, beyond):
            raise OverflowError("it is out of range")
        return one
    if dtype.kind in "iu":
        if not float(value).is_integer():
            raise ValueError("it is not a whole number")
        return np.full(1, int(value), dtype)  # which refuses what is out of range
    with np.errstate(over="raise"):
        return np.full(1, number, dtype)


def _contiguous(value: Buffer | Array, what: str,
                writable: bool) -> tuple[NDArray[Any], tuple[int, int]]:
    """The array of `value`, and its host address and bytes."""
    array = array_of(value, what, writable)
    if array.dtype.hasobject:
        raise RegistrationError(f"{what} must hold numbers, not {array.dtype}")
    if not (array.flags.c_contiguous and array.size):
        raise RegistrationError(f"{what} must be contiguous and not empty; its shape is "
                                f"{array.shape}, its strides {array.strides}")
    if array.nbytes % STATE_ALIGNMENT or array.nbytes > _MOST_BYTES:
        raise BatchError(f"{what} has {array.nbytes} bytes: expected a multiple of "
                         f"{STATE_ALIGNMENT} up to {_MOST_BYTES}; divide it")
    return array, span(array)
