"""The registers of a card: a window (BAR) of its PCI function, mapped into this process."""

import mmap
import os
import re
import struct
from pathlib import Path

from ..errors import TransportError

SYSFS = Path("/sys/bus/pci/devices")
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_COMMAND = 4  # byte of the configuration space, PCI Local Bus Specification 3.0, section 6.2.2
_MEMORY_SPACE, _BUS_MASTER = 1 << 1, 1 << 2
_REGISTER = 4  # bytes


def find_function(address: str, sysfs: Path = SYSFS) -> Path:
    """The folder in which the system shows a PCI function.

    Raises
    ------
    ValueError
        If that is no address of a function, or nothing is there.
    """
    if not _ADDRESS.fullmatch(address or ""):
        raise ValueError(f"which PCI function? Write its domain, bus, device and function as "
                         f"`lspci -D` does, pcie:0000:01:00.0, not {address!r}")
    folder = sysfs / address
    if not folder.is_dir():
        raise ValueError(f"there is no PCI function {address}: look for the card with `lspci -D`; "
                         "a card that was configured after the start is found by a rescan")
    return folder


class Bar:
    """32-bit registers in mapped memory.

    Parameters
    ----------
    name : str
        For messages.
    file : int
        Descriptor to map; it may be closed afterwards.
    offset, size : int
        Bytes of the file that are the window; `offset` a multiple of the page.
    """

    def __init__(self, name, file, offset, size):
        self.name, self.size = name, size
        self._map = mmap.mmap(file, size, offset=offset)
        # One access of the processor each, of 32 bits.
        self._registers = memoryview(self._map).cast("I")

    def read(self, offset) -> int:
        """The register at byte `offset`.

        Raises
        ------
        TransportError
            If it lies beyond the window, or the card is gone.
        """
        value = self._registers[self._at(offset)]
        if value == 0xFFFF_FFFF and self._registers[0] == value:  # what nobody answers
            raise TransportError(f"{self.name} does not answer: the card was removed, reset or "
                                 "configured anew; open the device again")
        return value

    def write(self, offset, value) -> None:
        """Write it."""
        self._registers[self._at(offset)] = value

    def close(self) -> None:
        """End the mapping."""
        self._registers.release()
        self._map.close()

    def _at(self, offset):
        if offset % _REGISTER or not 0 <= offset < self.size:
            raise TransportError(f"{self.name} has {self.size} bytes of registers, none at "
                                 f"{offset:#x}: is this a hotrow card, and its BAR the right one?")
        return offset // _REGISTER


def sysfs_bar(folder: Path, number: int) -> Bar:
    """A BAR as the system's file of it, which the superuser may map.

    Raises
    ------
    ValueError
        If there is no such BAR.
    """
    path = folder / f"resource{number}"
    if not path.is_file() or not path.stat().st_size:
        raise ValueError(f"{folder.name} has no BAR {number} of memory: choose another by `bar`")
    file = os.open(path, os.O_RDWR | os.O_SYNC)
    try:
        return Bar(f"PCI function {folder.name}, BAR {number}", file, 0, path.stat().st_size)
    finally:
        os.close(file)


def enable(file: int, offset: int = 0) -> None:
    """Let a function answer at its BARs and reach memory by itself.

    Parameters
    ----------
    file : int
        Descriptor that holds the configuration space from `offset` on.
    """
    [command] = struct.unpack("<H", os.pread(file, 2, offset + _COMMAND))
    os.pwrite(file, struct.pack("<H", command | _MEMORY_SPACE | _BUS_MASTER), offset + _COMMAND)
