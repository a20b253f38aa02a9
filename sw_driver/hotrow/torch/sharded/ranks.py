"""The processes of `torch.distributed` that train one model, and their collective calls."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from zlib import crc32

import torch
import torch.distributed as dist

from ...contract.errors import Error

T = TypeVar("T")


class Ranks:
    """Collective calls of the ranks of a process group on tensors in host memory.

    All ranks make the same calls in the same order. They meet before tensors follow whose sizes
    could differ: the backend ends a process that gets a tensor of another size.

    Parameters
    ----------
    group : ProcessGroup, optional
        All processes by default. A group whose tensors are on GPUs only (nccl) gets a second group
        with gloo, because rows are in host memory.

    Attributes
    ----------
    rank, world : int
        This process's number, and the number of processes.

    Raises
    ------
    Error
        `torch.distributed` was not initialised.
    """

    def __init__(self, group: dist.ProcessGroup | None = None):
        _check_ranks()
        if "gloo" not in str(dist.get_backend_config(group)):
            group = dist.new_group(dist.get_process_group_ranks(group), backend="gloo")
        self._group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)

    def exchange(self, rows: torch.Tensor,
                 counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Send rows to each rank, and receive the rows that each sends.

        Parameters
        ----------
        rows : Tensor [n, ...]
            For rank 0, then for rank 1, ...: `counts` int64[world] of them.

        Returns
        -------
        (Tensor [m, ...], int64[world])
            Rows from rank 0, then from rank 1, ...; rows from each rank.
        """
        _, every = self.meet("rows were to be exchanged", counts=counts)
        theirs = every[:, self.rank]
        return self.answer(rows, counts, theirs), theirs

    def answer(self, rows: torch.Tensor, counts: torch.Tensor,
               theirs: torch.Tensor) -> torch.Tensor:
        """As `exchange` if the number of rows from each rank is known: `theirs` int64[world]."""
        width = math.prod(rows.shape[1:])
        raw = rows.contiguous().view(len(rows), width).view(torch.uint8)
        taken = raw.new_empty(int(theirs.sum()), raw.shape[1])
        with _reached(self.rank):
            dist.all_to_all_single(taken, raw, theirs.tolist(), counts.tolist(), group=self._group)
        return taken.view(rows.dtype).view(len(taken), *rows.shape[1:])

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all ranks, of one shape: list in rank order."""
        self.meet(f"a tensor {list(tensor.shape)} was to be gathered")
        return _gathered(tensor, self._group, self.rank, self.world)

    def gather_columns(self, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The columns of all ranks' tensors int64[k, n], whose n may differ: int64[k, sum], and
        the rank of each column."""
        sizes = self.meet("columns were to be gathered", columns.shape[1])[0].tolist()
        padded = columns.new_zeros(len(columns), max(sizes))
        padded[:, :columns.shape[1]] = columns
        parts = [each[:, :size] for each, size in zip(self.gather(padded), sizes, strict=True)]
        return torch.cat(parts, dim=1), torch.repeat_interleave(
            torch.arange(self.world), torch.tensor(sizes))

    def agree(self, call: Callable[[], T], what: str) -> T:
        """The result of `call()`; an exception of one rank is an Error at every other.

        `what` says what failed; all ranks make the call with the same.
        """
        return _agreed(call, what, self.rank, self.world, partial(self.meet, what))

    def least(self, number: int) -> int:
        """The smallest of the ranks' integers."""
        return int(self.meet("the least of numbers", number)[0].min())

    def total(self, number: int) -> int:
        """The sum of the ranks' integers."""
        return int(self.meet("the sum of numbers", number)[0].sum())

    def first(self, number: int) -> int:
        """The integer of rank 0."""
        return int(self.meet("a number of rank 0", number)[0][0])

    def meet(self, what: str, number: int = 0, counts: torch.Tensor | None = None) -> tuple[
            torch.Tensor, torch.Tensor]:
        """An integer, and `counts` int64[world], of every rank: int64[world], int64[world, world].

        Raises
        ------
        Error
            Another rank makes a call with another `what`, or does not come.
        """
        return _met(what, self._group, self.rank, self.world, number, counts)


@contextmanager
def _reached(rank: int) -> Iterator[None]:
    """Name what the backend says of ranks that do not answer."""
    try:
        yield
    except RuntimeError as error:
        raise Error(f"rank {rank} does not reach another rank, which has ended, waits elsewhere or "
                    f"hangs: see the error of that rank. Rows that were trained are in the tables "
                    f"of their owners after close() ({error})") from error


def _gathered(tensor: torch.Tensor, group: dist.ProcessGroup | None, rank: int,
              world: int) -> list[torch.Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(world)]
    with _reached(rank):
        dist.all_gather(parts, tensor.contiguous(), group=group)
    return parts


def _met(what: str, group: dist.ProcessGroup | None, rank: int, world: int, number: int = 0,
         counts: torch.Tensor | None = None, device: str | torch.device = "cpu") -> tuple[
             torch.Tensor, torch.Tensor]:
    """As `Ranks.meet`; all meetings send tensors of one size."""
    mine = torch.zeros(2 + world, dtype=torch.int64)
    mine[0], mine[1] = crc32(what.encode()), number
    if counts is not None:
        mine[2:] = counts
    every = torch.stack(_gathered(mine.to(device), group, rank, world)).cpu()
    if bool((every[:, 0] != every[0, 0]).any()):
        raise Error(f"the ranks make different calls, and all must make the same in the same "
                    f"order, or one has failed: see the errors of all. The error of this rank "
                    f"would be: {what}")
    return every[:, 1], every[:, 2:]


