"""A client of the vfio-user protocol as a transport: the driver's `pcie` on a card's socket."""

import ctypes
import errno
import itertools
import mmap
import os
import socket
import threading
from queue import SimpleQueue

import numpy as np
from hotrow.contract.errors import TransportError
from hotrow.transports.pcie import vfio
from hotrow.transports.pcie.transport import PcieTransport
from hotrow.transports.pcie.vfio import VfioMemory
from hotrow_sim.pcie import messages
from hotrow_sim.pcie.messages import Command, Flag, unpacked

CAPABILITIES = b'{"capabilities": {"max_msg_fds": 8}}\0'
COMMAND, MEMORY_SPACE, BUS_MASTER = 4, 2, 4  # of the configuration space
PATIENCE = 60  # seconds


class Client:
    """A PCI function on a socket.

    A thread receives the replies, and serves the card's accesses to memory that `ioctl` mapped.
    """

    def __init__(self, path):
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.connect(str(path))
        self.numbers, self.replies, self.mapped = itertools.count(1), {}, {}
        self.lock, self.event, self.served = threading.Lock(), None, 0
        self.thread = threading.Thread(target=self._receive, daemon=True)
        self.thread.start()
        reply = self.call(Command.VERSION, messages.VERSION.pack(0, 1) + CAPABILITIES)
        assert unpacked(messages.VERSION, reply)[0][0] == 0

    def call(self, command, payload=b"", files=()):
        """The payload of the reply; raises OSError for a refusal."""
        number, mailbox = next(self.numbers) & 0xFFFF, SimpleQueue()
        with self.lock:
            self.replies[number] = mailbox
            try:
                messages.send(self.line, number, command, payload, files=files)
            except OSError as gone:
                raise TransportError(f"the card's server has gone: {gone}") from gone
        reply = mailbox.get(timeout=PATIENCE)
        if reply is None:
            raise TransportError("the card's server has gone")
        if reply.flags & Flag.ERROR:
            raise OSError(reply.error, os.strerror(reply.error))
        return reply.payload

    def read(self, offset, count=4, region=messages.BAR):
        """Bytes of a region; a register's value for the BAR."""
        octets = self.call(Command.REGION_READ, messages.ACCESS.pack(offset, region, count))
        octets = octets[messages.ACCESS.size:]
        return int.from_bytes(octets, "little") if region == messages.BAR else octets

    def write(self, offset, value, region=messages.BAR):
        """Write a register, or bytes of another region."""
        octets = value.to_bytes(4, "little") if region == messages.BAR else value
        self.call(Command.REGION_WRITE, messages.ACCESS.pack(offset, region, len(octets)) + octets)

    def enable(self, *, master):
        """Let the function respond; let it access memory, or no longer."""
        value = MEMORY_SPACE | (BUS_MASTER if master else 0)
        self.write(COMMAND, value.to_bytes(2, "little"), messages.CONFIGURATION)

    def interrupt(self):
        """Descriptor of an event that the card's interrupts trigger."""
        self.event = os.eventfd(0, os.EFD_NONBLOCK)
        self.call(Command.SET_IRQS, messages.IRQ_SET.pack(
            messages.IRQ_SET.size, messages.DATA_EVENTFD | messages.ACTION_TRIGGER, messages.MSI,
            0, 1), files=(self.event,))
        return self.event

    def ioctl(self, file, request, argument):
        """The memory calls of VFIO."""
        if request == vfio.MAP_DMA:
            _, flags, host, address, size = vfio.MAP.unpack(argument)
            self.mapped[address] = host, size, bool(flags & messages.WRITABLE)
            self.call(Command.DMA_MAP, messages.MAP.pack(
                messages.MAP.size, flags, 0, address, size))
        else:
            assert request == vfio.UNMAP_DMA
            self.call(Command.DMA_UNMAP, bytes(argument))
            del self.mapped[vfio.UNMAP.unpack(argument)[2]]
        return 0

    def close(self):
        self.line.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.line.close()
        if self.event is not None:
            os.close(self.event)
            self.event = None

    def _receive(self):
        try:
            while True:
                message = messages.receive(self.line)
                if message.flags & messages.TYPE == Flag.REPLY:
                    self.replies.pop(message.number).put(message)
                else:
                    self._serve(message)
        except (EOFError, OSError):
            for mailbox in list(self.replies.values()):
                mailbox.put(None)

    def _serve(self, message):
        (address, count), octets = unpacked(messages.DMA, message.payload)
        host = self._host(address, count, message.command == Command.DMA_WRITE)
        found, error, flags = b"", 0, Flag.REPLY
        if host is None:
            error, flags = errno.EFAULT, flags | Flag.ERROR
        elif message.command == Command.DMA_READ:
            found = ctypes.string_at(host, count)
        else:
            ctypes.memmove(host, octets, count)
        self.served += 1
        with self.lock:
            messages.send(self.line, message.number, message.command,
                          messages.DMA.pack(address, count) + found, flags, error)

    def _host(self, address, count, writes):
        for first, (host, size, writable) in list(self.mapped.items()):
            if first <= address and address + count <= first + size:
                return host + address - first if writable or not writes else None
        return None


class SharedMemory:
    """Arrays in a file that the card's process maps, as the memory of a virtual machine."""

    BASE, SIZE = 1 << 24, 1 << 24

    def __init__(self, client):
        self.file = os.memfd_create("guest")
        os.ftruncate(self.file, self.SIZE)
        self.octets = np.frombuffer(mmap.mmap(self.file, self.SIZE), np.uint8)
        self.used = 0
        client.call(Command.DMA_MAP, messages.MAP.pack(
            messages.MAP.size, messages.READABLE | messages.WRITABLE, 0, self.BASE, self.SIZE),
            files=(self.file,))
        os.close(self.file)

    def empty(self, shape, dtype):
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        first, self.used = self.used, self.used + size + -size % 64
        return self.octets[first:first + size].view(dtype).reshape(shape)

    def attach(self, octets, writable):
        at = octets.ctypes.data - self.octets.ctypes.data
        assert 0 <= at <= self.SIZE - octets.size, "the array lies elsewhere"
        return self.BASE + at

    def detach(self, address):
        """Do nothing: the file stays mapped."""


def open_transport(address, preset=None, interrupts=True, shared=False):
    """A `PcieTransport` to the card that serves the socket `address`."""
    client = Client(address)
    return PcieTransport(client, lambda width: SharedMemory(client) if shared
                         else VfioMemory(-1, width, client.ioctl), client.enable,
                         interrupt=client.interrupt() if interrupts else None)
