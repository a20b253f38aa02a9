"""The memory that holds the slots, and copies between it and host memory."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import torch

from ...contract.errors import Error
from .rows import RowKind, Rows

Event: TypeAlias = torch.cuda.Event | None


def to_device(tensor: torch.Tensor, device: str | torch.device) -> torch.Tensor:
    """A host tensor on a device: itself, or a copy that the current stream waits for.

    The host does not wait: the copy reads pinned memory, which is not used again before it ends.
    """
    if tensor.device == torch.device(device):
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class SlotMemory:
    """Slots in host memory: every operation ends before its call returns.

    An *event* marks a point in the order of operations, as `torch.cuda.Event` does; in host memory
    every event is None. On a GPU the stages have a stream of their own beside the trainer's, so
    that rows move while a batch trains.

    Attributes
    ----------
    device : torch.device
    asynchronous : bool
        Whether reading a result makes the host wait.
    """

    device, asynchronous = torch.device("cpu"), False

    def indices(self, tensor: torch.Tensor) -> torch.Tensor:
        """Host integers as indices into the slots, for the current stream."""
        found = to_device(tensor, self.device)
        return found if found.device.type == "cpu" else found.long()

    def staging_rows(self, kind: RowKind, count: int) -> Rows:
        """Rows in host memory that asynchronous copies may read and write: Rows."""
        return kind.allocate(count)

    def run_async(self, work: Callable[[], object], after: Event = None) -> Event:
        """Run `work()` on the stages' stream after an event; return the event of its end."""
        work()
        return None

    def record_event(self) -> Event:
        """An event after all operations that the trainer has issued."""
        return None

    def wait_event(self, event: Event, *tensors: torch.Tensor) -> None:
        """Make the trainer's stream wait for an event, and keep tensors that its next operations
        read."""

    def synchronize(self, event: Event) -> None:
        """Make the host wait for an event."""

    def is_done(self, event: Event) -> bool:
        """Whether `synchronize` would return at once."""
        return True

    def synchronize_all(self) -> None:
        """Make the host wait for every operation."""


class CudaMemory(SlotMemory):
    """Slots on a GPU. The trainer's stream is the one that is current where rows are requested.

    Parameters
    ----------
    device : torch.device

    Raises
    ------
    Error
        PyTorch finds no such GPU.
    """

    asynchronous = True

    def __init__(self, device: torch.device):
        if not torch.cuda.is_available():
            raise Error(f"slots on {str(device)!r} need a GPU that PyTorch can use, and it finds "
                        f"none: leave slots_device out")
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self.device)

    def staging_rows(self, kind: RowKind, count: int) -> Rows:
        return kind.allocate(count, pinned=True)

    def run_async(self, work: Callable[[], object], after: Event = None) -> Event:
        with torch.cuda.stream(self._stream):
            if after is not None:
                self._stream.wait_event(after)
            work()
            end: Event = self._stream.record_event()
            return end

    def record_event(self) -> Event:
        now: Event = torch.cuda.current_stream(self.device).record_event()
        return now

    def wait_event(self, event: Event, *tensors: torch.Tensor) -> None:
        stream = torch.cuda.current_stream(self.device)
        if event is not None:
            stream.wait_event(event)
        for each in tensors:  # the allocator keeps their memory until this stream has read them
            each.record_stream(stream)

    def synchronize(self, event: Event) -> None:
        if event is not None:
            event.synchronize()

    def is_done(self, event: Event) -> bool:
        return event is None or event.query()

    def synchronize_all(self) -> None:
        torch.cuda.synchronize(self.device)


def memory_on(device: str | torch.device | SlotMemory) -> SlotMemory:
    """The memory of a torch device: SlotMemory.

    Parameters
    ----------
    device : str, torch.device or SlotMemory

    Raises
    ------
    Error
        The device is neither the host nor a GPU.
    """
    if isinstance(device, SlotMemory):
        return device
    found = None
    with suppress(RuntimeError, TypeError):
        found = torch.device(device)
    if found is None or found.type not in ("cpu", "cuda"):
        raise Error(f"slots_device is 'cpu' or a GPU such as 'cuda', not {device!r}")
    return SlotMemory() if found.type == "cpu" else CudaMemory(found)
