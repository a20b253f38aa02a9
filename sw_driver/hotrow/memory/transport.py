"""Transports: how registers and memory of a device are reached, found by entry point."""

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import TransportError
from ..contract.extras import advice

GROUP = "hotrow.transports"


def check_octets(array: NDArray[np.uint8]) -> None:
    """Raise ValueError unless `attach` can take an array: uint8[n], contiguous."""
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError("attach expects a contiguous one-dimensional uint8 array, not "
                         f"{array.dtype}{list(array.shape)}")


class Transport(Protocol):
    """Register and memory access to one device; two threads do not call it at the same time.

    Attributes
    ----------
    name : str
    staging_bytes : int, optional
        Size of the pieces in which the driver allocates memory for its own use, on a card with
        little memory.
    empty : callable, optional
        Allocates arrays that `attach` accepts, with the signature of `hotrow.empty`, for a
        transport that does not accept every array.
    waits_apart : bool, optional
        True if other threads may make other calls during `wait`, `close` among them, so that the
        driver waits without its lock.
    reaches_host : bool, optional
        False if the card works on copies of arrays. Then `attach` takes an owner, and the transport
        has `send`, `fetch`, `flush` and `upload`: see `link.transport.LinkTransport`.
    plan : callable, optional
        Writes PLAN_RETIRED, and executes MARKs and a PLAN beside the ring, on the caller's thread
        and on memory of the host: plan(retired, commands, count, completions, places), host
        addresses but for the numbers. Returns how many have completions; 0 if other commands are
        under way.
    """

    name: str

    def read_register(self, offset: int) -> int:
        """The 32-bit register at byte `offset`."""

    def write_register(self, offset: int, value: int) -> None:
        """Write the 32-bit register at byte `offset`."""

    def attach(self, array: NDArray[np.uint8], writable: bool) -> int:
        """Let the device reach `array` (uint8[n]) in place, and keep a reference to it.

        Returns the device byte address of its first byte, congruent to the host's modulo 64.
        Raises MemoryError if the device's addresses have no room for it.
        """

    def detach(self, address: int) -> None:
        """End the access that `attach` began."""

    def wait(self, queue: int, completed: int, timeout: float) -> None:
        """Let the device run until the queue's COMPLETED register differs from `completed`.

        It returns after `timeout` seconds at the latest and may return earlier.
        """

    def close(self) -> None:
        """Release the device."""


def transports() -> dict[str, EntryPoint]:
    """The entry points of the installed transports, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def find_transport(spec: str) -> EntryPoint:
    """The entry point of the transport that `spec` names.

    Raises
    ------
    TransportError
        Naming the transports that are installed.
    """
    name, found = str(spec).partition(":")[0], transports()
    if name not in found:
        raise TransportError(f"unknown transport {name!r}: expected one of those installed, "
                             f"{', '.join(found) or 'of which there are none'}")
    return found[name]


def open_transport(spec: str, **options: Any) -> Transport:
    """Open the transport that `spec` names.

    Parameters
    ----------
    spec : str
        A name, or name:address for a transport that needs an address.
    **options
        Arguments of the transport.

    Raises
    ------
    TransportError
        If there is no such transport, something it needs is not installed, or it refuses.
    """
    entry = find_transport(spec)
    name, _, address = str(spec).partition(":")
    if address:
        options["address"] = address
    try:
        factory = entry.load()
    except ModuleNotFoundError as missing:
        raise TransportError(f"transport {name!r} {advice(missing)}") from missing
    signature = inspect.signature(factory)
    if address and "address" not in signature.parameters:
        raise TransportError(f"transport {name!r} takes no address: write {name}, not {spec}")
    try:
        signature.bind(**options)
    except TypeError as wrong:
        raise TransportError(f"transport {name!r} was given an option it lacks: {wrong}; "
                             f"it takes {', '.join(signature.parameters)}") from wrong
    try:
        transport: Transport = factory(**options)
    except (TypeError, ValueError, OSError, RuntimeError) as refusal:
        text = (f"{address}: {refusal.strerror}; check the address, and that the card is connected"
                if isinstance(refusal, OSError) and address else str(refusal))
        raise TransportError(f"transport {name!r}: {text}") from refusal
    return transport
