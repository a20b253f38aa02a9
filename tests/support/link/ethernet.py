"""Ethernet frames, ARP, and UDP over IPv4: pack and unpack.

Source: IEEE 802.3; RFC 826 (ARP), RFC 791 (IPv4), RFC 768 (UDP).
"""

import struct
import zlib
from dataclasses import dataclass
from ipaddress import IPv4Address

PREAMBLE = bytes([0x55] * 7 + [0xD5])
BROADCAST = bytes([0xFF] * 6)
LEAST_PAYLOAD = 46  # bytes; shorter payloads are padded
ARP, IPV4 = 0x0806, 0x0800
ARP_REQUEST, ARP_REPLY = 1, 2
UDP = 17
_FRAME, _CHECK = struct.Struct(">6s6sH"), struct.Struct("<I")
_ARP, _ARP_HEADING = struct.Struct(">8s6s4s6s4s"), ">HHBBH"
_IPV4, _UDP = struct.Struct(">BBHHHBBH4s4s"), struct.Struct(">HHHH")


@dataclass(frozen=True)
class Frame:
    """A frame between preamble and checksum; addresses are bytes."""

    destination: bytes
    source: bytes
    kind: int
    payload: bytes

    def on_line(self) -> bytes:
        """The frame with preamble and checksum."""
        body = _FRAME.pack(self.destination, self.source, self.kind) \
            + self.payload.ljust(LEAST_PAYLOAD, b"\0")
        return PREAMBLE + body + _CHECK.pack(zlib.crc32(body))

    @classmethod
    def off_line(cls, octets: bytes):
        """The frame between preamble and checksum.

        Raises
        ------
        ValueError
            If the bytes are no valid frame.
        """
        body = octets[len(PREAMBLE):-_CHECK.size]
        if not octets.startswith(PREAMBLE) or len(body) < _FRAME.size + LEAST_PAYLOAD:
            raise ValueError(f"expected a preamble and {_FRAME.size + LEAST_PAYLOAD} bytes at "
                             f"least, not {octets[:20].hex()} ... of {len(octets)} bytes")
        if octets[-_CHECK.size:] != _CHECK.pack(zlib.crc32(body)):
            raise ValueError(f"the checksum of a frame of {len(body)} bytes is wrong")
        return cls(*_FRAME.unpack_from(body), body[_FRAME.size:])


@dataclass(frozen=True)
class Arp:
    """An ARP request or reply. Addresses are bytes."""

    operation: int
    sender_mac: bytes
    sender: bytes
    target_mac: bytes
    target: bytes

    def pack(self) -> bytes:
        """The payload of a frame."""
        heading = struct.pack(_ARP_HEADING, 1, IPV4, 6, 4, self.operation)
        return _ARP.pack(heading, self.sender_mac, self.sender, self.target_mac, self.target)

    @classmethod
    def unpack(cls, payload: bytes):
        """Unpack the payload of a frame.

        Raises
        ------
        ValueError
            If it is not IPv4 over Ethernet.
        """
        heading, *addresses = _ARP.unpack_from(payload)
        *network, operation = struct.unpack(_ARP_HEADING, heading)
        if network != [1, IPV4, 6, 4]:
            raise ValueError(f"expected IPv4 over Ethernet, not {network}")
        return cls(operation, *addresses)


@dataclass(frozen=True)
class Datagram:
    """UDP in IPv4; source and destination are (address, port)."""

    source: tuple
    destination: tuple
    payload: bytes

    def pack(self, **headings) -> bytes:
        """As the payload of a frame.

        Parameters
        ----------
        headings : dict
            Header fields to override: `total_length`, `fragment` (flags and offset), `protocol`,
            `checksum` (of the header), `length` (of UDP).
        """
        length = _UDP.size + len(self.payload)
        addresses = [IPv4Address(address).packed for address, _ in (self.source, self.destination)]

        def header(check):
            return _IPV4.pack(
                0x45, 0, headings.get("total_length", _IPV4.size + length), 0,
                headings.get("fragment", 0), 64, headings.get("protocol", UDP), check, *addresses)

        def udp(check):
            return _UDP.pack(self.source[1], self.destination[1], headings.get("length", length),
                             check) + self.payload
        pseudo = b"".join(addresses) + struct.pack(">BBH", 0, UDP, length)
        checked = header(headings.get("checksum", _checksum(header(0))))
        return checked + udp(_checksum(pseudo + udp(0)) or 0xFFFF)

    @classmethod
    def unpack(cls, payload: bytes):
        """Unpack the payload of a frame. A UDP checksum of 0 is not checked.

        Raises
        ------
        ValueError
            If the bytes are no valid datagram.
        """
        version, _, total, _, fragment, _, protocol, _, *addresses = _IPV4.unpack_from(payload)
        if (version, fragment & 0x3FFF, protocol) != (0x45, 0, UDP) \
                or _checksum(payload[:_IPV4.size]):
            raise ValueError(f"expected a whole datagram of UDP, not {payload[:_IPV4.size].hex()}")
        source, destination, length, check = _UDP.unpack_from(payload, _IPV4.size)
        end = _IPV4.size + length
        if end != total or end > len(payload):
            raise ValueError(f"a datagram of {length} bytes in {total} of {len(payload)}")
        pseudo = b"".join(addresses) + struct.pack(">BBH", 0, UDP, length)
        if check and _checksum(pseudo + payload[_IPV4.size:end]):
            raise ValueError("the checksum of a datagram is wrong")
        one, other = (str(IPv4Address(address)) for address in addresses)
        return cls((one, source), (other, destination), payload[_IPV4.size + _UDP.size:end])


def _checksum(octets):
    """The Internet checksum; 0 over octets that include their own checksum."""
    padded = octets + bytes(len(octets) % 2)
    total = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
