"""A simulated card at a pseudo-terminal: the driver opens it as any serial line."""

import os
import select
import threading
import tty

from .slip import SlipDecoder, slip_encode

_CHUNK = 4096


class SerialCard:
    """Serves a pseudo-terminal in a thread of its own; a context manager.

    Parameters
    ----------
    endpoint : LinkEndpoint

    Members
    -------
    path : str
        The device file to open.
    """

    def __init__(self, endpoint):
        self._endpoint = endpoint
        self._card, self._host = os.openpty()
        tty.setraw(self._host)
        self.path = os.ttyname(self._host)
        self._stop_read, self._stop_write = os.pipe()
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def unplug(self):
        """Close the line, whatever is under way."""
        if self._open:
            self._open = False
            os.write(self._stop_write, b"x")
            self._thread.join()
            for file in (self._card, self._host, self._stop_read, self._stop_write):
                os.close(file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unplug()

    def _serve(self):
        decoder = SlipDecoder()
        while True:
            ready, _, _ = select.select([self._card, self._stop_read], [], [])
            if self._stop_read in ready:
                return
            for frame in decoder.feed(os.read(self._card, _CHUNK)):
                answer = self._endpoint.answer(frame)
                if answer is not None:
                    self._send(slip_encode(answer))

    def _send(self, octets):
        while octets:
            _, ready, _ = select.select([self._stop_read], [self._card], [])
            if not ready:
                return
            octets = octets[os.write(self._card, octets[:_CHUNK]):]
