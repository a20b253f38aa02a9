"""A simulated card at a loopback socket, with a network that drops, repeats and reorders."""

import socket

from .lossy_network import LossyNetwork
from .served import Served

_LARGEST = 4096
_SLICE = 0.02  # seconds between two checks whether to stop


class UdpCard(Served):
    """Serves a link endpoint on a socket.

    Parameters
    ----------
    endpoint : LinkEndpoint
    network : dict
        Parameters of `LossyNetwork`.

    Attributes
    ----------
    port : int
        Port of 127.0.0.1.
    network : LossyNetwork
    """

    def __init__(self, endpoint, **network):
        self._endpoint, self.network = endpoint, LossyNetwork(**network)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(_SLICE)
        self.port = self._socket.getsockname()[1]
        super().__init__()

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

    def _close(self):
        self._socket.close()
