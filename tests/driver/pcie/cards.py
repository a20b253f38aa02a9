"""A golden card's registers, and an IOMMU through which it sees the host's memory."""

import errno
import mmap
import os

from hotrow.memory.buffer import bytes_at
from hotrow.transports.pcie import vfio
from hotrow.transports.pcie.vfio import MAP, UNMAP

ADDRESS = "0000:01:00.0"
BAR_BYTES = 1 << 16
PAGE = mmap.PAGESIZE


class Registers:
    """A golden card's registers in place of a `Bar`."""

    def __init__(self, card):
        self.read, self.write, self.closed = card.read_register, card.write_register, False

    def close(self):
        self.closed = True


class Iommu:
    """The memory calls of VFIO: a golden card sees mapped memory."""

    def __init__(self, card=None):
        self.card, self.mapped, self.limit, self.refusal = card, {}, 1 << 40, errno.ENOMEM

    def __call__(self, file, request, argument):
        if request == vfio.MAP_DMA:
            size, flags, host, address, count = MAP.unpack(argument)
            assert size == MAP.size == len(argument) and flags & ~3 == 0
            assert all(each % PAGE == 0 for each in (host, address, count))
            if sum(each[1] for each in self.mapped.values()) + count > self.limit:
                raise OSError(self.refusal, os.strerror(self.refusal))
            ranges = [(first, first + each[1]) for first, each in self.mapped.items()]
            assert all(address + count <= first or end <= address for first, end in ranges)
            self.mapped[address] = host, count, flags
            if self.card:
                self.card.memory.map(address, bytes_at(host, count), flags & 2 != 0)
        else:
            assert request == vfio.UNMAP_DMA
            size, flags, address, count = UNMAP.unpack(argument)
            assert (size, flags, self.mapped.pop(address)[1]) == (len(argument), 0, count)
            if self.card:
                self.card.memory.unmap(address)
        return 0
