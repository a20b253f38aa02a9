"""A simulated card at a pseudo-terminal, which the driver opens like a serial line."""

import os
import select
import tty

from hotrow.transports.link.serial_line import Decoder, encode

from .served import Served

_CHUNK = 4096
_SLICE = 0.02  # seconds between two checks whether to stop


class SerialCard(Served):
    """Serves a link endpoint on a pseudo-terminal.

    Parameters
    ----------
    endpoint : LinkEndpoint

    Attributes
    ----------
    path : str
        Device file to open.
    """

    def __init__(self, endpoint):
        self._endpoint = endpoint
        self._card, self._host = os.openpty()
        tty.setraw(self._host)
        self.path = os.ttyname(self._host)
        super().__init__()

    def _serve(self):
        decoder = Decoder()
        while self._open:
            if not select.select([self._card], [], [], _SLICE)[0]:
                continue
            for frame in decoder.feed(os.read(self._card, _CHUNK)):
                answer = self._endpoint.answer(frame)
                if answer is not None:
                    self._send(encode(answer))

    def _send(self, octets):
        while octets and self._open:
            if select.select([], [self._card], [], _SLICE)[1]:
                octets = octets[os.write(self._card, octets[:_CHUNK]):]

    def _close(self):
        os.close(self._card)
        os.close(self._host)