def _agreed(call: Callable[[], T], what: str, rank: int, world: int,
            meet: Callable[[int], tuple[torch.Tensor, torch.Tensor]]) -> T:
    """As `Ranks.agree`; `meet` is `Ranks.meet`, of a number."""
    failure: BaseException | None = None
    try:
        result = call()
    except BaseException as error:  # the others must not wait for a rank that was interrupted
        failure = error
    try:
        failed, _ = meet(world if failure is None else rank)
    except Error:
        if failure is None:
            raise
    if failure is not None:
        raise failure
    if int(failed.min()) < world:
        raise Error(f"{what} of rank {int(failed.min())}: see the error of that rank")
    return result


def average_gradients(parameters: Iterable[torch.nn.Parameter],
                      group: dist.ProcessGroup | None = None) -> None:
    """Average the gradients of parameters over the ranks, added in rank order.

    Call it for the dense part of a model, between backward and the optimizer's step: a run on
    several ranks then has the bits of one rank that takes their batches one after the other.
    `DistributedDataParallel` averages in another order.

    Parameters
    ----------
    parameters : iterable of Parameter
        The same at all ranks, of any dtypes. A missing gradient counts as zero if another rank has
        one; if none has one, it stays None.
    group : ProcessGroup, optional
        All processes by default.

    Raises
    ------
    Error
        A rank has a gradient that is not dense, the ranks have other parameters, or
        `torch.distributed` was not initialised; no gradient changed.
    """
    trained = [each for each in parameters if each.requires_grad]
    _check_ranks()
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    device = _meeting_device(group, trained)
    what = f"gradients ({_numbers(trained)}) were not averaged, because of those"
    _agreed(lambda: _check_dense(trained), what, rank, world,
            lambda number: _met(what, group, rank, world, number, device=device))
    if not trained:
        return
    same: dict[tuple[torch.device, torch.dtype], list[torch.nn.Parameter]] = {}
    for each, held in zip(trained, _held(trained, group, rank, world, device), strict=True):
        if held:
            same.setdefault((each.device, each.dtype), []).append(each)
    for those in same.values():
        _average(those, group, rank, world)


def _check_ranks() -> None:
    """Raise Error unless this process is one of `torch.distributed`."""
    if not dist.is_initialized():
        raise Error("several processes need torch.distributed.init_process_group() first: start "
                    "them by torchrun, which gives each its rank")


def _meeting_device(group: dist.ProcessGroup | None,
                    parameters: Sequence[torch.nn.Parameter]) -> torch.device:
    """Where a group takes tensors, the same at a rank without parameters."""
    if "gloo" in str(dist.get_backend_config(group)):
        return torch.device("cpu")
    return parameters[0].device if parameters else torch.device("cuda")


def _numbers(parameters: Sequence[torch.nn.Parameter]) -> str:
    """How many numbers of which dtypes parameters have, in words."""
    found: dict[torch.dtype, int] = {}
    for each in parameters:
        found[each.dtype] = found.get(each.dtype, 0) + each.numel()
    kinds = ", ".join(f"{count} of {dtype}" for dtype, count in found.items())
    return f"{len(parameters)} tensors: {kinds or 'none'}"


def _check_dense(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Raise Error if a gradient is sparse."""
    for place, each in enumerate(parameters):
        if each.grad is not None and each.grad.layout != torch.strided:
            raise Error(f"parameter {place} of those that require gradients, of shape "
                        f"{list(each.shape)}, has a gradient of layout {each.grad.layout}, and "
                        f"dense ones are averaged: give its module sparse=False, or its rows to a "
                        f"ShardedEmbeddingBagCollection, or leave it out")


def _held(parameters: Sequence[torch.nn.Parameter], group: dist.ProcessGroup | None, rank: int,
          world: int, device: torch.device) -> list[bool]:
    """Whether a rank has a gradient of each parameter."""
    mine = torch.tensor([~each.numel() if each.grad is None else each.numel()
                         for each in parameters], dtype=torch.int64, device=device)
    every = torch.stack(_gathered(mine, group, rank, world)).cpu()
    held = every >= 0
    sizes = torch.where(held, every, ~every)
    wrong = (sizes != sizes[0]).nonzero()
    if len(wrong):
        other, place = wrong[0].tolist()
        raise Error(f"parameter {place} of those that require gradients has {sizes[0, place]} "
                    f"numbers at rank 0, and {sizes[other, place]} at rank {other}: give the same "
                    f"parameters in the same order at all ranks")
    return held.any(0).tolist()


def _average(parameters: Sequence[torch.nn.Parameter], group: dist.ProcessGroup | None, rank: int,
             world: int) -> None:
    """Average the gradients of parameters of one device and dtype."""
    flat = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten()
                      for each in parameters])
    parts = _gathered(flat, group, rank, world)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    sizes = [each.numel() for each in parameters]
    for each, mean in zip(parameters, (total / world).split(sizes), strict=True):
        each.grad = mean.view_as(each).clone()
