"""A PCI function by VFIO: the IOMMU limits its accesses to mapped memory.

Source: Linux, Documentation/driver-api/vfio.rst and include/uapi/linux/vfio.h; the type 1 IOMMU.
"""

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...memory.address_ranges import AddressRanges
from .bar import Bar, enable

_API_VERSION, _TYPE1 = 0, 1
_BASE = ord(";") << 8 | 100  # _IO(';', 100 + number)
GET_API_VERSION, CHECK_EXTENSION, SET_IOMMU, GROUP_STATUS, GROUP_SET_CONTAINER = range(
    _BASE, _BASE + 5)
GROUP_DEVICE, REGION_INFO, IRQ_INFO, SET_IRQS, MAP_DMA, UNMAP_DMA = (
    _BASE + number for number in (6, 8, 9, 10, 13, 14))
_VIABLE = 1  # status of a group whose functions are all bound to VFIO
REGION, IRQ, IRQ_EVENT, MAP, UNMAP = (struct.Struct(form) for form in (
    "=IIIIQQ", "=IIII", "=IIIIIi", "=IIQQQ", "=IIQQ"))
_READABLE, _WRITABLE = 1, 2  # by the card
_CONFIGURATION = 7  # number of the region
_MSI = 1  # number of the interrupts
_EVENT_TRIGGER = 1 << 2 | 1 << 5  # data: a descriptor of an event; action: a trigger
# Device addresses: above those of interrupts, and below the limit of an IOMMU of 39 bits.
_FIRST, _END = 1 << 32, 1 << 39
_FIRST_SHORT, _END_SHORT = 1 << 24, 0xFEE0_0000  # of a card with addresses of 32 bits
_DENIED = "your user may not: `chown $USER {path}`, or a udev rule for the group of VFIO's devices"
_OPENING = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EBUSY: "another process uses the function, `fuser -v {path}` shows which: end it first",
    errno.ENOENT: "the kernel's module is not loaded: `modprobe vfio-pci`",
    errno.ENODEV: "the kernel's module is not loaded: `modprobe vfio-pci`",
}
_SETTING = {
    errno.EPERM: "the platform cannot remap interrupts: if you trust the card, load "
                 "vfio_iommu_type1 with allow_unsafe_interrupts=1",
    errno.EBUSY: "another process uses the IOMMU group: end it first",
    errno.ENODEV: "the function left its group: bind it to vfio-pci again",
    errno.EINVAL: "the function is not bound to vfio-pci: `driverctl set-override {path} vfio-pci`",
}
_MAPPING = {
    errno.ENOMEM: "raise the limit of locked memory, `ulimit -l`",
    errno.ENOSPC: "there are too many mappings: register one larger array instead of many, or load "
                  "vfio_iommu_type1 with a larger dma_entry_limit",
    errno.EFAULT: "its pages cannot be locked, like those of a file or of read-only memory: "
                  "allocate the array with hotrow.empty",
    errno.EEXIST: "another user of the container has mapped these addresses: open the device again",
}


