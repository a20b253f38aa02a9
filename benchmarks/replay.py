"""What a device returned and wrote in one run, given again in the next without the device."""

import numpy as np
from hotrow.contract.errors import Error

_LARGEST = 96 << 20  # bytes of an array that is watched; the driver reads no table


class Recording:
    """A transport that notes what another one returns, and what its device writes.

    Parameters
    ----------
    transport : Transport

    Attributes
    ----------
    tape : list
        Of each call of `attach`, `read_register` and `wait`, in order: the operand, what it
        returned, and the bytes that changed as (address, first byte, uint8[n]).
    """

    def __init__(self, transport):
        self.name, self.tape = transport.name, []
        self._transport, self._watched = transport, {}

    def attach(self, array, writable):
        address, changes = self._transport.attach(array, writable), []
        if writable and array.nbytes <= _LARGEST:
            self._watched[address] = array, array.copy()
            changes.append((address, 0, array.copy()))  # also what nobody has written so far
        self.tape.append((array.nbytes, address, changes))
        return address

    def detach(self, address):
        self._watched.pop(address, None)
        self._transport.detach(address)

    def read_register(self, offset):
        value = self._transport.read_register(offset)
        self.tape.append((offset, value, self._changes()))
        return value

    def write_register(self, offset, value):
        self._transport.write_register(offset, value)

    def wait(self, queue, completed, timeout):
        self._transport.wait(queue, completed, timeout)
        self.tape.append((queue, None, self._changes()))

    def close(self):
        self._transport.close()

    def _changes(self):
        found = []
        for address, (array, before) in self._watched.items():
            changed = array != before
            first = int(changed.argmax())
            if changed[first]:
                last = len(changed) - int(changed[::-1].argmax())
                before[first:last] = array[first:last]
                found.append((address, first, before[first:last].copy()))
        return found


class Replay:
    """A transport that gives again what a `Recording` noted; the driver must make the same calls.

    Parameters
    ----------
    tape : list
    name : str
        Of the recorded transport.
    """

    def __init__(self, tape, name):
        self.name, self._tape, self._arrays = name, iter(tape), {}

    def attach(self, array, writable):
        return self._next(array.nbytes, array)

    def detach(self, address):
        del self._arrays[address]

    def read_register(self, offset):
        return self._next(offset)

    def write_register(self, offset, value):
        pass

    def wait(self, queue, completed, timeout):
        self._next(queue)

    def close(self):
        pass

    def _next(self, operand, attached=None):
        expected, value, changes = next(self._tape, (None, None, ()))
        if expected != operand:
            raise Error(f"the run is not the recorded one: the driver asks for {operand}, and then "
                        f"asked for {expected}")
        if attached is not None:
            self._arrays[value] = attached
        for address, first, octets in changes:
            np.copyto(self._arrays[address][first:first + len(octets)], octets)
        return value
