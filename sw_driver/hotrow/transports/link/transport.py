"""A transport over a link: requests reach registers, arrays have copies in the card's memory."""

import time

import numpy as np
from numpy.typing import NDArray

from ...contract.errors import TransportError
from ...contract.generated import QUEUES, REGISTERS, Operation, QueueControlBits
from ...memory.card_memory import Owner
from ...memory.transport import check_octets
from .memory_access import copies_over
from .session import Channel, Request, Session, expect

_DOORBELLS = {REGISTERS[f"{queue.upper()}_TAIL"]: queue for queue in QUEUES}
_COMPLETED = {REGISTERS[f"{queue.upper()}_COMPLETED"]: queue for queue in QUEUES}
_CONTROLS = {REGISTERS[f"{queue.upper()}_CONTROL"]: queue for queue in QUEUES}
_OF_QUEUE = tuple(_COMPLETED)  # by the number of the queue
# A piece of staging memory has at most this share of the card's memory, and at most so many bytes.
_STAGING_SHARE, _MOST_STAGING = 64, 1 << 17
_PAUSE = 0.0005  # seconds between two reads of COMPLETED of a busy card


class LinkTransport:
    """Transport over a channel.

    Parameters
    ----------
    name : str
    channel : Channel
        Closed with the transport.
    patience : float
        Seconds after which a request is sent again.
    tries : int

    Attributes
    ----------
    reaches_host : bool
        False: the card works on copies of arrays.
    staging_bytes : int
        Size of the pieces in which the driver allocates memory for its own use.
    session : Session
    memory : CardMemory
    """

    reaches_host = False

    def __init__(self, name: str, channel: Channel, patience: float = 0.5, tries: int = 8):
        if not patience > 0 or tries < 1:
            raise ValueError(f"patience must be more than 0 seconds and tries at least 1, not "
                             f"{patience:g} and {tries}")
        self.name, self._channel = name, channel
        try:
            self.session = Session(channel, patience, tries)
            self.memory = copies_over(self.session)
        except BaseException:
            channel.close()
            raise
        self.staging_bytes = min(
            _MOST_STAGING, self.session.card["memory_bytes"] // _STAGING_SHARE)
        self._submitted, self._completed = dict.fromkeys(QUEUES, 0), dict.fromkeys(QUEUES, 0)
        self._closed = False

    def read_register(self, offset: int) -> int:
        """The 32-bit register at byte `offset`; if COMPLETED changed, memory is fetched first."""
        answer = expect(self._request(Operation.READ_REGISTER, offset, length=4).result(),
                        f"a read of register {offset:#x}")
        value = int.from_bytes(answer.payload, "little")
        queue = _COMPLETED.get(offset)
        if queue and value != self._completed[queue]:
            self.memory.pull()
            self._completed[queue] = value  # once an interrupt cannot lose what the card wrote
        return value

    def write_register(self, offset: int, value: int) -> None:
        """Write the 32-bit register at byte `offset`; before a doorbell, memory is sent.

        The call does not wait for the answer: the card carries out requests in order.
        """
        if queue := _DOORBELLS.get(offset):
            self._open()
            self.memory.push(alone=self._submitted == self._completed)
            self._submitted[queue] = value
        elif (queue := _CONTROLS.get(offset)) and not value & QueueControlBits.ENABLE:
            self._submitted[queue] = self._completed[queue] = 0  # an enabled queue starts at 0
        self._request(Operation.WRITE_REGISTER, offset, payload=value.to_bytes(4, "little"))

    def attach(self, array: NDArray[np.uint8], writable: bool, owner: Owner = "both") -> int:
        """Make a copy of an array in the card's memory and return its address; see `CardMemory`."""
        check_octets(array)
        return self.memory.attach(array, writable, owner)

    def detach(self, address: int) -> None:
        """Free the copy that `attach` made."""
        self.memory.detach(address)

    def send(self, address: int, size: int) -> None:
        """Send bytes of an array of owner "driver"."""
        self._open()
        self.memory.send(address, size)

    def fetch(self, address: int, size: int) -> None:
        """Fetch bytes of an array of owner "driver"."""
        self._open()
        self.memory.fetch(address, size)

    def flush(self, address: int | None = None) -> None:
        """Fetch what the card wrote to arrays of owner "card", or to the one at an address."""
        self._open()
        self.memory.flush(address)

    def upload(self) -> None:
        """`flush`, and send what the host wrote to arrays of owner "card"."""
        self._open()
        self.memory.upload()

    def wait(self, queue: int, completed: int, timeout: float) -> None:
        """Read COMPLETED until it differs from `completed` or the time is over."""
        deadline = time.monotonic() + timeout
        while self.read_register(_OF_QUEUE[queue]) == completed and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def close(self) -> None:
        """Release the channel, once every request is answered."""
        if not self._closed:
            self._closed = True
            try:
                self.session.finish()
            except TransportError:
                pass  # the card is gone
            finally:
                self._channel.close()

    def counters(self) -> dict[str, int]:
        """The card's counters of ignored and repeated frames."""
        return self.session.counters()

    def _request(self, operation: Operation, address: int, length: int = 0,
                 payload: bytes = b"") -> Request:
        self._open()
        return self.session.request(operation, address, length, payload)

    def _open(self) -> None:
        if self._closed:
            raise TransportError(f"transport {self.name!r} has been closed")
