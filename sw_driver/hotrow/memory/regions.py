"""The memory regions of a device: which buffer has which handle."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import HostWriteError, RegistrationError
from ..contract.generated import OFFSET_WIDTH, RegionCommitBits
from ..contract.records import unpack_address
from .buffer import Buffer, Held, empty, span
from .registers import Registers
from .transport import Transport


class Regions:
    """Hand out handles and keep the card's region table in step.

    Parameters
    ----------
    transport : Transport
    registers : Registers
    handles : int
        Regions that the card can hold.

    Attributes
    ----------
    empty : callable
        Allocates memory that the card can reach, with the signature of `hotrow.empty`.
    reaches_host : bool
        Whether the card works on the host's memory in place; else on copies of it.
    copies : CardMemory, a transport that has its calls, or None
        Copies of arrays in memory of the card's own: of all, or of those on the card if the card
        reaches the host's memory, too.
    """

    def __init__(self, transport: Transport, registers: Registers, handles: int):
        self._transport, self._registers, self._handles = transport, registers, handles
        self.empty = getattr(transport, "empty", empty)
        self.reaches_host: bool = getattr(transport, "reaches_host", True)
        self.copies: Any = None if self.reaches_host else transport
        self._buffers: list[Buffer | None] = []  # by handle, up to the highest in use
        self._unsent: list[tuple[Buffer, int, int]] = []  # (memory of the driver, offset, bytes)
        self._to_push = False  # whether an array on the card may not have been sent

    def clear(self) -> None:
        """Remove every region from the card: another program may have left some."""
        for handle in range(self._handles):
            self._commit(handle, 0)

    @property
    def on_card(self) -> list[Buffer]:
        """Buffers whose memory is on the card alone."""
        return [] if self.copies is None else [
            buffer for buffer in self._buffers if buffer and buffer.on_card]

    def remove_all(self) -> None:
        """Unregister every buffer, also those that a command under way uses."""
        for buffer in filter(None, tuple(self._buffers)):
            self.drop(buffer)

    def add_card(self, base: int, size: int) -> int:
        """Give the card's own memory a handle, which no array gets."""
        self._handles -= 1
        self._define(self._handles, base, size, RegionCommitBits.WRITABLE)
        return self._handles

    def add(self, source: Any, writable: bool, name: str | None = None,
            held: Held | None = None, owner: str = "both") -> Buffer:
        """Register memory.

        Parameters
        ----------
        source : numpy.ndarray or torch tensor
        writable : bool
        name : str, optional
            For messages.
        held : Held, optional
            Unregister it when the command has completed.
        owner : str
            "both", "card" or "driver": who writes to it, see `card_memory`.

        Raises
        ------
        RegistrationError
            If the memory is misaligned, read-only though `writable` is set, no handle is free, the
            device's addresses have no room for it, or it would be on the card in part.
        """
        buffer = Buffer(name or "the buffer", source, writable)
        buffer.on_card = self.copies is not None and (
            owner == "card" or self._shares_card(buffer.bytes))
        if buffer.on_card and self.reaches_host:
            self._check_apart(buffer)
        handle = self._buffers.index(None) if None in self._buffers else len(self._buffers)
        if handle == self._handles:
            raise RegistrationError(
                f"all {self._handles} memory regions of this card are in use: unregister a "
                f"buffer or table, or keep several arrays in one larger buffer")
        if buffer.nbytes >= 1 << OFFSET_WIDTH:
            raise RegistrationError(f"{buffer.name} has {buffer.nbytes} bytes: a region holds "
                                    f"fewer than 2**{OFFSET_WIDTH}")
        if held is not None:
            buffer.for_one_command = True
            held.at_end(self.drop, buffer)
        try:
            buffer.handle = handle
            self._buffers[handle:handle + 1] = [buffer]
            buffer.device_address = (
                self.copies.attach(buffer.bytes, writable, owner) if self._copied(buffer)
                else self._transport.attach(buffer.bytes, writable))
            self._to_push |= buffer.on_card
            self._define(handle, buffer.device_address, buffer.nbytes,
                         RegionCommitBits.WRITABLE if writable else 0)
        except BaseException as error:
            self.drop(buffer)
            if isinstance(error, MemoryError):
                raise RegistrationError(f"{buffer.name} cannot be registered: {error}") from error
            raise
        if name is None:
            buffer.name = f"buffer {handle}"
        return buffer

    def remove(self, buffer: Buffer) -> None:
        """Unregister memory; the device can no longer reach it."""
        if buffer.handle is None or self._buffers[buffer.handle] is not buffer:
            raise RegistrationError(f"{buffer.name} is not registered with this device")
        if buffer.uses:
            raise RegistrationError(
                f"{buffer.name} is in use by a command under way: take its result first")
        self.drop(buffer)

    def find(self, host: int, size: int, writable: bool = False) -> Buffer | None:
        """A registered buffer with `size` bytes from host address `host`, or None.

        Buffers that are registered for one command do not count.
        """
        end = host + size
        for buffer in self._buffers:
            if (buffer and buffer.host <= host and end <= buffer.host + buffer.nbytes
                    and buffer.writable >= writable and not buffer.for_one_command):
                return buffer
        return None

    def check_copied(self, what: str, *arrays: NDArray[Any] | None) -> None:
        """Refuse arrays on the card, of which the driver would copy the host's contents.

        Parameters
        ----------
        what : str
            Their name in messages.
        arrays : numpy.ndarray or None

        Raises
        ------
        RegistrationError
        """
        if any(self._shares_card(array) for array in arrays if array is not None):
            raise RegistrationError(
                f"{what} is in memory that is on the card, and the command cannot use it there: "
                f"call flush(), and pass a copy")

    def find_in_place(self, array: NDArray[Any], alignment: int, held: Held) -> int | None:
        """Address operand of registered memory that the device reads in place, or None."""
        host, size = span(array)
        buffer = self.find(host, size)
        if buffer is None or (host - buffer.host) % alignment:
            return None
        buffer.check()
        held.use(buffer)
        return buffer.packed(host - buffer.host)

    def _shares_card(self, array: NDArray[Any]) -> bool:
        """Whether an array shares memory with a buffer that is on the card."""
        return any(np.may_share_memory(array, buffer.bytes) for buffer in self.on_card)

    def _check_apart(self, buffer: Buffer) -> None:
        """Refuse an array on the card of which another array has a part in the host's memory."""
        for other in filter(None, self._buffers):
            if not other.on_card and np.may_share_memory(buffer.bytes, other.bytes):
                raise RegistrationError(
                    f"{buffer.name} cannot be on the card: its bytes overlap those of "
                    f"{other.name}, which was registered without on_card=True")

    def _copied(self, buffer: Buffer) -> bool:
        """Whether the card works on a copy of a buffer."""
        return buffer.on_card or not self.reaches_host

    def push(self) -> None:
        """Send arrays on the card that were never sent; over a link a doorbell does."""
        if self._to_push and self.reaches_host:
            self.copies.push(alone=True)
        self._to_push = False

    def send_later(self, buffer: Buffer, offset: int, size: int) -> None:
        """Send bytes of memory of the driver before the next command."""
        if not self.reaches_host:
            self._unsent.append((buffer, offset, size))

    def send(self) -> None:
        """Send what `send_later` named; the next call continues after an interrupt."""
        while self._unsent:
            buffer, offset, size = self._unsent[0]
            if buffer.device_address is not None:
                self.copies.send(buffer.device_address + offset, size)
            del self._unsent[0]

    def fetch(self, buffer: Buffer, offset: int, size: int) -> None:
        """Fetch bytes that the card wrote to memory of the driver."""
        if not self.reaches_host and size:
            assert buffer.device_address is not None
            self.copies.fetch(buffer.device_address + offset, size)

    def flush(self, buffer: Buffer | None = None) -> None:
        """Fetch what the card wrote to memory on the card, or only to that of a buffer.

        Raises
        ------
        HostWriteError
            The host wrote to it since the last flush.
        """
        if self.copies is None or (buffer and not buffer.on_card):
            return
        with self._named():
            if buffer is None:
                self.copies.flush()
            elif buffer.device_address is not None:
                self.copies.flush(buffer.device_address)

    def upload(self) -> None:
        """`flush`, and send what the host wrote to memory on the card.

        Raises
        ------
        HostWriteError
            Host and card wrote to the same bytes.
        """
        with self._named():
            self.copies.upload()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the memory in a HostWriteError."""
        try:
            yield
        except HostWriteError as error:
            for buffer in self.on_card:
                first = error.address + error.first - (buffer.device_address or 0)
                if 0 <= first < buffer.nbytes:
                    row = first // buffer.array.strides[0] if buffer.array.ndim else 0
                    raise HostWriteError(
                        error.address, first, first + error.end - error.first, error.both,
                        f"{buffer.name} (row {row})") from None
            raise

    def reach(self, array: NDArray[Any], what: str, writable: bool, alignment: int,
              held: Held) -> int:
        """Address operand of an array that the device uses in place.

        Parameters
        ----------
        array : numpy.ndarray
        what : str
            Its name in messages.
        writable : bool
            Whether the device writes to it.
        alignment : int
            The address of its first byte must be a multiple of this number.
        held : Held
            Keeps the memory until the command has completed; memory that is not registered is
            registered until then.

        Raises
        ------
        RegistrationError
        """
        host, size = span(array)
        buffer = self.find(host, size, writable) or self.add(array, writable, what, held)
        buffer.check()
        if (host - buffer.host) % alignment:
            raise RegistrationError(
                f"{what} starts at {host:#x}, which is not a multiple of {alignment} bytes")
        held.use(buffer)
        return buffer.packed(host - buffer.host)

    def describe(self, address: int) -> str:
        """An address operand in words."""
        handle, offset = unpack_address(address)
        buffer = self._buffers[handle] if handle < len(self._buffers) else None
        return f"{buffer.name if buffer else f'unregistered handle {handle}'} + {offset:#x}"

    def drop(self, buffer: Buffer) -> None:
        """Unregister a buffer, whether or not a command uses it; a second call does nothing."""
        handle = buffer.handle
        if handle is not None and buffer in self._buffers:
            if not buffer.for_one_command:  # else it lies in an array that stays
                self.flush(buffer)
            self._commit(handle, 0)
            if buffer.device_address is not None:
                address, buffer.device_address = buffer.device_address, None
                (self.copies if self._copied(buffer) else self._transport).detach(address)
            self._buffers[handle] = None  # from here on another buffer may have the handle
        buffer.handle = None

    def _define(self, handle: int, base: int, size: int, bits: int) -> None:
        self._registers.write_wide("REGION_BASE", base)
        self._registers.write_wide("REGION_SIZE", size)
        self._commit(handle, RegionCommitBits.VALID | bits)

    def _commit(self, handle: int, bits: int) -> None:
        self._registers.write("REGION_HANDLE", handle)
        self._registers.write("REGION_COMMIT", bits)
