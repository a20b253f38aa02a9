"""The connection of a link endpoint to the line that carries its frames."""

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .layouts import frame_byte


class FramePort(wiring.Signature):
    """Frames in both directions, seen from the line.

    Parameters
    ----------
    peer_bytes : int
        Bytes of a peer's address; 0 where only one peer exists.

    Attributes
    ----------
    requests : Out(stream(frame_byte)), peer : Out(8 * peer_bytes)
        Frames from the host, and the sender of the current one.
    replies : In(stream(frame_byte)), host : In(8 * peer_bytes)
        Frames to the host, and its address.
    good, bad : In(1)
        High for a cycle after a valid frame of `requests`, or after an invalid one.
    overrun : Out(1)
        High for a cycle when the line lost a frame.
    """

    def __init__(self, peer_bytes=0):
        super().__init__({
            "requests": Out(stream.Signature(frame_byte)), "peer": Out(8 * peer_bytes),
            "replies": In(stream.Signature(frame_byte)), "host": In(8 * peer_bytes),
            "good": In(1), "bad": In(1), "overrun": Out(1),
        })
