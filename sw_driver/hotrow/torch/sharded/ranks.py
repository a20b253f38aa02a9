"""The processes of `torch.distributed` that train one model, and their collective calls."""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar
from zlib import crc32

import torch
import torch.distributed as dist

from ...contract.errors import Error

T = TypeVar("T")


class Ranks:
    """Collective calls of the ranks of a process group on tensors in host memory.

    All ranks make the same calls in the same order.

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
        if not dist.is_initialized():
            raise Error("several processes need torch.distributed.init_process_group() first: "
                        "start them by torchrun, which gives each its rank")
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
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self._group)
        return self.answer(rows, counts, theirs), theirs

    def answer(self, rows: torch.Tensor, counts: torch.Tensor,
               theirs: torch.Tensor) -> torch.Tensor:
        """As `exchange` if the number of rows from each rank is known: `theirs` int64[world]."""
        width = math.prod(rows.shape[1:])
        raw = rows.contiguous().view(len(rows), width).view(torch.uint8)
        taken = raw.new_empty(int(theirs.sum()), raw.shape[1])
        dist.all_to_all_single(taken, raw, theirs.tolist(), counts.tolist(), group=self._group)
        return taken.view(rows.dtype).view(len(taken), *rows.shape[1:])

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all ranks, of one shape: list in rank order."""
        parts = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(parts, tensor.contiguous(), group=self._group)
        return parts

    def gather_columns(self, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The columns of all ranks' tensors int64[k, n], whose n may differ: int64[k, sum], and
        the rank of each column."""
        sizes = [int(each) for each in self.gather(torch.tensor([columns.shape[1]]))]
        padded = columns.new_zeros(len(columns), max(sizes))
        padded[:, :columns.shape[1]] = columns
        parts = [each[:, :size] for each, size in zip(self.gather(padded), sizes, strict=True)]
        return torch.cat(parts, dim=1), torch.repeat_interleave(
            torch.arange(self.world), torch.tensor(sizes))

    def agree(self, call: Callable[[], T], what: str) -> T:
        """The result of `call()`; an exception of one rank is an Error at every other.

        `what` says what failed; all ranks make the call with the same.
        """
        failure: BaseException | None = None
        try:
            result = call()
        except BaseException as error:  # the others must not wait for a rank that was interrupted
            failure = error
        mine = torch.tensor([self.world if failure is None else self.rank, crc32(what.encode())])
        failed, codes = torch.stack(self.gather(mine)).T
        if failure is not None:
            raise failure
        if int(failed.min()) < self.world:
            raise Error(f"{what} of rank {int(failed.min())}: see the error of that rank")
        if bool((codes != codes[0]).any()):
            raise Error(f"the ranks make different calls, and all must make the same in the same "
                        f"order; the error of this rank would be: {what}")
        return result

    def least(self, number: int) -> int:
        """The smallest of the ranks' integers."""
        return min(int(each) for each in self.gather(torch.tensor([number])))

    def total(self, number: int) -> int:
        """The sum of the ranks' integers."""
        return sum(int(each) for each in self.gather(torch.tensor([number])))

    def first(self, number: int) -> int:
        """The integer of rank 0."""
        return int(self.gather(torch.tensor([number]))[0])


def average_gradients(parameters: Iterable[torch.nn.Parameter],
                      group: dist.ProcessGroup | None = None) -> None:
    """Average the gradients of parameters over the ranks, added in rank order.

    Call it for the dense part of a model, between backward and the optimizer's step: a run on
    several ranks then has the bits of one rank that takes their batches one after the other.
    `DistributedDataParallel` averages in another order.

    Parameters
    ----------
    parameters : iterable of Parameter
        A missing gradient counts as zero if another rank has one.
    group : ProcessGroup, optional
        All processes by default.
    """
    trained = [each for each in parameters if each.requires_grad and each.numel()]
    if not trained:
        return
    flat = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).flatten()
                      for each in trained])
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, flat, group=group)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    sizes = [each.numel() for each in trained]
    for each, mean in zip(trained, (total / len(parts)).split(sizes), strict=True):
        each.grad = mean.view_as(each).clone()
