"""Datagrams as a channel, and the transport `udp` over it."""

import socket

from ...contract.errors import TransportError
from ...contract.generated import UDP_PORT
from .transport import LinkTransport

_LARGEST = 2048  # bytes of a received datagram
_PATIENCE = 0.05  # seconds


class UdpChannel:
    """Frames to and from one address, one in each datagram.

    Parameters
    ----------
    host : str
        Name or address.
    port : int

    Raises
    ------
    OSError
        If there is no such host, or no route to it.
    """

    def __init__(self, host: str, port: int):
        self.name = f"card at {host}, port {port}"
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise

    def send(self, frame: bytes) -> None:
        """Send one frame. The system may report a missing card at the next frame only."""
        try:
            self._socket.send(frame)
        except ConnectionRefusedError:
            pass  # an earlier datagram was refused; the session repeats it like a lost one
        except OSError as error:
            raise self._gone(error) from error

    def receive(self, timeout: float) -> bytes | None:
        """The next frame, or None after `timeout` seconds."""
        try:
            self._socket.settimeout(max(timeout, 1e-6))  # 0 would make the socket non-blocking
            return self._socket.recv(_LARGEST)
        except (TimeoutError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise self._gone(error) from error

    def attune(self) -> None:
        """Do nothing: datagrams have no rate."""

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()

    def _gone(self, error: OSError) -> TransportError:
        return TransportError(f"{self.name}: {error.strerror or error}: check the network, then "
                              "open the device again")


def open_transport(address: str | None = None, preset: object = None, patience: float | None = None,
                   tries: int = 40) -> LinkTransport:
    """Open a card in the network.

    Parameters
    ----------
    address : str
        Host, or host:port: "udp:192.168.1.50".
    preset : str, optional
        Not used: the driver reads the geometry from the card.
    patience : float, optional
        Seconds without an answer before requests are sent again; default 0.05.
    tries : int
        How often a request is sent.

    Returns
    -------
    LinkTransport

    Raises
    ------
    ValueError, OSError, TransportError
        If there is no such host, or no card answers.
    """
    if not address:
        raise ValueError("no host was named: write it after a colon, udp:192.168.1.50")
    host, _, port = address.partition(":")
    if port and not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"expected a port of 1 to 65535 after the second colon, not {port!r}")
    return LinkTransport("udp", UdpChannel(host, int(port or UDP_PORT)),
                         _PATIENCE if patience is None else patience, tries)
