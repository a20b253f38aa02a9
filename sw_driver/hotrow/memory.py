"""Host memory that the device reaches in place: aligned arrays, registered buffers."""

import ctypes

import numpy as np

from .contract import LIST_ALIGNMENT, ROW_ALIGNMENT, packed_address
from .errors import RegistrationError


def empty(shape, dtype) -> np.ndarray:
    """An uninitialised array whose first byte lies on a multiple of 64.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : numpy dtype

    Returns
    -------
    numpy.ndarray
        C-contiguous.
    """
    dtype = np.dtype(dtype)
    shape = (shape,) if np.isscalar(shape) else tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + LIST_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % LIST_ALIGNMENT
    return memory[start:start + size].view(dtype).reshape(shape)


def is_tensor(value) -> bool:
    """Whether `value` is a torch tensor, told without importing torch."""
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")


def as_array(value) -> np.ndarray:
    """`value` as a NumPy array on the same memory.

    Parameters
    ----------
    value : numpy.ndarray, CPU torch tensor, or what `numpy.asarray` takes
        A bfloat16 tensor becomes uint16, which NumPy can hold.

    Raises
    ------
    RegistrationError
        If the tensor is not in the CPU's memory, or not dense.
    """
    if not is_tensor(value):
        return np.asarray(value)
    if value.device.type != "cpu":
        raise RegistrationError(
            f"expected a tensor in the CPU's memory, got one on {value.device}: use .cpu()")
    value = value.detach()
    if str(value.dtype) == "torch.bfloat16":
        import torch  # present: a tensor was given

        return value.view(torch.int16).numpy().view(np.uint16)
    try:
        return value.numpy()
    except (RuntimeError, TypeError) as refusal:
        raise RegistrationError(f"this tensor has no NumPy form: {refusal}") from refusal


def span(array: np.ndarray) -> tuple[int, int]:
    """Host address of an array's first byte, and the bytes up to its last."""
    if array.size == 0 or any(stride < 0 for stride in array.strides):
        raise RegistrationError(
            f"expected an array with elements and without negative strides, got shape "
            f"{array.shape} with strides {array.strides}")
    reach = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides))
    return array.ctypes.data, reach + array.itemsize


def bytes_at(address: int, size: int) -> np.ndarray:
    """uint8[size] on memory that the caller keeps alive."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class Watch:
    """Notices that the memory of an array or tensor was resized or replaced.

    Parameters
    ----------
    source : numpy.ndarray or torch tensor
        Kept alive, with every array whose view it is.
    """

    def __init__(self, source):
        self._seen = []
        while source is not None and (is_tensor(source) or isinstance(source, np.ndarray)):
            self._seen.append((source, _extent(source)))
            source = getattr(source, "base", None)

    @property
    def changed(self) -> bool:
        return any(_extent(source) != extent for source, extent in self._seen)


def _extent(source):
    if is_tensor(source):
        return source.data_ptr(), source.untyped_storage().nbytes(), tuple(source.shape)
    return source.__array_interface__["data"][0], source.nbytes


class Buffer:
    """Memory registered with the device.

    Members
    -------
    array : numpy.ndarray
        The memory as it was given.
    handle : int
        Number of the region.
    writable : bool
        Whether the device may write to it.
    host, nbytes : int
        Host address of the first byte, and bytes up to the last.
    device_address : int
        Where the device sees the first byte.
    """

    def __init__(self, name, source, writable):
        self.name = name
        self.array = as_array(source)
        self.host, self.nbytes = span(self.array)
        if self.host % ROW_ALIGNMENT:
            raise RegistrationError(
                f"{name} starts at {self.host:#x}, which is not a multiple of {ROW_ALIGNMENT} "
                f"bytes: allocate it with hotrow.empty(shape, dtype)")
        if writable and not self.array.flags.writeable:
            raise RegistrationError(
                f"{name} is a read-only array: register it with writable=False")
        self.writable = writable
        self.handle = self.device_address = None
        self.uses = 0
        self.for_one_command = False
        self._watch = Watch(source)

    @property
    def bytes(self) -> np.ndarray:
        """The memory as uint8[nbytes]; it lives as long as this buffer."""
        return bytes_at(self.host, self.nbytes)

    def packed(self, offset: int = 0) -> int:
        """Address operand of the byte at `offset`."""
        return packed_address(self.handle, offset)

    def holds(self, host: int, size: int) -> bool:
        return self.host <= host and host + size <= self.host + self.nbytes

    def check(self) -> None:
        """Raise RegistrationError if the memory is not what was registered."""
        if self.handle is None:
            raise RegistrationError(f"{self.name} is not registered: register it again")
        if self._watch.changed:
            raise RegistrationError(
                f"{self.name} was resized or replaced while it was registered: unregister it, "
                f"then register the memory that is to be used")

    def __enter__(self):
        """A command in flight uses the buffer."""
        self.uses += 1
        return self

    def __exit__(self, *_):
        self.uses -= 1

    def __repr__(self):
        return f"<Buffer {self.name}, {self.nbytes} bytes, handle {self.handle}>"
