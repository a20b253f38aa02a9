"""A serial line as a channel, and the transport `uart` over it. Standard library only; POSIX."""

import errno
import fcntl
import os
import re
import select
import termios
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ...contract.errors import TransportError
from ...contract.generated import (
    IDLE_BYTE,
    SLIP_END,
    SLIP_ESCAPE,
    SLIP_ESCAPED_END,
    SLIP_ESCAPED_ESCAPE,
    SYNC_BYTE,
)
from .transport import LinkTransport

RATES = {int(name[1:]): getattr(termios, name)
         for name in dir(termios) if re.fullmatch("B[1-9][0-9]*", name)}
_SYNC = bytes([SYNC_BYTE]) * 4 + bytes([IDLE_BYTE]) * 2
A = TypeVar("A")
R = TypeVar("R")
_CHUNK = 4096
_PATIENCE = 0.5
_LARGEST_BITS = 8 * 1024 * 10  # of the frames of a window and as many answers


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

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, received: bytes) -> list[bytes]:
        """The frames that these bytes complete, without empty ones."""
        *whole, self._begun = (self._begun + received).split(_END)
        return [_unescape(frame) for frame in whole if frame]


def _unescape(frame: bytes) -> bytes:
    for byte, escaped in reversed(_ESCAPED.items()):
        frame = frame.replace(escaped, byte)
    return frame


class SerialLine:
    """Frames over a serial line, raw, eight bits, no parity, no flow control.

    Parameters
    ----------
    path : str
        The device file.
    baud : int
        Bits per second; the card measures it.
    settle : float
        Seconds within which the line must accept a frame.

    Raises
    ------
    OSError, ValueError
        If the file cannot be opened, is no serial line, or does not support that rate.
    """

    def __init__(self, path: str, baud: int, settle: float = 5.0):
        if baud not in RATES:
            raise ValueError(f"this system does not support {baud} baud: choose one of "
                             f"{', '.join(map(str, sorted(RATES)))}")
        self.name, self._settle = f"serial line {path}", settle
        self._decoder, self._frames = Decoder(), deque[bytes]()
        self._file: int | None = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            if not os.isatty(self._file):
                raise ValueError(f"{path} is not a serial line")
            _make_raw(self._file, RATES[baud])
        except BaseException:
            self.close()
            raise

    def send(self, frame: bytes) -> None:
        """Send one frame."""
        self._write(encode(frame))

    def attune(self) -> None:
        """Send the bytes by which the card measures the rate."""
        self._write(_SYNC)

    def receive(self, timeout: float) -> bytes | None:
        """The next frame, or None after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self._frames:
            left = max(0.0, deadline - time.monotonic())
            if not self._ready(select.POLLIN, left):
                return None
            self._frames.extend(self._decoder.feed(self._try(os.read, _CHUNK, b"")))
        return self._frames.popleft()

    def close(self) -> None:
        """Release the line."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                fcntl.ioctl(file, termios.TIOCNXCL)
            os.close(file)

    def _write(self, octets: bytes) -> None:
        deadline = time.monotonic() + self._settle
        while octets:
            left = deadline - time.monotonic()
            if left <= 0 or not self._ready(select.POLLOUT, left):
                raise TransportError(f"{self.name} accepted no byte for {self._settle:g} s: is the "
                                     "board still connected?")
            octets = octets[self._try(os.write, octets, 0):]

    def _ready(self, event: int, timeout: float) -> bool:
        """Whether the line can be read or written within `timeout` seconds."""
        if self._file is None:
            raise TransportError(f"{self.name} has been closed")
        poll = select.poll()
        poll.register(self._file, event)
        found = poll.poll(1000 * timeout)
        if found and not found[0][1] & event:
            raise self._gone()
        return bool(found)

    def _try(self, call: Callable[[int, A], R], argument: A, nothing: R) -> R:
        """`call` on the line's file, or `nothing` where it would wait."""
        assert self._file is not None  # `_ready` returned
        try:
            done = call(self._file, argument)
        except BlockingIOError:
            return nothing
        except OSError as error:
            if error.errno in (errno.EIO, errno.ENXIO, errno.ENODEV, errno.EBADF):
                raise self._gone() from error
            raise TransportError(f"{self.name}: {error.strerror}") from error
        if done == b"":  # the line was hung up
            raise self._gone()
        return done

    def _gone(self) -> TransportError:
        return TransportError(f"{self.name} is gone: the board was unplugged or lost its power; "
                              "connect it again, then open the device again")


def _make_raw(file: int, rate: int) -> None:
    iflag, oflag, cflag, lflag, _, _, characters = termios.tcgetattr(file)
    iflag &= ~(termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR
               | termios.IGNCR | termios.ICRNL | termios.IXON | termios.IXOFF | termios.INPCK)
    oflag &= ~termios.OPOST
    cflag &= ~(termios.CSIZE | termios.PARENB | termios.CSTOPB | getattr(termios, "CRTSCTS", 0))
    cflag |= termios.CS8 | termios.CREAD | termios.CLOCAL
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0  # an empty read: hung up
    termios.tcsetattr(file, termios.TCSANOW,
                      [iflag, oflag, cflag, lflag, rate, rate, characters])
    termios.tcflush(file, termios.TCIOFLUSH)
    fcntl.ioctl(file, termios.TIOCEXCL)  # no other program can open the line


def open_transport(address: str | None = None, preset: object = None, baud: int = 3_000_000,
                   patience: float | None = None, tries: int = 8) -> LinkTransport:
    """Open a card at a serial line.

    Parameters
    ----------
    address : str
        The device file: "uart:/dev/ttyUSB1".
    preset : str, optional
        Not used: the driver reads the geometry from the card.
    baud : int
        Bits per second, supported by the board's bridge; the card measures it.
    patience : float, optional
        Seconds without an answer before requests are sent again; default half a second, and on a
        slow line the time of the largest frames.
    tries : int
        How often a request is sent.

    Returns
    -------
    LinkTransport

    Raises
    ------
    ValueError, OSError, TransportError
        If there is no such line, or no card answers.
    """
    if not address:
        raise ValueError("no serial line was named: write it after a colon, uart:/dev/ttyUSB1")
    line = SerialLine(address, baud)
    patience = max(_PATIENCE, _LARGEST_BITS / baud) if patience is None else patience
    return LinkTransport("uart", line, patience, tries)
