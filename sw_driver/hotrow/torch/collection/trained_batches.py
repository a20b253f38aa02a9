"""The batches of a collection that train: their requests, their rows, and their micro-batches."""

import torch

from ...contract.errors import Error
from .bag_calls import repeats


class TrainedBatches:
    """Takes the rows of batches, in the order in which they were prefetched.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection

    Attributes
    ----------
    count : int
        Batches that were taken or dropped: the number of the next one, in messages.
    """

    def __init__(self, collection):
        self._collection, self.count = collection, 0
        self._part: tuple[torch.Tensor, bool, bool] | None = None

    def request(self, bags, ahead=0, use="train", rows_of=None):
        """Check Bags of the batch that many `ahead` of the next one, by their use: Request.

        `rows_of` is as in `FeatureLayout.request`; by default rows are only found.
        """
        collection = self._collection
        if bags.weights is not None and collection.store.pools_cold_rows:
            raise Error("weights per sample need cold='gathered': the card pools cold rows without")
        if collection.id_maps is not None and rows_of is None:
            rows_of = collection.id_maps.find
        batch = f"batch {self.count + ahead}"
        return collection.agree(lambda: collection.layout.request(bags, batch, rows_of),
                                f"{batch} ({use}) was refused, because of an id")

    def prefetch(self, bags):
        """Begin to fetch the rows of Bags that the caller will not change."""
        store, maps = self._collection.store, self._collection.id_maps
        if maps is None:
            store.prefetch(self.request(bags, store.waiting))
            return
        request = self.request(bags, store.waiting, rows_of=maps.prefetch)
        try:
            store.prefetch(request)
        except BaseException:
            maps.refused()
            raise

    def take(self, bags):
        """Rows of a batch: (Request, list of LocatedRows, PendingBackward)."""
        collection, store = self._collection, self._collection.store
        request = store.coming(bags)
        comes = request is not None and request.source.equals(bags)
        # Inside backward, activation checkpointing repeats a lookup. Elsewhere a batch is repeated
        # only if another one was prefetched in the next place.
        if self._part is not None or (request is not None and not comes) or repeats(store):
            collection.layout.check_weights(bags)
            again = store.take_again(bags)
            if again is not None:
                return again
        collection.finish()
        if self._part is not None:
            request = self.request(bags.snapshot())
            located, pending = store.take_part(request, *self._part)
            self._part = None
            return request, located, pending
        maps = collection.id_maps
        if request is None:
            request = self.request(bags.snapshot(), rows_of=maps and maps.take)
        else:
            collection.layout.check_weights(bags)
            if not comes:
                raise Error(f"batch {self.count} is not the one that was prefetched in its place "
                            f"({bags.lookups} ids, prefetched {request.source.lookups}): batches "
                            f"train in the order of prefetch(). Call skip() of the pipeline or the "
                            f"collection for a batch that is not looked up, and eval() where "
                            f"nothing trains")
        located, pending = store.take(request)
        self.count += 1
        if maps is not None:
            maps.begin(request.source, collection.contents, store, collection.optimizer.rule)
        return request, located, pending

    def skip(self):
        """Drop the batch that was prefetched first."""
        collection = self._collection
        collection.finish()
        request = collection.store.coming()
        if request is not None:
            collection.store.take(request)
        if collection.id_maps is not None:
            collection.id_maps.skip()
        if request is not None or collection.mode == "resident":  # which prefetches nothing
            self.count += 1

    @property
    def part(self):
        """Samples int64[k] of the micro-batch that is to be looked up, or None."""
        return None if self._part is None else self._part[0]

    def parts(self):
        """Yield the micro-batches of the batch that was prefetched first: int64[k] samples."""
        collection, micro_batches = self._collection, self._collection.store.micro_batches
        if micro_batches is None or collection.mode != "hotline" or collection.id_maps is not None:
            raise Error(f"mode {collection.mode} trains batches whole, and so do tables with "
                        f"ids='any': parts() is for mode hotline. Call the collection, or iterate "
                        f"the pipeline instead of calling its train()")
        collection.finish()
        popular = micro_batches.split()
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
