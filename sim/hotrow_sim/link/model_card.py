"""Golden model of a card with its own memory, the target of a `LinkEndpoint`."""

import numpy as np

from ..model import Device
from .endpoint import LinkCard, LinkEndpoint

_LINE = 64


class ModelCard:
    """The model of an accelerator with its own memory; a `Target`.

    Parameters
    ----------
    config : Config
    memory_bytes : int
    block_log2 : int
        log2 of the bytes of a block, the unit in which writes are reported.
    """

    def __init__(self, config, memory_bytes=1 << 20, block_log2=8):
        self.device, self._block = Device(config), 1 << block_log2
        store = np.zeros(memory_bytes + _LINE, np.uint8)
        start = -store.ctypes.data % _LINE
        self.memory = store[start:start + memory_bytes]
        self._base = self.device.attach(self.memory, True)
        self._reported = self.memory.copy()
        self.link = LinkCard(self._base, memory_bytes, block_log2=block_log2,
                             clock_khz=1000 * config.clock_mhz)

    def endpoint(self, **options) -> LinkEndpoint:
        """The card's link endpoint."""
        return LinkEndpoint(self, self.link, **options)

    def read_register(self, offset):
        """The register at a byte offset."""
        return self.device.read_register(offset)

    def write_register(self, offset, value):
        """Write the register at a byte offset."""
        self.device.write_register(offset, value)
        return True

    def read(self, address, size):
        """Read memory; None if a byte of it does not exist."""
        at = address - self._base
        return bytes(self.memory[at:at + size]) if self._exists(at, size) else None

    def write(self, address, octets):
        """Write memory if all of it exists. Writes of the host are not reported."""
        at = address - self._base
        if not self._exists(at, len(octets)):
            return False
        for place in (self.memory, self._reported):
            place[at:at + len(octets)] = np.frombuffer(octets, np.uint8)
        return True

    def take_written(self, most):
        """Up to `most` blocks that the card changed since the last report, and whether there are
        more."""
        changed = np.unique(np.flatnonzero(self.memory != self._reported) // self._block)
        for block in changed[:most].tolist():
            part = slice(block * self._block, (block + 1) * self._block)
            self._reported[part] = self.memory[part]
        first = self._base // self._block
        return [first + block for block in changed[:most].tolist()], len(changed) > most

    def _exists(self, at, size):
        return at >= 0 and at + size <= self.memory.size
