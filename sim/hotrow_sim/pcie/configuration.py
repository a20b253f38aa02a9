"""The configuration space of the card's PCI function.

Source: PCI Local Bus Specification 3.0, section 6; a memory BAR and the capability of MSI.
"""

SIZE = 256
BAR_BYTES = 1 << 16
_VENDOR, _DEVICE, _CLASS = 0x10EE, 0x7024, 0x120000  # of LitePCIe; a processing accelerator
_COMMAND, _STATUS, _BAR, _CAPABILITIES, _MSI = 0x04, 0x06, 0x10, 0x34, 0x40
_MEMORY_SPACE, _BUS_MASTER, _NO_INTX = 1 << 1, 1 << 2, 1 << 10
_LONG_ADDRESS = 1 << 7  # of MSI
_MSI_CAPABILITY, _HAS_CAPABILITIES = 5, 1 << 4


class Configuration:
    """256 bytes, of which the host writes the command, the BAR and MSI."""

    def __init__(self):
        self._octets, self._written = bytearray(SIZE), bytearray(SIZE)  # values, writable bits
        for at, size, value, written in (
            (0x00, 2, _VENDOR, 0), (0x02, 2, _DEVICE, 0),
            (_COMMAND, 2, 0, _MEMORY_SPACE | _BUS_MASTER | _NO_INTX),
            (_STATUS, 2, _HAS_CAPABILITIES, 0), (0x09, 3, _CLASS, 0),
            (_BAR, 4, 0, 2**32 - BAR_BYTES),
            (0x2C, 2, _VENDOR, 0), (0x2E, 2, _DEVICE, 0), (_CAPABILITIES, 1, _MSI, 0),
            (_MSI, 1, _MSI_CAPABILITY, 0), (_MSI + 2, 2, _LONG_ADDRESS, 1),
            (_MSI + 4, 8, 0, 2**64 - 4), (_MSI + 12, 2, 0, 2**16 - 1),
        ):
            self._octets[at:at + size] = value.to_bytes(size, "little")
            self._written[at:at + size] = written.to_bytes(size, "little")

    @property
    def masters(self) -> bool:
        """Whether the function may access memory."""
        return bool(self._octets[_COMMAND] & _BUS_MASTER)

    def read(self, offset: int, count: int) -> bytes:
        """Bytes of the space."""
        return bytes(self._octets[offset:offset + count])

    def write(self, offset: int, octets: bytes) -> None:
        """Write those bits that the host may write."""
        for at, octet in enumerate(octets, offset):
            mask = self._written[at]
            self._octets[at] = self._octets[at] & ~mask | octet & mask
