"""The batches of a collection that train: their requests, their rows, and their micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch

from ...contract.errors import Error
from ..features.bags import Bags
from ..features.grouping import Request
from ..features.layout import FeatureLayout
from ..optim.lookup import backward_number
from ..optim.on_host import on_host
from ..store.base import Store, TakenRows
from ..store.micro_batches import MicroBatches
from .id_maps import IdMaps
from .lifecycle import Lifecycle

RowsOf: TypeAlias = Callable[[Bags], list[torch.Tensor | None]]


class TrainedBatches:
    """Takes the rows of batches, in the order in which they were prefetched.

    Parameters
    ----------
    layout : FeatureLayout
    store : Store
    lifecycle : Lifecycle
    mode : str
        Of the collection.
    id_maps : IdMaps, optional

    Attributes
    ----------
    count : int
        Batches that were taken or dropped: the number of the next one, in messages.
    """

    def __init__(self, layout: FeatureLayout, store: Store, lifecycle: Lifecycle, mode: str,
                 id_maps: IdMaps | None) -> None:
        self._layout, self._store, self._lifecycle = layout, store, lifecycle
        self._mode, self._id_maps, self.count = mode, id_maps, 0
        self._part: tuple[torch.Tensor, bool, bool] | None = None

    def bags(self, inputs: Any, offsets: Any = None, per_sample_weights: Any = None) -> Bags:
        """The lookups of a batch, from the arguments of the collection's `forward`: Bags."""
        return self._layout.agree(
            lambda: self._layout.bags(inputs, offsets, per_sample_weights),
            f"batch {self.count} was refused, because of an input")

    def request(self, bags: Bags, ahead: int = 0, use: str = "train",
                rows_of: RowsOf | None = None) -> Request:
        """Check Bags of the batch that many `ahead` of the next one, by their use: Request.

        `rows_of` gives the rows of ids that have a map; by default they are only found.
        """
        card = self._store.card
        if bags.weights is not None and card is not None and card.pools_cold_rows:
            raise Error("weights per sample need cold='gathered': the card pools cold rows without")
        batch = f"batch {self.count + ahead}"
        request = self._layout.agree(lambda: self._layout.request(bags, batch),
                                     f"{batch} ({use}) was refused, because of an id")
        if self._id_maps is None:
            return request
        return self._layout.mapped(request, (rows_of or self._id_maps.find)(bags))

    def prefetch(self, bags: Bags) -> None:
        """Begin to fetch the rows of Bags, whose ids are copied."""
        bags, store, maps = bags.snapshot(), self._store, self._id_maps
        with self._lifecycle.lock:
            self._lifecycle.staging.check_whole()
            self._lifecycle.adopt_writes()
            with self._keeping():
                store.prefetch(self.request(
                    bags, store.waiting, rows_of=None if maps is None else maps.prefetch))

    def take(self, bags: Bags) -> TakenRows:
        """Rows of a batch."""
        self._lifecycle.staging.check_whole()
        self._lifecycle.adopt_writes()
        store, maps = self._store, self._id_maps
        request = store.coming(bags)
        comes = request is not None and request.source.equals(bags)
        # Inside backward, activation checkpointing repeats a lookup. Elsewhere a batch is repeated
        # only if another one was prefetched in the next place.
        if self._part is not None or (request is not None and not comes) or self.repeats:
            self._layout.check_weights(bags)
            again = next((each for each in store.open_batches() if each[0].source.equals(bags)),
                         None)
            if again is not None:
                return again
        self._lifecycle.finish()
        if self._part is not None:
            request = self.request(bags.snapshot())
            located, pending = self._micro_batches.take(request, *self._part)
            self._part = None
            return request, located, pending
        if request is not None:
            prefetched = request.source.lookups
            self._layout.agree(
                lambda: self._check_coming(bags, None if comes else prefetched),
                f"batch {self.count} was refused, because of the order of batches")
        if request is None and bags.lookups and store.card is not None and not store.several_ranks:
            store.card.check_room()  # before ids get rows
        with self._keeping():
            if request is None:
                request = self.request(bags.snapshot(), rows_of=None if maps is None else maps.take)
            if maps is None:
                located, pending = store.take(request)
            else:
                beginning = maps.beginning(request.source)
                located, pending = store.take(request, partial(maps.begin, beginning))
                maps.taken(request.source, beginning, pending)
        self.count += 1
        return request, located, pending

    @on_host
    def skip(self) -> None:
        """Drop the batch that was prefetched first, which will not be looked up."""
        self._lifecycle.finish()
        request = self._store.coming()
        if request is not None:
            with self._keeping():
                self._store.take(request)
        if self._id_maps is not None:
            self._id_maps.skip()
        prefetches = self._store.card is not None or self._store.ahead
        if request is not None or not prefetches:
            self.count += 1

    def abandon(self) -> None:
        """Release prefetched batches that will not be trained."""
        if self._id_maps is not None:
            self._id_maps.keep(0)
        self._store.abandon()
        self._lifecycle.finish()

    def _check_coming(self, bags: Bags, instead: int | None) -> None:
        """Raise Error if a batch with other Bags, of that many ids, was prefetched instead."""
        self._layout.check_weights(bags)
        if instead is not None:
            raise Error(f"batch {self.count} is not the one that was prefetched in its place "
                        f"({bags.lookups} ids, prefetched {instead}): batches train in the order "
                        f"of prefetch(). Call skip() of the pipeline, or of the collection, for a "
                        f"batch that is not looked up, and eval() where nothing trains")

    def _keeping(self) -> AbstractContextManager[None]:
        """Ids of batches that the store drops in this block, which fails, keep their rows."""
        return nullcontext() if self._id_maps is None else self._keeping_ids()

    @contextmanager
    def _keeping_ids(self) -> Iterator[None]:
        store, maps = self._store, self._id_maps
        unrecorded = 0 if maps is None else maps.waiting - store.waiting  # of mode resident
        try:
            yield
        except BaseException:
            if maps is not None:
                coming = store.coming()
                maps.keep(unrecorded + store.waiting, None if coming is None else coming.source)
            raise

    @property
    def repeats(self) -> bool:
        """Whether a lookup may be one that activation checkpointing repeats inside a backward."""
        return any(not pending.done
                   for _, _, pending in self._store.open_batches()) and backward_number() >= 0

    @property
    def coming(self) -> Bags | None:
        """What is to be looked up next, of the caller: Bags if it was prefetched, else None."""
        coming = self._store.coming()
        if coming is None:
            return None
        return coming.source if self._part is None else coming.source.rows(self._part[0])

    @property
    def _micro_batches(self) -> MicroBatches:
        """The parts of the batch that was prefetched first."""
        card = self._store.card
        if (card is None or self._mode != "hotline" or self._id_maps is not None
                or self._store.several_ranks):
            raise Error(f"mode {self._mode} trains batches whole, and so do tables with "
                        f"ids='any' or of several processes: parts() is for mode hotline. Call "
                        f"the collection, or iterate the pipeline instead of calling its train()")
        return card.micro_batches

    def parts(self) -> Iterator[torch.Tensor]:
        """The micro-batches of the batch that was prefetched first, in mode hotline.

        The popular samples come first, whose rows are all in slots, while the rows of the others
        are fetched; then the others. Call the collection with the yielded samples before the next.

        Yields
        ------
        int64[k]
            Samples, at least one.
        """
        self._lifecycle.finish()
        popular = self._micro_batches.split()
        parts = [part for part in (torch.nonzero(which).squeeze(1)
                                   for which in (popular, ~popular)) if len(part)]
        for number, part in enumerate(parts):
            last = number + 1 == len(parts)
            self._part = part, not bool(popular[part[0]]), last
            yield part
            if self._part is not None:
                raise Error("the collection was not called with the micro-batch that parts() "
                            "yielded")
        self.count += 1
