"""Packets by their fields, those that cocotbext-pcie cannot pack among them."""

from hotrow_rtl.pcie.layouts import Type

COMPLETIONS = Type.COMPLETION, Type.LOCKED_COMPLETION
# Format and type of the requests that are not posted, without reads of memory; source: PCI Express
# Base Specification, table 2-3.
NOT_POSTED = {(fmt, kind) for formats, kinds in (
    ((0, 1), (Type.LOCKED_MEMORY,)), ((0, 2), (0b00010, 0b00100, 0b00101)),
    ((2, 3), (0b01100, 0b01101, 0b01110)), ((0, 1, 2, 3), (0b11011,)))
    for fmt in formats for kind in kinds}


class RawPacket:
    """A packet of these bytes, with the method of `Tlp` that the root complex calls."""

    def __init__(self, octets):
        self.octets = octets

    def pack(self):
        return self.octets


def packet(fmt, kind, length, dwords, payload=b""):
    """A packet whose header has a first double word of these fields, then `dwords`."""
    first = fmt << 29 | kind << 24 | length
    return RawPacket(b"".join(each.to_bytes(4, "big") for each in (first, *dwords)) + payload)


def with_digest(octets, digest=bytes(4)):
    """The packet with a digest, a double word after the payload."""
    return bytes([*octets[:2], octets[2] | 0x80, *octets[3:], *digest])
