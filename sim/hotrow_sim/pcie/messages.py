"""Messages of the vfio-user protocol, by which a process serves a PCI function on a socket.

Source: QEMU, docs/interop/vfio-user.rst; the structures are those of Linux,
include/uapi/linux/vfio.h. Numbers are little-endian.
"""

import errno
import os
import socket
import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple


class Command(IntEnum):
    """Commands; from `DMA_READ` to `DMA_WRITE` those of the server."""

    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    GET_INFO = 4
    GET_REGION_INFO = 5
    GET_IRQ_INFO = 7
    SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DMA_READ = 11
    DMA_WRITE = 12
    RESET = 13


class Flag(IntFlag):
    """Flags of a message; the lowest four bits are its type."""

    REPLY = 1
    NO_REPLY = 1 << 4
    ERROR = 1 << 5


TYPE = 0xF  # mask in the flags
HEADER = struct.Struct("<HHIII")  # number, command, bytes in all, flags, errno
VERSION = struct.Struct("<HH")  # major, minor; JSON and a zero follow
INFO = struct.Struct("<IIII")  # size, flags, regions, interrupts
REGION_INFO = struct.Struct("<IIIIQQ")  # size, flags, index, capabilities, bytes, offset
IRQ_INFO = struct.Struct("<IIII")  # size, flags, index, count
IRQ_SET = struct.Struct("<IIIII")  # size, flags, index, start, count
ACCESS = struct.Struct("<QII")  # offset, region, bytes; the data follows
MAP = struct.Struct("<IIQQQ")  # size, flags, offset in the file, address, bytes
UNMAP = struct.Struct("<IIQQ")  # size, flags, address, bytes
DMA = struct.Struct("<QQ")  # address, bytes; the data follows

MAJOR, MINOR = 0, 1
BAR, CONFIGURATION, REGIONS = 0, 7, 9
MSI, INTERRUPTS = 1, 5
READABLE, WRITABLE = 1, 2
UNMAP_ALL = 2
RESETS, IS_PCI = 1, 2  # of `INFO`
EVENTFD, NOT_RESIZED = 1, 8  # of `IRQ_INFO`
DATA_NONE, DATA_EVENTFD, ACTION_TRIGGER = 1, 4, 32  # of `IRQ_SET`
MOST_FILES, MOST_BYTES = 8, 1 << 20  # of a message; bytes of data


class Message(NamedTuple):
    """A message and the files that came with it."""

    number: int
    command: int
    flags: int
    error: int
    payload: bytes
    files: tuple[int, ...]


def send(line: socket.socket, number: int, command: int, payload: bytes = b"",
         flags: int = 0, error: int = 0, files: tuple[int, ...] = ()) -> None:
    """Send a message."""
    header = HEADER.pack(number, command, HEADER.size + len(payload), flags, error)
    octets = header + payload
    sent = socket.send_fds(line, [octets], list(files))
    line.sendall(octets[sent:])


def receive(line: socket.socket) -> Message:
    """Wait for a message.

    Raises
    ------
    EOFError
        If the other side has closed the line.
    ConnectionError
        If what it sends is no message.
    """
    head, files, _, _ = socket.recv_fds(line, HEADER.size, MOST_FILES)
    try:
        if not head:
            raise EOFError
        head += _exactly(line, HEADER.size - len(head))
        number, command, size, flags, error = HEADER.unpack(head)
        if not HEADER.size <= size <= HEADER.size + ACCESS.size + MOST_BYTES:
            raise ConnectionError(f"a message of {size} bytes, which is not of vfio-user")
        payload = _exactly(line, size - HEADER.size)
    except BaseException:
        for file in files:
            os.close(file)
        raise
    return Message(number, command, flags, error, payload, tuple(files))


def unpacked(structure: struct.Struct, payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The fields at the start of a payload, and what follows.

    Raises
    ------
    OSError
        EINVAL, if it is too short.
    """
    if len(payload) < structure.size:
        raise OSError(errno.EINVAL, "a payload too short")
    return structure.unpack_from(payload), payload[structure.size:]


def _exactly(line, size):
    octets = b""
    while len(octets) < size:
        more = line.recv(size - len(octets))
        if not more:
            raise EOFError
        octets += more
    return octets
