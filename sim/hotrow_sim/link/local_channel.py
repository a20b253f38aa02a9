"""A channel to a golden endpoint in the same process, which counts what crosses it."""

from collections import deque


class LocalChannel:
    """Frames to and from an endpoint, without loss or delay.

    Parameters
    ----------
    endpoint : LinkEndpoint

    Attributes
    ----------
    frames : list of (bytes, bytes)
        Each request with its reply.
    """

    name = "link in this process"

    def __init__(self, endpoint):
        self._endpoint, self._replies = endpoint, deque()
        self.frames = []

    def send(self, frame):
        reply = self._endpoint.answer(frame)
        self.frames.append((frame, reply))
        self._replies.append(reply)

    def receive(self, timeout):
        return self._replies.popleft() if self._replies else None

    def attune(self):
        pass

    def close(self):
        pass
