"""A simulated card at a loopback socket, behind a network that loses, repeats and reorders."""

import socket
import threading

from .lossy_network import LossyNetwork

_LARGEST = 4096
_SLICE = 0.02  # seconds between two looks at whether it is to stop


class UdpCard:
    """Serves a socket in a thread of its own; a context manager.

    Parameters
    ----------
    endpoint : LinkEndpoint
    network : dict
        Parameters of `LossyNetwork`.

    Members
    -------
    port : int
        Of 127.0.0.1.
    network : LossyNetwork
    """

    def __init__(self, endpoint, **network):
        self._endpoint, self.network = endpoint, LossyNetwork(**network)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(_SLICE)
        self.port = self._socket.getsockname()[1]
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        """Stop serving."""
        if self._open:
            self._open = False
            self._thread.join()
            self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _serve(self):
        while self._open:
            try:
                datagram = self._socket.recvfrom(_LARGEST)
            except TimeoutError:
                continue
            for frame, peer in self.network.through("in", datagram):
                answer = self._endpoint.answer(frame, peer)
                if answer is not None:
                    for each in self.network.through("out", (answer, peer)):
                        self._socket.sendto(*each)
