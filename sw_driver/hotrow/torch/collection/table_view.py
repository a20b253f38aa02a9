"""`TableView`: a table as `weight` and `state_dict()` show it, where a module has a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast
from weakref import ref

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ...contract.errors import Error
from .lifecycle import Lifecycle
from .rows_parameter import RowsParameter, flat, is_one_table, plain, written

_TENSOR: Any = torch.Tensor
_MOVING = frozenset((
    "as_strided_", "resize_", "resize_as_", "share_memory_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_"))


class TableView(torch.Tensor):
    """A tensor that shares the memory of a table, so that writes in place reach its rows.

    What would have no effect on the rows has one, or is refused: `data` counts writes,
    `requires_grad` freezes the rows, and a gradient that reaches the view, of a penalty on
    `weight`, is an error, as are its `grad` and its hooks. Copies, also by pickle, share nothing.
    A view that was taken before a step shows the rows after it, and one that was taken before a
    table grew is an error. Others see its memory read-only: NumPy, and by address and size who
    asks for its storage.

    As `weight` of a module it passes for an `nn.Parameter`, though modules refuse it as theirs.
    An `nn.Parameter` made of it is a TableView, too, and shares the rows as PyTorch's do.

    A view of a table that is not contiguous may be a contiguous copy: its contents follow the
    table, writes reach the table, and writes into a part of it are an error.
    """

    _storage: TableStorage | None = None
    _is_param = False  # what nn.Parameter's isinstance() asks
    _hooked = False
    _rows: Any
    _copied: bool
    _owner: Any
    _itself: ref[TableView]
    _source: Any
    _key: Any

    @classmethod
    def of(cls, table: torch.Tensor, owner: Lifecycle | None = None,
           rows: RowsParameter | None = None, copied: bool = False,
           contiguous: Callable[[torch.Tensor], torch.Tensor] | None = None) -> TableView:
        """A view of a tensor.

        Parameters
        ----------
        table : Tensor
        owner : Lifecycle, optional
            Of the table's rows, flushed before the view is read or written; it lives as long as
            the view, whose rows it may have in slots.
        rows : RowsParameter, optional
            Of the module whose weight this is; its `requires_grad` is that of the view.
        copied : bool
            Whether the tensor is a copy, so that writes would be lost: they are refused.
        contiguous : callable, optional
            Makes the contiguous copy that the view is if the tensor is not contiguous.
        """
        source = table if contiguous and not copied and not table.is_contiguous() else None
        if source is not None and contiguous is not None:
            table = contiguous(table)
        view: TableView = torch.Tensor._make_subclass(cls, plain(_TENSOR.detach, (table,)))
        view._source, view._key = source, None if source is None else _key(owner, source)
        view._rows, view._copied, view._is_param = rows, copied, rows is not None
        view._owner = None if copied else owner
        view._itself = ref(view)  # swap_tensors() refuses a tensor with weak references
        view.follow()
        return view

    def follow(self) -> None:
        """Require a gradient if the rows train."""
        if self._rows is None:
            return
        plain(_TENSOR.requires_grad_, (self, self._rows.trains))
        if self._rows.trains and not self._hooked:
            plain(_TENSOR.register_hook, (self, _refuse_gradient))
            self._hooked = True

    def shows(self, table: torch.Tensor, owner: Lifecycle) -> bool:
        """Whether it is a view of a table of an owner as it is."""
        return self._owner is owner and _shares(table, self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        given, kwargs = args[0] if args else None, kwargs or {}
        name = getattr(func, "__name__", "")
        if func not in _WITHOUT_CONTENTS:
            for view in flat((*args, *kwargs.values())):
                if isinstance(view, TableView):
                    view._refresh()
        if name in ("grad", "backward") and any(
                isinstance(each, cls) for each in flat((*args[1:], *kwargs.values()))):
            _refuse_gradient(None)  # of the inputs
        views = [view for view in written(name, args, kwargs) if isinstance(view, cls)]
        if name in _MOVING and views:
            _refuse_moving()
        if any(view._copied for view in views):
            raise Error("weights of several processes, and parts of a table beside the state of "
                        "its optimizer, are copies, and a write into one would be lost: write "
                        "into the whole tensor, or load_state_dict() a changed state_dict()")
        if isinstance(given, cls) and func in _HANDLED:
            return _HANDLED[func](*args, **kwargs)
        result = plain(func, args, kwargs)
        for view in views:
            if view._source is not None:
                view._source.copy_(plain(_TENSOR.detach, (view,)))
        if (isinstance(given, cls) and (given._copied or given._source is not None)
                and type(result) is torch.Tensor and _shares(result, given)):
            return TableView.of(result, copied=True)
        return result

    def set_(self, *_: Any, **__: Any) -> NoReturn:
        """Refused; PyTorch offers no other way to see the call."""
        _refuse_moving()

    def _refresh(self) -> None:
        owner = self._owner
        if owner is None:
            return
        owner.flush()
        if self._source is not None and self._key != _key(owner, self._source):
            self._key = _key(owner, self._source)
            plain(_TENSOR.copy_, (plain(_TENSOR.detach, (self,)), self._source))

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """Empty: a copy by PyTorch's stager of checkpoints has no owner."""
        return {}

    def __hash__(self) -> int:
        return id(self) if self._rows is None else id(self._rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.setdefault(id(self), self._copy())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._copy().__reduce_ex__(protocol)

    def _copy(self) -> torch.Tensor:
        found = self.detach().clone()
        return nn.Parameter(found, self.requires_grad) if self._is_param else found


class TableStorage:
    """Address and size of a table's memory; whoever wrote it would not reach rows in slots.

    As its kind, called with a size, makes the storage of a copy, `dcp.async_save` can stage it.
    """

    def __new__(cls, view: TableView | int, item: int = 1, **named: Any) -> Any:
        return object.__new__(cls) if isinstance(view, TableView) else _Copy(view, **named)

    def __init__(self, view: TableView, item: int = 1) -> None:
        self.device, self.dtype, self._address = view.device, view.dtype, view.data_ptr()
        last = sum((n - 1) * stride for n, stride in zip(view.shape, view.stride(), strict=True))
        self._bytes, self._item = (last + 1) * view.itemsize if view.numel() else 0, item
        self._rows, self._owner = plain(_TENSOR.detach, (view,)), view._owner

    @staticmethod
    def _new_shared(size: int, device: str = "cpu") -> torch.UntypedStorage:
        found: torch.UntypedStorage = _Copy._new_shared(size, device=device)
        return found

    def octets(self) -> torch.Tensor:
        """Its bytes, after every applied step: uint8."""
        if self._owner is not None:
            self._owner.flush()
        count = self._bytes // self._rows.itemsize
        octets: torch.Tensor = self._rows.as_strided((count,), (1,)).view(torch.uint8)
        return octets

    def data_ptr(self) -> int:
        """Address of the first row."""
        return self._address

    def nbytes(self) -> int:
        """Bytes from the first row to the end of the last."""
        return self._bytes

    def size(self) -> int:
        """Its elements; its bytes if it is untyped, as in PyTorch."""
        return self._bytes // self._item

    __len__ = size

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        _refuse_moving()

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        _refuse_moving()


class _Copy(torch.UntypedStorage):
    """Memory for a copy of a table."""

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Any:
        if not isinstance(source, TableStorage):
            return super().copy_(source, non_blocking)
        torch.empty(0, dtype=torch.uint8).set_(self).copy_(source.octets())
        return self


def _refuse_moving() -> NoReturn:
    raise Error("the rows of a table stay where they are, and its weight keeps its memory and "
                "shape, which nobody else may write: write into weight itself, or clone() it")


def _key(owner: Any, source: Any) -> tuple[int, int]:
    """Changes with the contents of a table of an owner."""
    return owner.steps, source._version


def _shares(tensor: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether a tensor shows the memory of a view."""
    tensor_at, view_at = (plain(_TENSOR.untyped_storage, (each,)).data_ptr()
                          for each in (tensor, view))
    return bool(tensor_at == view_at)


def _refuse_gradient(_: Any) -> None:
    raise Error("a gradient reached the weight of a table, by a penalty on it or another use than "
                "a lookup, and rows train by the gradients of their lookups only: use weight_decay "
                "of the optimizer, or weight.detach() where nothing is to train")


def _data(view: Any) -> TableView:
    found = TableView.of(view, copied=view._copied)
    found._owner, found._source, found._key = view._owner, view._source, view._key
    return found


def _set_data(view: Any, value: torch.Tensor) -> None:
    if value.shape != view.shape:
        raise Error(f"a table keeps its shape {list(view.shape)}: expected that of data, got "
                    f"{list(value.shape)}")
    if value.dtype != view.dtype:
        raise Error(f"a table keeps its dtype {view.dtype}: expected that of data, got "
                    f"{value.dtype}")
    if view._is_param and view._rows is None and not _shares(value, view):
        _refuse_moving()  # as to() of a module would, whose parameter it is
    _data(view).copy_(value)


def _set_requires_grad(view: Any, value: bool = True) -> Any:
    if view._rows is None:
        return plain(_TENSOR.requires_grad_, (view, value))
    view._rows.requires_grad_(value)
    view.follow()
    return view


def _trains(view: Any) -> bool:
    return bool(plain(_TENSOR.requires_grad.__get__, (view,))) and (
        view._rows is None or view._rows.trains)


def _refuse_tying(module: nn.Module, name: str, parameter: Any) -> Any:
    """Refuse the weight of a table as a parameter of another module."""
    if isinstance(parameter, TableView) and parameter._rows is not None:
        if module._parameters.get(name) is parameter._rows:  # its own, after +=
            return parameter._rows
        raise Error(f"{type(module).__name__}.{name} cannot be the weight of a table of hotrow: "
                    f"gradients of another use than a lookup do not reach rows. Leave the bag out "
                    f"of convert() with choose=, or take weight.detach().clone()")
    return None


register_module_parameter_registration_hook(_refuse_tying)


def _of_gradients(func: Any, what: str) -> Callable[..., Any]:
    def call(view: Any, *args: Any) -> Any:
        if view._rows is not None and view._rows.trains:
            raise Error(f"the weight of a table has no {what}: gradients of rows are staged, see "
                        f"gradients() of the collection")
        return plain(func, (view, *args))

    return call


def _read_only(func: Any) -> Callable[..., Any]:
    def call(view: Any, *args: Any, **kwargs: Any) -> Any:
        view._refresh()
        found = plain(func, (view, *args), kwargs)
        found.flags.writeable = False
        return found

    return call


def _untyped_storage(view: Any) -> TableStorage:
    # One for each view, as in PyTorch: stagers know a storage by its identity.
    if view._storage is None:
        view._storage = TableStorage(view, 1)
    return cast(TableStorage, view._storage)


def _equals(view: Any, other: Any) -> Any:
    if isinstance(other, torch.Tensor) and is_one_table(view, other):
        return True
    for each in (view, other):
        if isinstance(each, TableView):
            each._refresh()
    return plain(_TENSOR.__eq__, (view, other))


_HANDLED: dict[Any, Callable[..., Any]] = {
    _TENSOR.data.__get__: _data, _TENSOR.detach: _data, _TENSOR.data.__set__: _set_data,
    _TENSOR.requires_grad_: _set_requires_grad,
    _TENSOR.requires_grad.__get__: _trains,
    _TENSOR.detach_: lambda view: _set_requires_grad(view, False),
    _TENSOR.requires_grad.__set__: _set_requires_grad,
    _TENSOR.__eq__: _equals,
    _TENSOR.untyped_storage: _untyped_storage,
    _TENSOR.storage_offset: lambda _: 0,  # in that storage
    _TENSOR.storage: lambda view: TableStorage(view, view.itemsize),
    _TENSOR._typed_storage: lambda view: TableStorage(view, view.itemsize),
    _TENSOR.__dlpack__: lambda *_, **__: _refuse_moving(),
    **{func: _read_only(func) for func in (_TENSOR.numpy, _TENSOR.__array__)},
    **{func: _of_gradients(func, "grad")
       for func in (_TENSOR.grad.__get__, _TENSOR.grad.__set__)},
    **{func: _of_gradients(func, "hooks")
       for func in (_TENSOR.register_hook, _TENSOR.register_post_accumulate_grad_hook)},
}
_WITHOUT_CONTENTS = frozenset((
    *_HANDLED, _TENSOR.shape.__get__, _TENSOR.dtype.__get__, _TENSOR.device.__get__,
    _TENSOR.is_leaf.__get__, _TENSOR.ndim.__get__, _TENSOR.size,
    _TENSOR.dim, _TENSOR.numel, _TENSOR.stride, _TENSOR.is_contiguous, _TENSOR.__len__)) - {
        _TENSOR.data.__set__}