class VfioFunction:
    """A function that is bound to the kernel's driver vfio-pci.

    Parameters
    ----------
    folder : Path
        See `find_function`.
    devices : Path
        Folder of the device files.
    ioctl : callable
        With the signature of `fcntl.ioctl`.

    Raises
    ------
    ValueError, OSError
        If it is not bound, or this process may not use it.
    """

    def __init__(self, folder: Path, devices: Path = Path("/dev/vfio"),
                 ioctl: Callable[..., Any] = fcntl.ioctl):
        self.name, self._ioctl = f"PCI function {folder.name}", ioctl
        self._files: list[int] = []
        group = folder / "iommu_group"
        if not group.exists():
            raise ValueError(f"{folder.name} is in no IOMMU group: turn the IOMMU on in the "
                             "firmware and by the kernel's option intel_iommu=on or amd_iommu=on, "
                             "or use memory='hugepages'")
        path = devices / group.resolve().name
        if not path.exists():
            raise ValueError(f"{folder.name} is not bound to vfio-pci: `modprobe vfio-pci`, then "
                             f"`driverctl set-override {folder.name} vfio-pci`")
        try:
            self.container, file = self._open(devices / "vfio"), self._open(path)
            if ioctl(self.container, GET_API_VERSION) != _API_VERSION or not ioctl(
                    self.container, CHECK_EXTENSION, _TYPE1):
                raise ValueError("this kernel's VFIO has no IOMMU of type 1")
            status = bytearray(struct.pack("=II", 8, 0))
            ioctl(file, GROUP_STATUS, status)
            if not struct.unpack("=II", status)[1] & _VIABLE:
                raise ValueError(f"other functions in the IOMMU group of {folder.name} have other "
                                 "drivers: bind them to vfio-pci, too")
            try:
                ioctl(file, GROUP_SET_CONTAINER, struct.pack("=i", self.container))
                ioctl(self.container, SET_IOMMU, _TYPE1)
                self._device = ioctl(file, GROUP_DEVICE, folder.name.encode() + b"\0")
            except OSError as error:
                raise ValueError(f"VFIO does not give {folder.name} to this process "
                                 f"{_reason(error, _SETTING, folder.name)}") from error
            self._files.append(self._device)
            self.enable(master=False)
        except BaseException:
            self.close()
            raise

    def bar(self, number: int) -> Bar:
        """The registers in a BAR."""
        offset, size = self._region(number)
        if not size:
            raise ValueError(f"{self.name} has no BAR {number} of memory: choose another by `bar`")
        return Bar(f"{self.name}, BAR {number}", self._device, offset, size)

    def enable(self, *, master: bool) -> None:
        """Let the function respond; let it access mapped memory, or no longer."""
        enable(self._device, self._region(_CONFIGURATION)[0], master=master)

    def interrupt(self) -> int | None:
        """Descriptor of an event that each interrupt of the card triggers, if it has interrupts."""
        info = bytearray(IRQ.pack(IRQ.size, 0, _MSI, 0))
        self._ioctl(self._device, IRQ_INFO, info)
        if not IRQ.unpack(info)[3]:
            return None
        self._files.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        self._ioctl(self._device, SET_IRQS, IRQ_EVENT.pack(
            IRQ_EVENT.size, _EVENT_TRIGGER, _MSI, 0, 1, self._files[-1]))
        return self._files[-1]

    def close(self) -> None:
        """Release the function; the card can then reach no memory."""
        while self._files:
            os.close(self._files.pop())

    def _open(self, path: Path) -> int:
        try:
            self._files.append(os.open(path, os.O_RDWR))
        except OSError as error:
            raise ValueError(f"{path} cannot be opened {_reason(error, _OPENING, path)}") from error
        return self._files[-1]

    def _region(self, number: int) -> tuple[int, int]:
        """Offset and size of a region in the function's file."""
        info = bytearray(REGION.pack(REGION.size, 0, number, 0, 0, 0))
        self._ioctl(self._device, REGION_INFO, info)
        *_, size, offset = REGION.unpack(info)
        return offset, size


class VfioMemory:
    """The caller's arrays, each at consecutive device addresses.

    Pages stay in memory while they are mapped.

    Parameters
    ----------
    container : int
        Descriptor.
    address_width : int
        Bits of the card's addresses.
    ioctl : callable
        With the signature of `fcntl.ioctl`.
    """

    def __init__(self, container: int, address_width: int, ioctl: Callable[..., Any] = fcntl.ioctl):
        self._container, self._ioctl = container, ioctl
        first, end = (_FIRST, _END) if address_width > 32 else (_FIRST_SHORT, _END_SHORT)
        self._ranges = AddressRanges(first, min(end, 1 << address_width) - first)
        self._mapped: dict[int, tuple[NDArray[np.uint8], int, int]] = {}

    def attach(self, octets: NDArray[np.uint8], writable: bool) -> int:
        """Map the pages of a uint8 array and return its device address.

        Raises
        ------
        MemoryError
            If the device addresses have no room for it, or the system refuses to map it.
        """
        host, page = octets.ctypes.data, mmap.PAGESIZE
        shift = host % page
        size = -(-(shift + octets.size) // page) * page
        address = self._ranges.place(0, size + page)  # with room for alignment to a page
        start = -(-address // page) * page
        try:
            self._ioctl(self._container, MAP_DMA, MAP.pack(
                MAP.size, _READABLE | (_WRITABLE if writable else 0), host - shift, start, size))
        except OSError as error:
            self._ranges.release(address)
            raise MemoryError(f"the system does not map {size} bytes for the card "
                              f"{_reason(error, _MAPPING)}") from error
        self._mapped[start + shift] = octets, address, size
        return start + shift

    def detach(self, address: int) -> None:
        """End the access that `attach` began."""
        octets, place, size = self._mapped.pop(address)
        start = address - octets.ctypes.data % mmap.PAGESIZE
        self._ioctl(self._container, UNMAP_DMA, bytearray(UNMAP.pack(UNMAP.size, 0, start, size)))
        self._ranges.release(place)


def _reason(error: OSError, advice: dict[int, str], path: str | Path = "") -> str:
    """The system's words for an error, and what to do about it."""
    text = advice.get(error.errno or 0, "see the kernel's log, `dmesg`").format(path=path)
    return f"({error.strerror}): {text}"
