"""A loader read ahead of training, so that the rows of coming batches are on their way."""

import time
from collections import deque
from contextlib import suppress

import torch

from ...errors import Error
from ..collection.bag_calls import joined_bags
from ..collection.collection import HotEmbeddingBagCollection
from ..collection.embedding_bag import HotEmbeddingBag
from .micro_batch import backward, refuse_batch_coupled

_STAGES = ("plan", "collect", "exchange", "insert")
_WRITTEN = ("batches_per_s", "hit_rate", "stall", "popular_fraction", "gather_hidden")


class TrainPipeline:
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
        Holds one collection, or is one.
    inputs : callable
        From a batch to the collection's argument; a tuple is its arguments. For a converted model a
        dict of the arguments of its bags by name, as `inputs` of `convert` returns.
    ahead : int, optional
        Batches to read ahead; by default the collection's depth and look-ahead.
    watch : callable, optional
        Called with `figures` after each batch.
    writer : optional
        A TensorBoard `SummaryWriter`, or an object with its `add_scalar`.

    Attributes
    ----------
    epoch, batch : int
        Current epoch, and batches of it that were yielded. After the optimizer step of the last
        one, a resumed run continues from this place.

    Raises
    ------
    Error
        The model has no collection, or several.
    """

    def __init__(self, loader, model, inputs, ahead=None, watch=None, writer=None):
        self.loader, self.model = loader, model
        self.collection, self._lookups = _collection_of(model)
        self._bags = {name: module for name, module in model.named_modules(remove_duplicate=False)
                      if isinstance(module, HotEmbeddingBag)}
        self._inputs, self._watch, self._writer = inputs, watch, writer
        store = self.collection.store
        self.ahead = store.depth - 1 + store.look_ahead if ahead is None else ahead
        if self.ahead < 0:
            raise Error(f"a pipeline reads 0 or more batches ahead, not {self.ahead}")
        self.epoch = self.batch = self._skip = self._done = 0
        self._random = self._resumed = self._iterator = None
        self._seconds, self._started = 0.0, None
        self._looks_up, self._prefetched, self._taken = True, False, 0

    def __len__(self):
        return len(self.loader)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with suppress(*([BaseException] if kind else [])):  # the first error is the one to show
            self.close()

    def close(self):
        """Release the batches that were read ahead, and end the threads."""
        if self._iterator is not None:
            self._iterator.close()
        self.collection.abandon()

    def __iter__(self):
        if self._iterator is not None:
            self._iterator.close()
        self._iterator = self._epoch()
        return self._iterator

    def skip(self):
        """Leave out the batch that was yielded last, before the model looks it up.

        Raises
        ------
        Error
            The model has looked a batch up since.
        """
        if self._prefetched:
            if self.collection.batches != self._taken:
                raise Error(f"batch {self.batch - 1} of epoch {self.epoch} was looked up: skip a "
                            f"batch before the model is called with it")
            self.collection.skip()
            self._prefetched = False

    def train(self, loss, *optimizers, select=None):
        """Train one epoch.

        In mode hotline a batch trains in two parts of one step: its popular samples, while the
        rows of the others are fetched, then the others.

        Parameters
        ----------
        loss : callable
            From a batch, or a part of one, to the mean loss of its samples.
        *optimizers : torch.optim.Optimizer
            Of the rest of the model; the collection's own steps after them.
        select : callable, optional
            From a batch and samples int64[k] to a batch of these; by default tensors, and tuples,
            lists and dicts of them, are indexed.

        Raises
        ------
        Error
            In hotline, a layer that couples the samples of a batch.
        """
        if self.collection.mode == "hotline":
            refuse_batch_coupled(self.model)
        every = (*optimizers, self.collection.optimizer)
        for batch in self:
            for each in every:
                each.zero_grad()
            if self._looks_up:
                backward(self.collection, batch, loss, select)
            else:
                loss(batch).backward()
            for each in every:
                each.step()

    def state_dict(self):
        """The place to continue from: take it after the step of the batch yielded last."""
        return {"epoch": self.epoch, "batch": self.batch, "random": self._random,
                "model_random": torch.get_rng_state()}

    def load_state_dict(self, state):
        """Make the next epoch continue at the batch at which the state was taken."""
        self.epoch, self._skip = state["epoch"], state["batch"]
        self._resumed = state["random"]
        torch.set_rng_state(state["model_random"])

    @property
    def figures(self):
        """Figures so far: dict.

        `batches`, `batches_per_s`, `hit_rate`, `seconds` by stage, and `stall`, the seconds that
        training waited for rows. If `train` takes batches in two parts, `popular_fraction` of the
        samples, and `gather_hidden`, the share of the time of fetching the others' rows in which
        the trainer was busy with popular samples; else None.
        """
        seconds = self._seconds + (
            0.0 if self._started is None else time.perf_counter() - self._started)
        counted, store = self.collection.statistics, self.collection.store
        stages = store.batch_stages and store.batch_stages.stages
        parts = store.micro_batches if store.micro_batches and store.micro_batches.samples else None
        return {
            "batches": self._done,
            "batches_per_s": self._done / seconds if seconds else None,
            "hit_rate": counted["hits"] / counted["lookups"] if counted.get("lookups") else None,
            "seconds": dict(zip(_STAGES, stages.seconds, strict=True)) if stages else {},
            "stall": stages.waited if stages else 0.0,
            "popular_fraction": parts.popular / parts.samples if parts else None,
            "gather_hidden": parts.hidden if parts else None,
        }

    def _epoch(self):
        """One pass, or the rest of one after `load_state_dict`."""
        waiting: deque[tuple] = deque()
        skip = self._skip
        reader = self._read()
        self._started = time.perf_counter()
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
                        waiting.append((batch, *self._prefetch(batch)))
                if not waiting:
                    break
                self.batch += 1
                batch, self._looks_up, self._prefetched, calls = waiting.popleft()
                self._taken = self.collection.batches
                if calls is not None and self.collection.store.coming() is None:
                    self.collection.calls.announce(calls)
                yield batch
                self._done += 1
                self._report()
            self.epoch, self.batch, self._random = self.epoch + 1, 0, None
            self.collection.finish()
        finally:
            self._seconds += time.perf_counter() - self._started
            self._started = self._iterator = None
            if waiting:
                self.collection.abandon()

    def _read(self):
        """The loader's batches, read with random numbers that the model does not see."""
        if self._resumed is not None:
            self._random, self._resumed = self._resumed, None
        else:
            seed = int(torch.randint(1 << 62, ()))
            self._random = torch.Generator().manual_seed(seed).get_state()
        state, iterator = self._random, None
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

    def _prefetch(self, batch):
        """Prefetch a batch if the model trains.

        Whether it has lookups, whether they train, and then the Bags of a converted model's calls.
        """
        inputs = self._inputs(batch)
        by_name = isinstance(inputs, dict)
        if by_name:
            bags = joined_bags(self._bags, inputs)
        else:
            bags = self.collection.bags(*(inputs if isinstance(inputs, tuple) else (inputs,)))
        trains = torch.is_grad_enabled() and any(
            each.training and each.rows.requires_grad for each in self._lookups)
        if trains:
            self.collection.prefetch(bags)
        looks_up = bags.lookups > 0
        return looks_up, trains and looks_up, bags if by_name and trains else None

    def _report(self):
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


_END = object()


def _collection_of(model):
    """The collection of a model, and the modules that look up in it."""
    lookups = [module for module in model.modules()
               if isinstance(module, (HotEmbeddingBagCollection, HotEmbeddingBag))]
    found = {id(each): each for each in (
        module.collection if isinstance(module, HotEmbeddingBag) else module
        for module in lookups)}
    if len(found) != 1:
        raise Error(f"a pipeline serves one HotEmbeddingBagCollection, and {type(model).__name__} "
                    f"has {len(found)}")
    return next(iter(found.values())), lookups
