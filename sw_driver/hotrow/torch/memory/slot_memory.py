"""The memory in which slots lie, and the ways between it and the host's."""

from contextlib import suppress

import torch

from ...errors import Error


def carried(tensor, device):
    """A tensor of the host's in that memory: itself, or a copy that the current stream waits for.

    The host waits for nothing: the copy is read from pinned memory, which is not used again before.
    """
    if tensor.device == torch.device(device):
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class SlotMemory:
    """Slots in the host's memory: what is asked for is done at once, and nobody waits.

    A *mark* is a place in the order of what was asked for; the marks of this memory are None. One
    elsewhere has a stream of its own beside the trainer's, so that rows come and go while a batch
    trains.

    Members
    -------
    device : torch.device
    late : bool
        Whether the host would wait to see a result.
    """

    device, late = torch.device("cpu"), False

    def index(self, tensor):
        """Host integers as indices into the slots, for the current stream."""
        return carried(tensor, self.device)

    def host_rows(self, kind, count):
        """Rows in host memory from which, and to which, copies may be made beside all else."""
        return kind.allocate(count)

    def aside(self, work, after=None):
        """Do `work()` beside the trainer, behind a mark; return a mark behind it."""
        work()

    def mark(self):
        """A mark behind all that the trainer has asked for."""

    def after(self, mark, *tensors):
        """Let the trainer go on behind a mark, with tensors that were made before it."""

    def wait(self, mark):
        """Let the host wait for a mark."""

    def reached(self, mark):
        """Whether it would not have to."""
        return True

    def settle(self):
        """Let the host wait for everything."""


class CudaMemory(SlotMemory):
    """Slots on a GPU. The trainer's stream is the one that is current where rows are asked for.

    Parameters
    ----------
    device : torch.device

    Raises
    ------
    Error
        There is no such GPU.
    """

    late = True

    def __init__(self, device):
        if not torch.cuda.is_available():
            raise Error(f"slots on {str(device)!r} need a GPU that PyTorch can use, and there is "
                        f"none: leave slots_device out")
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)
        self._beside = torch.cuda.Stream(self.device)

    def host_rows(self, kind, count):
        return kind.allocate(count, pinned=True)

    def aside(self, work, after=None):
        with torch.cuda.stream(self._beside):
            if after is not None:
                self._beside.wait_event(after)
            work()
            return self._beside.record_event()

    def mark(self):
        return torch.cuda.current_stream(self.device).record_event()

    def after(self, mark, *tensors):
        stream = torch.cuda.current_stream(self.device)
        if mark is not None:
            stream.wait_event(mark)
        for each in tensors:  # not to be used again before the trainer has read them
            each.record_stream(stream)

    def wait(self, mark):
        if mark is not None:
            mark.synchronize()

    def reached(self, mark):
        return mark is None or mark.query()

    def settle(self):
        torch.cuda.synchronize(self.device)


def memory_on(device):
    """The memory of a torch device: SlotMemory.

    Parameters
    ----------
    device : str, torch.device or SlotMemory

    Raises
    ------
    Error
        It is neither the host nor a GPU.
    """
    if isinstance(device, SlotMemory):
        return device
    found = None
    with suppress(RuntimeError, TypeError):
        found = torch.device(device)
    if found is None or found.type not in ("cpu", "cuda"):
        raise Error(f"slots_device is 'cpu' or a GPU such as 'cuda', not {device!r}")
    return SlotMemory() if found.type == "cpu" else CudaMemory(found)
