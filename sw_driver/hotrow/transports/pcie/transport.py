"""The transport `pcie`: registers in a BAR, memory in place."""

import fcntl
import os
import select
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...contract.errors import TransportError
from ...contract.generated import IDENTITY, QUEUES, REGISTERS, ControlBits, InterruptBits
from ...memory.registers import Registers, read_geometry
from ...memory.transport import check_octets
from .bar import Bar, enable, find_function, sysfs_bar
from .huge_pages import HugePages
from .vfio import VfioFunction, VfioMemory

_COMPLETED = [REGISTERS[f"{queue.upper()}_COMPLETED"] for queue in QUEUES]
_PAUSE = 20e-6  # seconds between two reads of COMPLETED of a busy card without interrupts
_PATIENCE = 0.01  # seconds between two such reads of one with interrupts, should one be lost
_INTERRUPTS = ControlBits.INTERRUPT_LOOKUP | ControlBits.INTERRUPT_MOVE
_ALL = InterruptBits.LOOKUP | InterruptBits.MOVE


class PcieTransport:
    """Transport to a card that reads and writes the host's memory.

    Parameters
    ----------
    bar : Bar
    memory : callable
        Makes a VfioMemory or HugePages, of the bits of an address in the host's memory.
    enable : callable
        Called with `master`, whether the card may access the host's memory from now on.
    release : callable
        Called by `close` to release the function.
    registers_at : int
        Byte of the BAR where the registers begin.
    interrupt : int, optional
        Descriptor of an event that the card's interrupts trigger, to be waited for.

    Notes
    -----
    A process that was killed may have left the card at work on memory that it no longer owns. The
    card therefore masters the bus only from its soft reset here until `close`.
    """

    name = "pcie"

    def __init__(self, bar: Bar, memory: Callable[[int], VfioMemory | HugePages],
                 enable: Callable[..., None] = lambda *, master: None,
                 release: Callable[[], None] = lambda: None, registers_at: int = 0,
                 interrupt: int | None = None):
        self._bar, self._interrupt, self._closed = bar, interrupt, False
        self._enable, self._release, self._registers_at = enable, release, registers_at
        enable(master=False)
        width = 64  # of another card, which the driver refuses
        if self.read_register(REGISTERS["IDENTITY"]) == IDENTITY:
            self.write_register(REGISTERS["CONTROL"], ControlBits.SOFT_RESET)
            width = read_geometry(Registers(self)).host_address_width
        enable(master=True)
        self._memory = memory(width)
        if hasattr(self._memory, "empty"):
            self.empty = self._memory.empty

    def read_register(self, offset: int) -> int:
        """The 32-bit register at byte `offset`."""
        return self._open().read(self._registers_at + offset)

    def write_register(self, offset: int, value: int) -> None:
        """Write the 32-bit register at byte `offset`."""
        self._open().write(self._registers_at + offset, value)

    def attach(self, array: NDArray[np.uint8], writable: bool) -> int:
        """Let the card reach an array and return the device address."""
        self._open()
        check_octets(array)
        return self._memory.attach(array, writable)

    def detach(self, address: int) -> None:
        """End the access that `attach` began."""
        self._open()
        self._memory.detach(address)

    def wait(self, queue: int, completed: int, timeout: float) -> None:
        """Read COMPLETED until it differs from `completed` or the time is over."""
        deadline = time.monotonic() + timeout
        if self._interrupt is not None:
            self.write_register(REGISTERS["CONTROL"], _INTERRUPTS)  # a soft reset disables them
        while True:
            if self._interrupt is not None:  # only a completion after this triggers the event
                self.write_register(REGISTERS["INTERRUPT"], _ALL)
            left = deadline - time.monotonic()
            if self.read_register(_COMPLETED[queue]) != completed or left <= 0:
                return
            if self._interrupt is None:
                time.sleep(_PAUSE)
            elif select.select([self._interrupt], [], [], min(_PATIENCE, left))[0]:
                os.eventfd_read(self._interrupt)

    def close(self) -> None:
        """Release the function."""
        if not self._closed:
            self._closed = True
            try:
                self._enable(master=False)
            finally:
                self._bar.close()
                self._release()

    def _open(self) -> Bar:
        if self._closed:
            raise TransportError("transport 'pcie' has been closed")
        return self._bar


def _lock(file: int, name: str) -> None:
    """Keep other programs of this driver off a function until the file is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another process uses PCI function {name}: end it first") from None


def open_transport(address: str | None = None, preset: object = None, bar: int = 0,
                   memory: str = "vfio", registers_at: int = 0) -> PcieTransport:
    """Open a card on PCI Express.

    Parameters
    ----------
    address : str
        Its function as `lspci -D` prints it: "pcie:0000:01:00.0".
    preset : str, optional
        Not used: the driver reads the geometry from the card.
    bar : int
        Number of the BAR that holds the registers.
    memory : str
        "vfio": any array, through the IOMMU; the function is bound to vfio-pci. "hugepages": arrays
        in huge pages from `device.transport.empty`; for the superuser.
    registers_at : int
        Byte of the BAR where the registers begin.

    Returns
    -------
    PcieTransport

    Raises
    ------
    ValueError, OSError
        If there is no such function, or it cannot be used in this way.
    """
    folder = find_function(address)
    if memory == "vfio":
        function = VfioFunction(folder)
        try:
            return PcieTransport(function.bar(bar), partial(VfioMemory, function.container),
                                 function.enable, function.close, registers_at,
                                 function.interrupt())
        except BaseException:
            function.close()
            raise
    if memory == "hugepages":
        registers = sysfs_bar(folder, bar)
        file = os.open(folder / "config", os.O_RDWR)
        try:
            _lock(file, folder.name)
            return PcieTransport(registers, HugePages, partial(enable, file),
                                 lambda: os.close(file), registers_at)
        except BaseException:
            os.close(file)
            raise
    raise ValueError(f"memory must be 'vfio' or 'hugepages', not {memory!r}")
