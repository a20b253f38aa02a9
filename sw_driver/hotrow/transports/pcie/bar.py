"""The registers of a card: a BAR of its PCI function, mapped into this process."""

import mmap
import os
import re
import struct
from pathlib import Path

from ...contract.errors import TransportError

SYSFS = Path("/sys/bus/pci/devices")
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_COMMAND = 4  # byte of the configuration space, PCI Local Bus Specification 3.0, section 6.2.2
_MEMORY_SPACE, _BUS_MASTER = 1 << 1, 1 << 2
_REGISTER = 4  # bytes


def find_function(address: str | None, sysfs: Path = SYSFS) -> Path:
    """The folder of a PCI function in sysfs.

    Raises
    ------
    ValueError
        If `address` is malformed, or there is no such function.
    """
    if not address or not _ADDRESS.fullmatch(address):
        named = f"{address!r} is no PCI function" if address else "no PCI function was named"
        raise ValueError(f"{named}: write domain, bus, device and function "
                         f"as `lspci -D` prints them, pcie:0000:01:00.0")
    folder = sysfs / address
    if not folder.is_dir():
        raise ValueError(f"there is no PCI function {address}: look for the card with `lspci -D`; "
                         "after a card was configured, rescan the bus")
    return folder


class Bar:
    """32-bit registers in mapped memory.

    Parameters
    ----------
    name : str
        For messages.
    file : int
        Descriptor to map; the caller may close it afterwards.
    offset, size : int
        Bytes of the file that belong to the BAR; `offset` is a multiple of the page size.
    """

    def __init__(self, name: str, file: int, offset: int, size: int):
        self.name, self.size = name, size
        self._map = mmap.mmap(file, size, offset=offset)
        # Each element is read and written by one 32-bit access.
        self._registers = memoryview(self._map).cast("I")

    def read(self, offset: int) -> int:
        """The register at byte `offset`.

        Raises
        ------
        TransportError
            If it lies outside the BAR, or the card is gone.
        """
        value = self._registers[self._at(offset)]
        if value == 0xFFFF_FFFF and self._registers[0] == value:  # a read without a completer
            raise TransportError(f"{self.name} does not answer: the card was removed, reset or "
                                 "reconfigured; open the device again")
        return value

    def write(self, offset: int, value: int) -> None:
        """Write the register at byte `offset`."""
        self._registers[self._at(offset)] = value

    def close(self) -> None:
        """End the mapping."""
        self._registers.release()
        self._map.close()

    def _at(self, offset: int) -> int:
        if offset % _REGISTER or not 0 <= offset < self.size:
            raise TransportError(f"{self.name} has {self.size} bytes of registers, none at "
                                 f"{offset:#x}: check that this is a hotrow card and its BAR")
        return offset // _REGISTER


def sysfs_bar(folder: Path, number: int) -> Bar:
    """A BAR by its file in sysfs, which the superuser may map.

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


def enable(file: int, offset: int = 0, *, master: bool) -> None:
    """Let a function respond at its BARs; let it access memory, or no longer.

    Parameters
    ----------
    file : int
        Descriptor of a file with the configuration space.
    master : bool
        The function may master the bus.
    offset : int
        First byte of the configuration space in the file.
    """
    [command] = struct.unpack("<H", os.pread(file, 2, offset + _COMMAND))
    command = command & ~_BUS_MASTER | _MEMORY_SPACE | (_BUS_MASTER if master else 0)
    os.pwrite(file, struct.pack("<H", command), offset + _COMMAND)
