"""The memory regions of a device: which buffer has which handle."""

from .contract import OFFSET_WIDTH, unpack_address
from .errors import RegistrationError
from .memory import Buffer, empty, span

_VALID, _WRITABLE = 1, 2


class Regions:
    """Hand out handles and keep the card's region table in step.

    Parameters
    ----------
    transport : Transport
    registers : Registers
    handles : int
        Regions that the card can hold.

    Members
    -------
    empty : callable
        Allocates memory that the card can reach, as `hotrow.empty`.
    """

    def __init__(self, transport, registers, handles):
        self._transport, self._registers = transport, registers
        self.empty = getattr(transport, "empty", empty)
        self._buffers: list[Buffer | None] = [None] * handles

    def clear(self):
        """Remove every region from the card, as another program may have left them."""
        for handle in range(len(self._buffers)):
            self._commit(handle, 0)

    def remove_all(self):
        """Unregister every buffer."""
        for buffer in filter(None, self._buffers):
            self.remove(buffer)

    def add(self, source, writable, name=None) -> Buffer:
        """Register memory.

        Raises
        ------
        RegistrationError
            If the memory is misaligned, read-only though writable is asked for, no handle is
            free, or the device's addresses have no room for it.
        """
        buffer = Buffer(name or "the buffer", source, writable)
        if None not in self._buffers:
            raise RegistrationError(
                f"all {len(self._buffers)} memory regions of this card are in use: unregister a "
                f"buffer or table, or keep several arrays in one larger buffer")
        if buffer.nbytes >= 1 << OFFSET_WIDTH:
            raise RegistrationError(f"{buffer.name} has {buffer.nbytes} bytes: a region holds "
                                    f"fewer than 2**{OFFSET_WIDTH}")
        handle = self._buffers.index(None)
        try:
            buffer.device_address = self._transport.attach(buffer.bytes, writable)
        except MemoryError as error:
            raise RegistrationError(f"{buffer.name} cannot be registered: {error}") from error
        self._registers.write_wide("REGION_BASE", buffer.device_address)
        self._registers.write_wide("REGION_SIZE", buffer.nbytes)
        self._commit(handle, _VALID | (_WRITABLE if writable else 0))
        buffer.handle, self._buffers[handle] = handle, buffer
        if name is None:
            buffer.name = f"buffer {handle}"
        return buffer

    def remove(self, buffer):
        """Unregister memory; the device can no longer reach it."""
        if buffer.handle is None or self._buffers[buffer.handle] is not buffer:
            raise RegistrationError(f"{buffer.name} is not registered with this device")
        if buffer.uses:
            raise RegistrationError(
                f"{buffer.name} is in use by a command under way: take its result first")
        self._commit(buffer.handle, 0)
        self._transport.detach(buffer.device_address)
        self._buffers[buffer.handle] = buffer.handle = None

    def find(self, host, size, writable=False) -> Buffer | None:
        """A registered buffer that holds `size` bytes from host address `host`, and stays."""
        return next((buffer for buffer in self._buffers if buffer and not buffer.for_one_command
                     and buffer.holds(host, size) and buffer.writable >= writable), None)

    def reach(self, array, what, writable, alignment, held) -> int:
        """Address operand of an array that the device uses in place.

        Parameters
        ----------
        array : numpy.ndarray
        what : str
            Its name in messages.
        writable : bool
            Whether the device writes to it.
        alignment : int
            Bytes of which its first byte lies on a multiple.
        held : contextlib.ExitStack
            Keeps the memory until the command has completed; memory that is not registered is
            until then.

        Raises
        ------
        RegistrationError
        """
        host, size = span(array)
        buffer = self.find(host, size, writable)
        if buffer is None:
            buffer = self.add(array, writable, what)
            buffer.for_one_command = True
            held.callback(self.remove, buffer)
        buffer.check()
        if (host - buffer.host) % alignment:
            raise RegistrationError(
                f"{what} starts at {host:#x}, which is not a multiple of {alignment} bytes")
        held.enter_context(buffer)
        return buffer.packed(host - buffer.host)

    def describe(self, address) -> str:
        """An address operand in words."""
        handle, offset = unpack_address(address)
        buffer = self._buffers[handle] if handle < len(self._buffers) else None
        return f"{buffer.name if buffer else f'unregistered handle {handle}'} + {offset:#x}"

    def _commit(self, handle, bits):
        self._registers.write("REGION_HANDLE", handle)
        self._registers.write("REGION_COMMIT", bits)
