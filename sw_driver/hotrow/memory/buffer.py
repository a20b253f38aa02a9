"""Host memory that the device reaches in place: aligned arrays, registered buffers."""

import ctypes
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..contract.errors import RegistrationError
from ..contract.generated import LIST_ALIGNMENT, ROW_ALIGNMENT
from ..contract.records import packed_address


class Tensor(Protocol):
    """The part of a torch tensor that the driver uses; torch is not imported for it."""

    dtype: Any
    device: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension."""

    def data_ptr(self) -> int:
        """Address of the first element."""

    def untyped_storage(self) -> Any:
        """The memory of the tensor."""

    def detach(self) -> "Tensor":
        """The tensor without its gradient."""

    def view(self, dtype: Any) -> "Tensor":
        """The same memory as elements of another type."""

    def new_full(self, size: tuple[int, ...], fill_value: float) -> "Tensor":
        """A tensor of this type, every element with one value."""

    def numpy(self) -> NDArray[Any]:
        """The same memory as an array."""


Array: TypeAlias = NDArray[Any] | Tensor


def empty(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An uninitialised C-contiguous array whose first byte lies on a multiple of 64."""
    return _aligned(np.empty, shape, dtype)


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """As `empty`, of zeros, of which a large array takes a page when it is first written."""
    return _aligned(np.zeros, shape, dtype)


