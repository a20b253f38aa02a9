"""Calls that the move queue serves: bytes that are copied or filled where they are."""

import numpy as np

from .contract import STATE_ALIGNMENT, Opcode
from .errors import BatchError, RegistrationError
from .futures import Future
from .memory import as_array, is_tensor, span
from .results import Done
from .slot_arrays import array_of

_MOST_BYTES = (1 << 32) - STATE_ALIGNMENT


class SpanCalls:
    """Part of `Device`; each call has a form X_async that returns a `Future`.

    Arrays are contiguous, and begin and end on a multiple of 4 bytes. Those that are not
    registered are for the time of the command; they must begin on a multiple of 16 bytes.
    """

    def copy(self, source, destination) -> Done:
        """Copy the bytes of one array to another.

        Parameters
        ----------
        source, destination : Buffer, numpy.ndarray or torch tensor
            As many bytes each; no byte may belong to both.
        """
        return self.copy_async(source, destination).result()

    def copy_async(self, source, destination) -> Future:
        source, first = _contiguous(source, "source", writable=False)
        destination, second = _contiguous(destination, "destination", writable=True)
        if first[1] != second[1]:
            raise BatchError(f"source has {first[1]} bytes and destination {second[1]}: expected "
                             f"as many")
        if max(first[0], second[0]) < min(first[0], second[0]) + first[1]:
            raise BatchError("source and destination overlap: copy what does not")
        with self._command() as held:
            operands = {"count": first[1]}
            for name, array in (("source", source), ("destination", destination)):
                operands[name] = self.regions.reach(
                    array, name, name == "destination", STATE_ALIGNMENT, held)
            return self._submit(Opcode.COPY, operands, self._done, held)

    def fill(self, buffer, value) -> Done:
        """Set every element of an array.

        Parameters
        ----------
        buffer : Buffer, numpy.ndarray or torch tensor
        value : number
            As an element of the array; of elements longer than 4 bytes all 4 bytes must be alike,
            as those of 0 are.
        """
        return self.fill_async(buffer, value).result()

    def fill_async(self, buffer, value) -> Future:
        array, (_, size) = _contiguous(buffer, "buffer", writable=True)
        one = buffer.new_full((1,), value) if is_tensor(buffer) else np.full(1, value, array.dtype)
        octets = np.resize(as_array(one).view(np.uint8), max(4, array.itemsize))
        words = np.unique(octets.view("<u4"))
        if len(words) > 1:
            raise BatchError(f"{value!r} as {array.dtype} does not repeat every 4 bytes: the "
                             f"device fills memory with patterns of 4 bytes")
        with self._command() as held:
            operands = {"count": size, "value": int(words[0]), "destination": self.regions.reach(
                array, "buffer", True, STATE_ALIGNMENT, held)}
            return self._submit(Opcode.FILL, operands, self._done, held)


def _contiguous(value, what, writable):
    """The array behind `value`, and its host address and bytes."""
    array = array_of(value, what, writable)
    if not (array.flags.c_contiguous and array.size):
        raise RegistrationError(f"{what} must be contiguous and not empty; its shape is "
                                f"{array.shape}, its strides {array.strides}")
    if array.nbytes % STATE_ALIGNMENT or array.nbytes > _MOST_BYTES:
        raise BatchError(f"{what} has {array.nbytes} bytes: expected a multiple of "
                         f"{STATE_ALIGNMENT} up to {_MOST_BYTES}; take it in parts")
    return array, span(array)
