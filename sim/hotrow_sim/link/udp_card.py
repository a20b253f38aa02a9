"""A simulated card at a loopback socket, behind a network that loses, repeats and reorders."""

import socket
import threading

import numpy as np

_LARGEST = 4096
_SLICE = 0.02  # seconds between two looks at whether it is to stop


class UdpCard:
    """Serves a socket in a thread of its own; a context manager.

    Parameters
    ----------
    endpoint : LinkEndpoint
    loss, repeat, reorder : float
        Chance of each, for every datagram in either direction. One that is reordered comes after
        the next one.
    seed : int

    Members
    -------
    port : int
        Of 127.0.0.1.
    lost, repeated, reordered : int
        Datagrams so far.
    """

    def __init__(self, endpoint, loss=0.0, repeat=0.0, reorder=0.0, seed=0):
        self._endpoint, self._rng = endpoint, np.random.default_rng(seed)
        self._chances = loss, repeat, reorder
        self.lost = self.repeated = self.reordered = 0
        self._held = {"in": None, "out": None}
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
            for frame, peer in self._through("in", datagram):
                answer = self._endpoint.answer(frame, peer)
                if answer is not None:
                    for each in self._through("out", (answer, peer)):
                        self._socket.sendto(*each)

    def _through(self, way, datagram):
        """What arrives when a datagram is sent."""
        loss, repeat, reorder = self._rng.random(3) < self._chances
        if loss:
            self.lost += 1
            return []
        if reorder and self._held[way] is None:
            self.reordered += 1
            self._held[way] = datagram
            return []
        held, self._held[way] = self._held[way], None
        self.repeated += int(repeat)
        return [datagram, *([datagram] if repeat else []), *([held] if held else [])]