def _aligned(made: Callable[..., NDArray[Any]], shape: int | tuple[int, ...],
             dtype: DTypeLike) -> NDArray[Any]:
    dtype = np.dtype(dtype)
    shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
    if any(size < 0 for size in shape):
        raise RegistrationError(f"an array has 0 elements or more in each dimension, not {shape}")
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = made(size + LIST_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % LIST_ALIGNMENT
    return memory[start:start + size].view(dtype).reshape(shape)


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a torch tensor; torch is not imported for the test."""
    return hasattr(value, "data_ptr") and hasattr(value, "untyped_storage")


def as_array(value: Any, what: str = "an array") -> NDArray[Any]:
    """`value` as a NumPy array on the same memory.

    Parameters
    ----------
    value : numpy.ndarray, CPU torch tensor, or what `numpy.asarray` takes
        A bfloat16 tensor becomes uint16, which NumPy can hold.
    what : str
        Its name in messages.

    Raises
    ------
    RegistrationError
        If the tensor is not in the CPU's memory, or not dense.
    """
    if not is_tensor(value):
        try:
            return np.asarray(value)
        except ValueError as refusal:  # nested lists of unlike lengths
            raise RegistrationError(f"{what} must be a rectangular array: {refusal}") from refusal
    if value.device.type != "cpu":
        raise RegistrationError(f"{what}: expected a tensor in the CPU's memory, got one on "
                                f"{value.device}: use .cpu()")
    tensor = value.detach()
    if str(tensor.dtype) == "torch.bfloat16":
        import torch  # present: the caller has a tensor

        return tensor.view(torch.int16).numpy().view(np.uint16)
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError) as refusal:
        raise RegistrationError(f"{what}: this tensor has no NumPy form: {refusal}") from refusal


def memory_of(value: Any, what: str) -> NDArray[Any]:
    """`as_array` of numbers whose memory is the caller's, and no copy of it.

    Raises
    ------
    RegistrationError
    """
    if not is_tensor(value):
        try:
            memoryview(value)
        except (TypeError, ValueError, BufferError):
            if not isinstance(value, np.ndarray):
                raise RegistrationError(f"{what} must be an array or a tensor, not "
                                        f"{type(value).__name__}") from None
    array = as_array(value, what)
    if array.dtype.hasobject or array.dtype.kind not in "biufcV":
        raise RegistrationError(f"{what} must hold numbers, not {array.dtype}")
    return array


def span(array: NDArray[Any]) -> tuple[int, int]:
    """Host address of an array's first byte, and the bytes up to its last."""
    if array.size and array.flags.c_contiguous:
        return array.ctypes.data, array.nbytes
    if array.size == 0 or any(stride < 0 for stride in array.strides):
        raise RegistrationError(
            f"expected an array with elements and without negative strides, got shape "
            f"{array.shape} with strides {array.strides}")
    reach = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    return array.ctypes.data, reach + array.itemsize


def bytes_at(address: int, size: int, owner: object = None) -> NDArray[np.uint8]:
    """uint8[size] on memory of `owner`, which the array keeps alive, or else of the caller."""
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return np.ctypeslib.as_array(memory)


class Watch:
    """Notices that the memory of an array or tensor was resized or replaced.

    Parameters
    ----------
    source : numpy.ndarray or torch tensor
        Kept alive, with every array on whose memory it is a view.
    """

    def __init__(self, source: Any):
        self._seen: list[tuple[Callable[[Any], object], Any]] = []
        while source is not None and (is_tensor(source) or isinstance(source, np.ndarray)):
            extent = _tensor_extent if is_tensor(source) else _array_extent
            self._seen.append((extent, source))
            source = getattr(source, "base", None)
        self._before = [extent(source) for extent, source in self._seen]

    @property
    def changed(self) -> bool:
        """Whether an address or a size differs from the first look."""
        return [extent(source) for extent, source in self._seen] != self._before


def _tensor_extent(source: Tensor) -> tuple[int, int, tuple[int, ...]]:
    return source.data_ptr(), source.untyped_storage().nbytes(), source.shape


def _array_extent(source: NDArray[Any]) -> tuple[int, int]:
    return source.__array_interface__["data"][0], source.nbytes


class Held:
    """What one command uses, kept until the command has completed.

    An interrupt (Ctrl-C) may end `release`; another call finishes the work.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def at_end(self, end: Callable[..., object], *arguments: object) -> None:
        """Call `end` on release, after an interrupt twice: others may have what it gave back."""
        self._ends.append((end, arguments))

    def use(self, buffer: "Buffer") -> None:
        """Keep a buffer registered."""
        self.at_end(buffer.holders.discard, self)
        buffer.holders.add(self)

    def release(self) -> None:
        """Give everything back."""
        while self._ends:
            end, arguments = self._ends[-1]
            end(*arguments)
            self._ends.pop()


class Buffer:
    """Memory registered with the device.

    Attributes
    ----------
    source : numpy.ndarray or torch tensor
        The memory as the caller gave it.
    array : numpy.ndarray
        On that memory.
    handle : int or None
        Number of the region; None while it is not registered.
    writable : bool
        Whether the device may write to it.
    host, nbytes : int
        Host address of the first byte, and bytes up to the last.
    device_address : int or None
        Where the device sees the first byte.
    on_card : bool
        Whether the card has the memory, and the host reads and writes it between flushes only.
    holders : set of Held
        The commands under way that use it.
    """

    def __init__(self, name: str, source: Any, writable: bool):
        self.name, self.source = name, source
        self.array = memory_of(source, name)
        self.host, self.nbytes = span(self.array)
        if self.host % ROW_ALIGNMENT:
            raise RegistrationError(
                f"{name} starts at {self.host:#x}, which is not a multiple of {ROW_ALIGNMENT} "
                f"bytes: allocate it with hotrow.empty(shape, dtype)")
        if writable and not self.array.flags.writeable:
            raise RegistrationError(
                f"{name} is a read-only array: register it with writable=False")
        self.writable, self.on_card = writable, False
        self.handle: int | None = None
        self.device_address: int | None = None
        self.holders: set[Held] = set()
        self.for_one_command = False
        self._watch = Watch(source)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The memory as uint8[nbytes], kept alive by the array."""
        return bytes_at(self.host, self.nbytes, self.array)

    @property
    def uses(self) -> int:
        """How many commands under way use the buffer."""
        return len(self.holders)

    def packed(self, offset: int = 0) -> int:
        """Address operand of the byte at `offset`."""
        if self.handle is None:
            raise RegistrationError(f"{self.name} is not registered: register it again")
        return packed_address(self.handle, offset)

    def check(self) -> None:
        """Raise RegistrationError if the memory is not what was registered."""
        if self.handle is None:
            raise RegistrationError(f"{self.name} is not registered: register it again")
        if self._watch.changed:
            raise RegistrationError(
                f"{self.name} was resized or replaced while it was registered: unregister it, "
                f"then register the memory that is to be used")

    def __repr__(self) -> str:
        return f"<Buffer {self.name}, {self.nbytes} bytes, handle {self.handle}>"
