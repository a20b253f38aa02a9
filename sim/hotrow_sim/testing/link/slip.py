"""The card's side of frames on a line of bytes (RFC 1055), a byte at a time as the gateware."""

from hotrow_rtl.contract.link_frames import (
    SLIP_END,
    SLIP_ESCAPE,
    SLIP_ESCAPED_END,
    SLIP_ESCAPED_ESCAPE,
)

MEANT = {SLIP_ESCAPED_END: SLIP_END, SLIP_ESCAPED_ESCAPE: SLIP_ESCAPE}


class SlipDecoder:
    """From bytes to frames; a byte that need not be escaped stands for itself."""

    def __init__(self):
        self._frame, self._escaped = bytearray(), False

    def feed(self, received):
        """Frames that these bytes complete."""
        done = []
        for byte in received:
            if byte == SLIP_END:
                if self._frame:
                    done.append(bytes(self._frame))
                self._frame, self._escaped = bytearray(), False
            elif byte == SLIP_ESCAPE and not self._escaped:
                self._escaped = True
            else:
                self._frame.append(MEANT.get(byte, byte) if self._escaped else byte)
                self._escaped = False
        return done


def slip_encode(frame: bytes) -> bytes:
    """A frame on the line."""
    escaped = {meant: escape for escape, meant in MEANT.items()}
    out = bytearray([SLIP_END])
    for byte in frame:
        out += bytes([SLIP_ESCAPE, escaped[byte]]) if byte in escaped else bytes([byte])
    return bytes(out + bytes([SLIP_END]))
