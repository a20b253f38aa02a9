"""Base of simulated cards and boards: a thread that serves a line."""

import threading
from abc import ABC, abstractmethod


class Served(ABC):
    """Serves a line in its own thread until `unplug`; a context manager."""

    def __init__(self):
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def unplug(self):
        """Stop and close the line at once."""
        if self._open:
            self._open = False
            self._thread.join()
            self._close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unplug()

    @abstractmethod
    def _serve(self):
        """Serve while `_open`."""

    @abstractmethod
    def _close(self):
        """Close the line."""
