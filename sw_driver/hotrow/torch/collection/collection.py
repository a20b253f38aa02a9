"""Embedding tables of any size as a PyTorch module: `HotEmbeddingBagCollection`."""

from contextlib import suppress

import torch
from torch import nn

from ... import device as driver
from ...device import Device
from ...errors import Error
from ..features.bags import Bags
from ..features.configs import Places, group_tables
from ..features.outputs import joined
from ..memory.slot_memory import memory_on
from ..optim.arithmetic import OPTIMIZERS
from ..optim.gradients import PooledLookup, RowOptimizer, StagedGradients, StepsInDoubt
from ..store.base import Lookup, Request, ResidentStore
from ..store.cached import CachedStore
from ..store.placement_policy import HotRows, LookAhead, open_planner, share_of
from .collection_cache import CollectionCache
from .collection_state import CollectionState

MODES = ("resident", "hotline", "scratchpipe", "freqcache")
_POLICY = {"scratchpipe": "lru", "freqcache": "lfu"}
BOUNDS_CHECKS = ("fatal", "warning", "ignore")


class HotEmbeddingBagCollection(CollectionCache, CollectionState, nn.Module):
    """Embeddings of several tables that live in host memory, with the busy rows in slots.

    Call it with ids [samples, features], with a sequence of (indices, offsets) per feature, with
    indices and offsets of all features, one after the other, or with a KeyedJaggedTensor; features
    are those of the first table, then of the second, .... It returns float32[samples, sum of the
    dims], feature after feature; where the tables are not pooled float32[lookups, dim], likewise.
    The rows train by `optimizer`, which applies what backward has staged; they are no parameters of
    the module. In `eval()`, or without gradients, rows are read where they are, and nothing is
    counted or moved.

    In `resident`, `scratchpipe` and `freqcache` final tables and state have the same bits, whatever
    the slots, policy, depth, workers and transport.

    Parameters
    ----------
    tables : sequence of TableConfig
        All pooled, or none.
    device : Device or str, optional
        An open device without tables, or a transport as `hotrow.open` takes it, whose device is
        closed with the collection; none for "resident".
    mode : str
        "resident": tables whole in the trainer's memory. "scratchpipe": the rows of coming batches
        get slots. "freqcache": likewise, and access counts decide who stays. "hotline": the rows
        learned by `learn` have slots, all others come and go with their batch.
    optimizer : str or SGD, RowwiseAdagrad, Adagrad
        "sgd", "rowwise_adagrad" or "adagrad".
    lr : float
        When `optimizer` is a name.
    preset : str
        Of a device that is opened here.
    policy : str, optional
        Which row leaves: "lru", "rrip", "lfu" or "freq".
    admission : bool
        Whether rows that count less than who would leave are kept out.
    bounds_check_mode : str
        What becomes of an id that is no row of its table, as FBGEMM names it: "fatal" raises,
        "warning" warns and looks up row 0 instead, "ignore" looks up row 0.
    slots_device : str or torch.device
        Whose memory the slots are in: "cpu", or a GPU, to which embeddings and gradients then
        belong, too; in "resident" the tables are the host's.
    cache_load_factor : float, optional
        Slots per row of all tables, at most; then the collection takes the card's slots, or a half
        of them, or a quarter, ....
    depth, look_ahead, workers, share, before
        As of `CachedStore`.
    seed : int, optional
        The tables start uniform in +-1/sqrt(rows); with a seed, always the same.
    groups : list of TableGroup, optional
        Tables that are there already.

    Members
    -------
    optimizer : RowOptimizer
    store : Store
    tables : tuple of TableConfig

    Raises
    ------
    Error
    """

    def __init__(self, tables, device=None, mode="scratchpipe", optimizer="sgd", lr=0.01, *,
                 preset="ecp5-85f", policy=None, admission=False, bounds_check_mode="fatal",
                 slots_device="cpu", cache_load_factor=None, depth=4, look_ahead=2, workers=0,
                 share=1, before=None, seed=None, groups=None):
        super().__init__()
        self.tables, self.mode, self.bounds_check_mode = tuple(tables), mode, bounds_check_mode
        self._check(device)
        rule = OPTIMIZERS[optimizer](lr) if isinstance(optimizer, str) else optimizer
        self._groups = groups or group_tables(self.tables, rule)
        if groups is None:
            for group in self._groups:
                group.tables.initialise(torch.seed() if seed is None else seed)
        self._places = Places(self._groups)
        self._features = [(number, name) for number, config in enumerate(self.tables)
                          for name in config.feature_names]
        memory = memory_on(slots_device)
        if memory.late and mode == "resident":
            raise Error("mode resident trains tables in host memory: leave slots_device out")
        self._doubts = StepsInDoubt(memory)
        self._staged = [StagedGradients(group.kind.dim, memory.device) for group in self._groups]
        self._anchor = torch.zeros(0, requires_grad=True)
        self._mean = torch.tensor([config.pooling == "mean" for config in self.tables])
        self._opened, self._part, self.batches = None, None, 0
        self.optimizer = RowOptimizer(self, rule)
        if mode == "resident":
            self.store = ResidentStore(self._groups)
            return
        if isinstance(device, str):
            opened = driver.open if mode == "hotline" else open_planner
            device = self._opened = opened(device, preset)
        if cache_load_factor is not None:
            rows = sum(config.num_embeddings for config in self.tables)
            share = share_of(device.geometry.slots, cache_load_factor * rows)
        try:
            placing = HotRows(device) if mode == "hotline" else LookAhead(
                device, policy or _POLICY[mode], admission)
            self.store = CachedStore(self._groups, device, placing, depth, look_ahead, workers,
                                     share, before, memory)
        except BaseException:
            self._close_device()
            raise

    def _check(self, device):
        if not self.tables:
            raise Error("a collection needs at least one table")
        names = [config.name for config in self.tables]
        for name in names:
            if names.count(name) > 1:
                raise Error(f"there are {names.count(name)} tables named {name!r}")
        unpooled = [config for config in self.tables if config.pooling == "none"]
        if unpooled and len(unpooled) < len(self.tables):
            raise Error(f"table {unpooled[0].name!r} is not pooled, and others are: make one "
                        f"collection of tables with pooling 'none', and one of the others")
        dims = {config.embedding_dim for config in unpooled}
        if len(dims) > 1:
            raise Error(f"tables with pooling 'none' need one dim, not "
                        f"{', '.join(map(str, sorted(dims)))}")
        self._pooled = not unpooled
        if self.bounds_check_mode not in BOUNDS_CHECKS:
            raise Error(f"bounds_check_mode is {', '.join(map(repr, BOUNDS_CHECKS))}, not "
                        f"{self.bounds_check_mode!r}")
        if self.mode not in MODES:
            raise Error(f"mode is {', '.join(MODES)}, not {self.mode!r}")
        if (device is None) != (self.mode == "resident"):
            raise Error("mode resident takes no device" if device is not None else
                        f"mode {self.mode} needs a device: an open one, or a transport such as "
                        f"'model' or 'sim'")
        if device is not None and not isinstance(device, (str, Device)):
            raise Error(f"device is an open hotrow.Device or the name of a transport, not "
                        f"{device!r}")

    def forward(self, inputs, offsets=None, per_sample_weights=None):
        """The embeddings of a batch; what is returned is said at the class.

        Parameters
        ----------
        inputs
            As of the class.
        offsets : integers [features * samples + 1], optional
        per_sample_weights : float32[n], optional
            Of each lookup, with pooling "sum" only.

        Raises
        ------
        BatchError
            Naming batch, sample, table and id.
        """
        bags = self.bags(inputs, offsets, per_sample_weights)
        return joined(self.tables, self._features, bags, self.lookup(bags), inputs)

    def bags(self, inputs, offsets=None, per_sample_weights=None):
        """What is to be looked up, in one form, as `prefetch` and `forward` take it: Bags."""
        tables, names = zip(*self._features, strict=True)
        return Bags.of(tables, inputs, offsets, per_sample_weights, names)

    def prefetch(self, inputs, offsets=None, per_sample_weights=None):
        """Begin to bring the rows of a batch that `forward` will be called with, in this order."""
        bags = self.bags(inputs, offsets, per_sample_weights)
        self.store.prefetch(self._request(bags, self.store.waiting, warn=False)[0])

    def lookup(self, bags, training=None):
        """Embeddings of each feature of Bags: list of float32[samples, dim], or, where tables are
        not pooled, of float32[lookups, dim].

        `training` is the module's own unless it is given.
        """
        request, order = self._request(bags)
        trains = (self.training if training is None else training) and torch.is_grad_enabled()
        if trains:
            self.finish()
            if self._part is None:
                placed, opened = self.store.take(request)
                self.batches += 1
            else:
                placed, opened = self.store.take_part(request, *self._part)
                self._part = None
        else:
            placed = self.store.look(request)
        found = []
        for segment, here in zip(request.segments, placed, strict=True):
            lookup = Lookup(segment, here, self._divisor(request.bags, len(found), segment),
                            self._staged[segment.group], self._pooled)
            weights = request.bags.weights
            if weights is not None:
                weights = weights[segment.lookups].to(self.store.slot_memory.device)
            if trains:
                opened.add(lookup)
                pooled = PooledLookup.apply(self._anchor, weights, lookup)
            else:
                pooled = lookup.pool(weights)[0]
            first = len(found)
            found += pooled.split(
                [bags.samples] * segment.features if self._pooled
                else request.bags.counts[first:first + segment.features])
        pooled = [None] * len(order)
        for at, each in zip(order, found, strict=True):
            pooled[at] = each
        return pooled

    def _request(self, bags, ahead=0, warn=True):
        """What a batch, so many `ahead` of the next one, asks of the store: (Request, order)."""
        bags = bags.checked(self.tables, f"batch {self.batches + ahead}", self.bounds_check_mode,
                            warn)
        if bags.weights is not None and any(
                self.tables[each].pooling != "sum" for each in bags.tables):
            raise Error("weights per sample go with pooling 'sum' only, as in nn.EmbeddingBag")
        bags, order = self._places.sorted(bags)
        return Request(bags, self._places.segments(bags)), order

    def _divisor(self, bags, feature, segment):
        """By which sums of bags are divided: 1, or the bag's length."""
        mean = self._mean[list(bags.tables[feature:feature + segment.features])]
        if not bool(mean.any()):
            return None
        lengths = segment.lengths.view(segment.features, bags.samples)
        return torch.where(mean[:, None], lengths.clamp(min=1), 1).float().view(-1, 1)

    @property
    def waiting_samples(self):
        """Samples of the batch that was prefetched first and not taken."""
        return self.store.waiting_samples

    def parts(self):
        """The micro-batches of the batch that was prefetched first, in mode hotline.

        First the popular samples, whose rows are all in slots, while the rows of the others come;
        then the others. Call the collection with the samples that were yielded before the next.

        Yields
        ------
        int64[k]
            Samples, at least one.
        """
        self.finish()
        popular = self.store.popular()
        parts = [part for part in (torch.nonzero(which).squeeze(1)
                                   for which in (popular, ~popular)) if len(part)]
        for number, part in enumerate(parts):
            last = number + 1 == len(parts)
            self._part = part, not bool(popular[part[0]]), last
            yield part
            if self._part is not None:
                raise Error("the collection was not called with the micro-batch it had named")
        self.batches += 1

    def gradients(self):
        """Tensors whose `grad` are the staged gradients: for clipping, not for another optimizer.

        Returns
        -------
        list of Tensor
            One per group of tables with one dim and dtype.
        """
        return [staged.tensor for staged in self._staged]

    def staged(self):
        """The staged gradients themselves: list of StagedGradients, one per group."""
        return list(self._staged)

    def apply_gradients(self):
        """Apply what is staged: `optimizer.step()`."""
        self._doubts.settle()
        work = [(at, staged) for at, staged in enumerate(self._staged) if staged.values is not None]
        sound = None
        if work and self.store.slot_memory.late:
            sound = self._doubts.add(self.batches - 1, [staged.values for _, staged in work])
        else:
            for at, staged in work:
                self._check_finite(at, staged)
        for at, staged in work:
            self.store.apply(at, staged.rows, staged.values, self.optimizer.rule, sound)
            staged.clear()
        self.store.finish()

    def _check_finite(self, at, staged):
        finite = torch.isfinite(staged.values).all(dim=1)
        if bool(finite.all()):
            return
        group, row = self._groups[at], staged.rows[~finite][:1]
        where = group.tables.locate(row)
        raise Error(
            f"batch {self.batches - 1}: the gradient of row {int(where.row[0])} of table "
            f"{group.configs[int(where.table[0])].name!r} is not finite, and nothing was applied: "
            f"lower the rate, clip, or train with torch.amp.GradScaler, which skips such steps")

    def close(self):
        """Write back, end the threads, and close a device that was opened here."""
        try:
            self.store.close()
        finally:
            self._close_device()

    def _close_device(self):
        if self._opened is not None:
            self._opened.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with suppress(*([BaseException] if kind else [])):  # the first error is the one to show
            self.close()

    def extra_repr(self):
        rows = sum(config.num_embeddings for config in self.tables)
        return f"{len(self.tables)} tables, {rows:,} rows, mode={self.mode!r}"
