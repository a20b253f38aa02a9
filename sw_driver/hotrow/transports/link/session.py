"""A session with one card: numbered requests, several at a time, repeated until answered."""

import os
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ...contract.errors import TransportError
from ...contract.generated import (
    COUNTERS_BYTES,
    LINK_STATUS_DOC,
    LINK_VERSION,
    LinkStatus,
    Operation,
)
from .frames import Answer, DamagedFrame, pack_request, unpack_answer, unpack_card, unpack_counters

_NUMBERS = 1 << 16  # numbers of requests, modulo
_PAUSE = 0.001  # seconds between two requests to a card whose memory starts


class Channel(Protocol):
    """A medium for frames, which may lose, repeat, reorder or damage them.

    Attributes
    ----------
    name : str
        For messages.
    """

    name: str

    def send(self, frame: bytes) -> None:
        """Send one frame. Raises TransportError if the channel is gone."""

    def receive(self, timeout: float) -> bytes | None:
        """The next frame, or None after `timeout` seconds. Raises TransportError like `send`."""

    def attune(self) -> None:
        """Let the card measure the rate of the line, as it did not answer."""

    def close(self) -> None:
        """Release the channel."""


@dataclass
class Statistics:
    """Frame counts of a session."""

    sent: int = 0
    repeated: int = 0
    damaged: int = 0
    unexpected: int = 0


class Request:
    """A request under way; `answer` is None until it is received."""

    def __init__(self, session: "Session", sequence: int, operation: Operation, frame: bytes):
        self._session, self.sequence, self.operation = session, sequence, operation
        self.frame = frame
        self.answer: Answer | None = None

    def result(self) -> Answer:
        """Wait for the answer.

        Raises
        ------
        TransportError
            If the card does not answer.
        """
        while self.answer is None:
            self._session.advance()
        return self.answer


class Session:
    """Requests to a card, each carried out once and in order even if frames are lost.

    Parameters
    ----------
    channel : Channel
    patience : float
        Seconds without an answer before requests are sent again.
    tries : int
        How often a request is sent before the session fails.

    Attributes
    ----------
    patience : float
        May be changed.
    card : dict
        The card's description of itself: see `frames.unpack_card`.
    statistics : Statistics

    Raises
    ------
    TransportError
        If no card answers, the card has another version, or its memory cannot be used.
    """

    def __init__(self, channel: Channel, patience: float, tries: int):
        self._channel, self.patience, self._tries = channel, patience, tries
        self._number = int.from_bytes(os.urandom(4), "little") or 1
        self._next = 0  # the number of the next request while none is under way
        self._window = 1
        self._under_way: deque[Request] = deque()
        self.statistics = Statistics()
        channel.attune()
        answer = self._bind()
        self.card = unpack_card(answer.payload)
        if self.card["version"] != LINK_VERSION:
            raise TransportError(f"{channel.name}: expected a card whose link has version "
                                 f"{LINK_VERSION}, found {self.card['version']}")
        self._window = self.card["window"]

    def _bind(self) -> Answer:
        """The answer to a BIND, once the card's memory is ready."""
        deadline = time.monotonic() + self._tries * self.patience
        while True:
            answer = self.request(Operation.BIND).result()
            if answer.status is LinkStatus.MEMORY_FAILED:
                raise TransportError(
                    f"{self._channel.name}: the card's DRAM did not calibrate: its controller "
                    f"found no delay at which its reads are right. Switch the board off and on; if "
                    f"that does not help, build its bitstream with --memory block")
            if answer.status is not LinkStatus.MEMORY_STARTING:
                return answer
            if time.monotonic() > deadline:
                raise TransportError(
                    f"{self._channel.name}: the card's DRAM was not ready within "
                    f"{self._tries * self.patience:g} s")
            time.sleep(_PAUSE)

    def request(self, operation: Operation, address: int = 0, length: int = 0,
                payload: bytes = b"") -> Request:
        """Send a request, once fewer requests than the card's window are under way."""
        while len(self._under_way) >= self._window:
            self.advance()
        sequence = self._after_last()
        frame = pack_request(self._number, sequence, operation, address, length, payload)
        request = Request(self, sequence, operation, frame)
        self._under_way.append(request)
        self._send(request)
        return request

    def finish(self) -> None:
        """Wait for every request under way."""
        while self._under_way:
            self.advance()

    def counters(self) -> dict[str, int]:
        """The card's counters of ignored frames, see `contract.LINK_COUNTERS`."""
        return unpack_counters(
            self.request(Operation.READ_COUNTERS, length=COUNTERS_BYTES).result().payload)

    def advance(self) -> None:
        """Wait until the oldest request is answered, and repeat requests without an answer."""
        oldest = self._under_way[0]
        for attempt in range(self._tries):
            if attempt:
                self._channel.attune()
                for request in self._under_way:
                    self.statistics.repeated += 1
                    self._send(request)
            deadline, left = time.monotonic() + self.patience, self.patience
            while oldest.answer is None and left >= 0:
                if self._receive(left):  # the card responds
                    deadline = time.monotonic() + self.patience
                left = deadline - time.monotonic()
            if oldest.answer is not None:
                self._next = self._after_last()
                self._under_way.popleft()
                return
        self._next = self._after_last()
        self._under_way.clear()
        raise TransportError(
            f"{self._channel.name}: no answer to {oldest.operation.name} within "
            f"{self._tries * self.patience:g} s: check that a board with a hotrow bitstream is "
            f"connected and that no other program uses it")

    def _after_last(self) -> int:
        """Number of the next request, such that an interrupt leaves no gap."""
        return (self._under_way[-1].sequence + 1) % _NUMBERS if self._under_way else self._next

    def _send(self, request: Request) -> None:
        self.statistics.sent += 1
        self._channel.send(request.frame)

    def _receive(self, timeout: float) -> bool:
        """Receive one frame; whether it is the first answer to a request."""
        frame = self._channel.receive(timeout)
        if frame is None:
            return False
        try:
            answer = unpack_answer(frame)
        except DamagedFrame:
            self.statistics.damaged += 1
            return False
        for request in self._under_way:
            if (answer.session, answer.sequence, answer.operation) == (
                    self._number, request.sequence, request.operation) and request.answer is None:
                request.answer = answer
                return True
        self.statistics.unexpected += 1
        return False


def expect(answer: Answer, what: str) -> Answer:
    """The answer, if its status is OK or MORE.

    Raises
    ------
    TransportError
    """
    if answer.status not in (LinkStatus.OK, LinkStatus.MORE):
        raise TransportError(f"the card answered {answer.status.name} to {what}: "
                             f"{LINK_STATUS_DOC[answer.status]}")
    return answer
