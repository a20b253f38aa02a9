"""A loader read ahead of training, so that the rows of coming batches are on their way."""

import atexit
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from ...contract.errors import Error
from ...operands.integers import whole
from .fed_collection import FedBatch, collections_of
from .micro_batch import backward, refuse_batch_coupled

B = TypeVar("B")  # a batch of the loader
_STAGES = ("plan", "collect", "exchange", "insert")
_WRITTEN = ("batches_per_s", "hit_rate", "stall", "popular_fraction", "gather_hidden")


class TrainPipeline(Generic[B]):
    """Yields a loader's batches in order, each when the trainer is about to use its rows.

    While a batch trains, the stages plan, collect, exchange and insert of the next ones run on the
    collection's threads (`workers`). The caller's thread reads batches, at most `ahead` of them
    beyond the one that trains, none beyond the end of the epoch, and with a random generator of
    the loader's own, so that reading ahead does not shift the numbers that the model draws. Use it
    as a context manager: it then ends the threads however the loop ends. Iterate it once an epoch.
    While the model is in `eval()`, or without gradients, it reads batches and prefetches no rows. A
    batch that the model does not look up needs a call of `skip`.

    Parameters
    ----------
    loader : iterable
        A `DataLoader`, or any iterable that gives one epoch per iteration.
    model : nn.Module
        Holds collections, or is one.
    inputs : callable
        From a batch to the argument of all collections; a tuple is their arguments. A dict has the
        argument of each collection by its name in the model. For a converted model a dict of the
        arguments of its bags by name, as `inputs` of `convert` returns.
    ahead : int, optional
        Batches to read ahead; by default the least of the collections' depths and look-aheads.
    watch : callable, optional
        Called with `figures` after each batch.
    writer : optional
        A TensorBoard `SummaryWriter`, or an object with its `add_scalar`.

    Attributes
    ----------
    collections : list of HotEmbeddingBagCollection
    epoch, batch : int
        Current epoch, and batches of it that were yielded. After the optimizer step of the last
        one, a resumed run continues from this place.

    Raises
    ------
    Error
        The model has no collection.
    """

    def __init__(self, loader: Iterable[B], model: nn.Module, inputs: Callable[[B], Any],
                 ahead: int | None = None, watch: Callable[[dict[str, Any]], object] | None = None,
                 writer: Any = None):
        self.loader, self.model = loader, model
        self._fed = collections_of(model)
        self.collections = [each.collection for each in self._fed]
        self._cards = [each.store.card for each in self.collections]
        self._inputs, self._watch, self._writer = inputs, watch, writer
        self.ahead = (min(each.store.ahead for each in self.collections) if ahead is None
                      else whole(ahead, "ahead"))
        if self.ahead < 0:
            raise Error(f"a pipeline reads 0 or more batches ahead, not {self.ahead}")
        self.epoch = self.batch = self._skip = self._done = 0
        self._random: torch.Tensor | None = None  # state of the loader's generator
        self._resumed: torch.Tensor | None = None
        self._begin = torch.empty(0, dtype=torch.uint8, device="cpu")  # generator of an epoch
        self._repeats = 0  # epochs before the last one that began with the same
        self._iterator: Generator[B, None, None] | None = None
        self._seconds = 0.0
        self._started: float | None = None
        self._before = self._counts()  # of batches that were not this pipeline's

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # TypeError for one without a length

    def __enter__(self) -> "TrainPipeline[B]":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(*([BaseException] if kind else [])):  # the first error is the one to show
            self.close()

    def close(self) -> None:
        """Release the batches that were read ahead, and end the threads."""
        if self._iterator is not None:
            self._iterator.close()
        self._abandon()

    def __iter__(self) -> Iterator[B]:
        if self._iterator is not None:
            self._iterator.close()
        self._iterator = self._epoch()
        _OPEN.add(self)
        return self._iterator

    def skip(self) -> None:
        """Leave out the batch that was yielded last, before the model looks it up.

        Raises
        ------
        Error
            The model has looked a batch up since.
        """
        if any(each.looked_up for each in self._fed):
            raise Error(f"batch {self.batch - 1} of epoch {self.epoch} was looked up: skip a batch "
                        f"before the model is called with it")
        for each in self._fed:
            each.skip()

    def train(self, loss: Callable[[B], torch.Tensor], *optimizers: torch.optim.Optimizer,
              select: Callable[[B, torch.Tensor], B] | None = None) -> None:
        """Train one epoch.

        In mode hotline a batch trains in two parts of one step: its popular samples, while the
        rows of the others are fetched, then the others.

        Parameters
        ----------
        loss : callable
            From a batch, or a part of one, to the mean loss of its samples.
        *optimizers : torch.optim.Optimizer
            Of the rest of the model; the collections' own step after them.
        select : callable, optional
            From a batch and samples int64[k] to a batch of these; by default tensors, and tuples,
            lists and dicts of them, are indexed.

        Raises
        ------
        Error
            In hotline, a layer that couples the samples of a batch, or several collections.
        """
        if any(each.mode == "hotline" for each in self.collections):
            refuse_batch_coupled(self.model)
            if len(self.collections) > 1:
                raise Error("mode hotline trains a batch in two parts, and the collections of this "
                            "model have other popular samples each: iterate the pipeline, which "
                            "trains batches whole, instead of calling its train()")
        every = (*optimizers, *(each.optimizer for each in self.collections))
        for batch in self:
            for each in every:
                each.zero_grad()
            if self._fed[0].looks_up:
                backward(self.collections[0], batch, loss, select)
            else:
                loss(batch).backward()
            for each in every:
                each.step()

    def state_dict(self) -> dict[str, Any]:
        """The place to continue from: take it after the step of the batch yielded last."""
        return {"epoch": self.epoch, "batch": self.batch, "random": self._random,
                "model_random": torch.get_rng_state(), "begin": self._begin,
                "repeats": self._repeats}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next epoch continue at the batch at which the state was taken."""
        epoch, batch, random = state["epoch"], state["batch"], state["random"]
        torch.set_rng_state(state["model_random"])
        self.epoch, self._skip, self._resumed = epoch, batch, random
        self._begin, self._repeats = state.get("begin", self._begin), state.get("repeats", 0)

    @property
    def figures(self) -> dict[str, Any]:
        """Figures since the pipeline was made, over all its epochs: dict.

        `batches`, `batches_per_s`, `hit_rate`, `seconds` by stage, and `stall`, all seconds that
        training waited for rows, also while it ran stages itself. If `train` takes batches in two
        parts, `popular_fraction` of the samples, and `gather_hidden`, the share of the time of
        fetching the others' rows in which the trainer was busy with popular samples; else None.
        With tables on disk, `disk`: the figures of their stores since these were opened, one dict
        each, as `hotrow.tables.Store.figures` says; else None.
        """
        seconds = self._seconds + (
            0.0 if self._started is None else time.perf_counter() - self._started)
        counts = {name: count - self._before[name] for name, count in self._counts().items()}
        lookups, hits, stall = (counts.pop(name) for name in ("lookups", "hits", "stall"))
        stores = [each.disk.disk.store for each in self.collections if each.disk.any]
        parts = next((card.micro_batches for card in self._cards
                      if card is not None and card.micro_batches.samples), None)
        return {
            "batches": self._done,
            "batches_per_s": self._done / seconds if seconds else None,
            "hit_rate": hits / lookups if lookups else None,
            "seconds": counts,
            "stall": stall,
            "popular_fraction": parts.popular / parts.samples if parts else None,
            "gather_hidden": parts.hidden if parts else None,
            "disk": [store.figures() for store in stores] or None,
        }

    def _counts(self) -> dict[str, Any]:
        """Lookups, hits, `stall`, and the seconds of each stage, of all batches so far: dict."""
        stages = [card.stages for card in self._cards if card is not None]
        return {
            **{name: sum(each.statistics.get(name, 0) for each in self.collections)
               for name in ("lookups", "hits")},
            "stall": sum(each.waited for each in stages),
            **{name: sum(each.seconds[number] for each in stages)
               for number, name in enumerate(_STAGES if stages else ())}}

    def _epoch(self) -> Generator[B, None, None]:
        """One pass, or the rest of one after `load_state_dict`."""
        waiting: deque[tuple[B, list[FedBatch]]] = deque()
        skip, complete = self._skip, False
        reader = self._read()
        self._started = started = time.perf_counter()
        try:
            for number in range(skip):
                if next(reader, _END) is _END:
                    raise Error(f"the run resumes after batch {skip} of an epoch, and the loader "
                                f"has {number}: resume with the data and batch size of the state, "
                                f"or start the epoch again with batch 0 in the state")
            self.batch, self._skip, ended = skip, 0, False
            while True:
                while not ended and len(waiting) <= self.ahead:
                    batch = next(reader, _END)
                    ended = batch is _END
                    if not ended:
                        waiting.append((batch, self._prefetch(batch)))
                if not waiting:
                    break
                self.batch += 1
                batch, prefetched = waiting.popleft()
                for fed, part in zip(self._fed, prefetched, strict=True):
                    fed.begin(part)
                yield batch
                self._done += 1
                self._report()
            self.epoch, self.batch, self._random = self.epoch + 1, 0, None
            for each in self.collections:
                each.lifecycle.finish()
            complete = True
        finally:
            self._seconds += time.perf_counter() - started
            self._started = self._iterator = None
            if not complete:
                self._abandon()

    def _abandon(self) -> None:
        for each in self.collections:
            each.abandon()

    def _read(self) -> Iterator[B]:
        """The loader's batches, read with random numbers that the model does not see."""
        if self._resumed is not None:
            self._random, self._resumed = self._resumed, None
        else:
            # From a copy, so that the model's numbers stay as they are. An epoch that begins at the
            # same numbers as the last one has another order all the same.
            own, begin = torch.Generator(), torch.get_rng_state()
            self._repeats = self._repeats + 1 if torch.equal(begin, self._begin) else 0
            self._begin = begin
            seed = int(torch.randint(1 << 62, (), generator=own.set_state(begin), device="cpu"))
            self._random = own.manual_seed(seed + self._repeats).get_state()
        state = self._random
        iterator: Iterator[B] | None = None
        while True:
            kept = torch.get_rng_state()
            torch.set_rng_state(state)
            try:
                iterator = iter(self.loader) if iterator is None else iterator
                batch = next(iterator, _END)
            finally:
                state = torch.get_rng_state()
                torch.set_rng_state(kept)
            if batch is _END:
                return
            yield batch

    def _prefetch(self, batch: B) -> list[FedBatch]:
        """Prefetch a batch if the model trains: list of FedBatch."""
        inputs, fed = self._inputs(batch), self._fed
        if isinstance(inputs, dict) and (len(fed) > 1 or fed[0].names):
            unknown = set(inputs).difference(*((*each.names, *each.bags) for each in fed))
            if unknown:
                raise Error(f"{type(self.model).__name__} has no collection or HotEmbeddingBag "
                            f"{sorted(unknown)[0]!r}")
            return [each.prefetch(each.own(inputs)) for each in fed]
        return [each.prefetch(inputs) for each in fed]

    def _report(self) -> None:
        """Pass the figures to `watch` and `writer`."""
        if self._watch is None and self._writer is None:
            return
        figures = self.figures
        if self._watch is not None:
            self._watch(figures)
        if self._writer is not None:
            for name in _WRITTEN:
                if figures[name] is not None:
                    self._writer.add_scalar(f"hotrow/{name}", figures[name], self._done)


_END: Any = object()
_OPEN: weakref.WeakSet[TrainPipeline[Any]] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_OPEN.clear)


@atexit.register
def _close() -> None:
    """End the epochs of a program that ends: later, tensors of their batches would abort it."""
    for pipeline in tuple(_OPEN):
        with suppress(Exception):
            pipeline.close()
