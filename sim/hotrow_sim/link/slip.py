"""Framing on a byte stream (RFC 1055), byte by byte like the gateware."""

from hotrow_rtl.contract.link_frames import (
    SLIP_END,
    SLIP_ESCAPE,
    SLIP_ESCAPED_END,
    SLIP_ESCAPED_ESCAPE,
)

UNESCAPED = {SLIP_ESCAPED_END: SLIP_END, SLIP_ESCAPED_ESCAPE: SLIP_ESCAPE}


class SlipDecoder:
    """Converts bytes to frames; an unknown escaped byte is kept."""

    def __init__(self):
        self._frame, self._escaped = bytearray(), False

    def feed(self, received):
        """The frames that these bytes complete."""
        done = []
        for byte in received:
            if byte == SLIP_END:
                if self._frame:
                    done.append(bytes(self._frame))
                self._frame, self._escaped = bytearray(), False
            elif byte == SLIP_ESCAPE and not self._escaped:
                self._escaped = True
            else:
                self._frame.append(UNESCAPED.get(byte, byte) if self._escaped else byte)
                self._escaped = False
        return done


def slip_encode(frame: bytes) -> bytes:
    """The bytes of a frame on the line."""
    escaped = {byte: escape for escape, byte in UNESCAPED.items()}
    out = bytearray([SLIP_END])
    for byte in frame:
        out += bytes([SLIP_ESCAPE, escaped[byte]]) if byte in escaped else bytes([byte])
    return bytes(out + bytes([SLIP_END]))
