"""`TableView`: a table as `weight` and `state_dict()` show it, where a module has a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn
from weakref import ref

import torch

from ...contract.errors import Error
from .lifecycle import Lifecycle
from .rows_parameter import RowsParameter, flat, plain, written

_TENSOR: Any = torch.Tensor
_MOVING = frozenset((
    "as_strided_", "resize_", "resize_as_", "share_memory_", "squeeze_", "swapaxes_",
    "swapdims_", "t_", "transpose_", "unsqueeze_"))


class TableView(torch.Tensor):
    """A tensor that shares the memory of a table, so that writes in place reach its rows.

    What would have no effect on the rows has one, or is refused: `data` counts writes,
    `requires_grad` freezes the rows, and a gradient that reaches the view, of a penalty on
    `weight`, is an error, as are its `grad` and its hooks. Copies, also by pickle, are plain
    tensors. A view that was taken before a step shows the rows after it, and one that was taken
    before a table grew is an error.

    A view of a table that is not contiguous may be a contiguous copy: its contents follow the
    table, writes reach the table, and writes into a part of it are an error.
    """

    _rows: Any
    _copied: bool
    _owner: Any
    _moves: int
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
        trains = rows is not None and rows.trains
        source = table if contiguous and not copied and not table.is_contiguous() else None
        if source is not None and contiguous is not None:
            table = contiguous(table)
        view: TableView = torch.Tensor._make_subclass(cls, table.detach(), trains)
        view._source, view._key = source, None if source is None else _key(owner, source)
        view._rows, view._copied = rows, copied
        view._owner = None if copied else owner
        view._moves = 0 if owner is None else owner.moves
        view._itself = ref(view)  # swap_tensors() refuses a tensor with weak references
        if trains:
            plain(_TENSOR.register_hook, (view, _refuse_gradient))
        return view

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
        if owner.moves != self._moves:
            raise Error("a table has grown since this view of its collection's rows was taken: "
                        "take weight or table() again")
        owner.flush()
        if self._source is not None and self._key != _key(owner, self._source):
            self._key = _key(owner, self._source)
            plain(_TENSOR.copy_, (plain(_TENSOR.detach, (self,)), self._source))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.setdefault(id(self), self.detach().clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().clone().__reduce_ex__(protocol)


def _refuse_moving() -> NoReturn:
    raise Error("the rows of a table stay where they are, and its weight keeps its memory and "
                "shape: clone() it before")


def _key(owner: Any, source: Any) -> tuple[int, int]:
    """Changes with the contents of a table of an owner."""
    return owner.steps, source._version


def _shares(tensor: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether a tensor shows the memory of a view."""
    return bool(tensor.untyped_storage().data_ptr() == plain(
        _TENSOR.untyped_storage, (view,)).data_ptr())


def _refuse_gradient(_: Any) -> None:
    raise Error("a gradient reached the weight of a table, by a penalty on it or another use than "
                "a lookup, and rows train by the gradients of their lookups only: use weight_decay "
                "of the optimizer, or weight.detach() where nothing is to train")


def _data(view: Any) -> TableView:
    found = TableView.of(view, copied=view._copied)
    found._owner, found._source, found._key = view._owner, view._source, view._key
    found._moves = view._moves
    return found


def _set_data(view: Any, value: torch.Tensor) -> None:
    if value.shape != view.shape:
        raise Error(f"a table keeps its shape {list(view.shape)}: expected that of data, got "
                    f"{list(value.shape)}")
    if view._copied:
        _data(view).copy_(value)  # refused
    view.detach().copy_(value)


def _set_requires_grad(view: Any, value: bool = True) -> Any:
    if view._rows is None:
        return plain(_TENSOR.requires_grad_, (view, value))
    view._rows.requires_grad_(value)
    return view


def _trains(view: Any) -> bool:
    return bool(plain(_TENSOR.requires_grad.__get__, (view,))) and (
        view._rows is None or view._rows.trains)


def _refuse(what: str) -> Callable[..., None]:
    def refuse(view: Any, *_: Any) -> None:
        if view._rows is not None and view._rows.trains:
            raise Error(f"the weight of a table has no {what}: gradients of rows are staged, see "
                        f"gradients() of the collection")

    return refuse


_HANDLED: dict[Any, Callable[..., Any]] = {
    _TENSOR.data.__get__: _data, _TENSOR.data.__set__: _set_data,
    _TENSOR.requires_grad_: _set_requires_grad,
    _TENSOR.requires_grad.__get__: _trains,
    _TENSOR.detach_: lambda view: _set_requires_grad(view, False),
    _TENSOR.requires_grad.__set__: _set_requires_grad,
    _TENSOR.grad.__get__: _refuse("grad"), _TENSOR.grad.__set__: _refuse("grad"),
    _TENSOR.register_hook: _refuse("hooks"),
    _TENSOR.register_post_accumulate_grad_hook: _refuse("hooks"),
}
_WITHOUT_CONTENTS = frozenset((
    *_HANDLED, _TENSOR.shape.__get__, _TENSOR.dtype.__get__, _TENSOR.device.__get__,
    _TENSOR.is_leaf.__get__, _TENSOR.ndim.__get__, _TENSOR.size,
    _TENSOR.dim, _TENSOR.numel, _TENSOR.stride, _TENSOR.is_contiguous, _TENSOR.__len__)) - {
        _TENSOR.data.__set__}
