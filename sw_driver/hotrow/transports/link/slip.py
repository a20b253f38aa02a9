"""Frames on a byte stream (RFC 1055)."""

from ...contract.generated import SLIP_END, SLIP_ESCAPE, SLIP_ESCAPED_END, SLIP_ESCAPED_ESCAPE

_END, _ESCAPE = bytes([SLIP_END]), bytes([SLIP_ESCAPE])
_ESCAPED = {_ESCAPE: bytes([SLIP_ESCAPE, SLIP_ESCAPED_ESCAPE]),  # this one first
            _END: bytes([SLIP_ESCAPE, SLIP_ESCAPED_END])}


def encode(frame: bytes) -> bytes:
    """The bytes of a frame on the line.

    An END before the frame makes bytes of an earlier disturbance a frame of their own.
    """
    for byte, escaped in _ESCAPED.items():
        frame = frame.replace(byte, escaped)
    return _END + frame + _END


class Decoder:
    """Separates received bytes into frames."""

    def __init__(self):
        self._begun = b""

    def feed(self, received: bytes) -> list[bytes]:
        """The frames that these bytes complete, without empty ones."""
        *whole, self._begun = (self._begun + received).split(_END)
        return [_unescape(frame) for frame in whole if frame]


def _unescape(frame):
    for byte, escaped in reversed(_ESCAPED.items()):
        frame = frame.replace(escaped, byte)
    return frame
