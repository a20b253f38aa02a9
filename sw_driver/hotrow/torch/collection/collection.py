"""Embedding tables of any size as a PyTorch module: `HotEmbeddingBagCollection`."""

from collections.abc import Iterator
from contextlib import suppress
from copy import copy

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ...errors import Error
from ...results import HotRows
from ..features.configs import check_tables, group_tables, table_config
from ..features.layout import FeatureLayout
from ..features.outputs import joined
from ..memory.slot_memory import memory_on
from ..optim.lookup import PooledLookup
from ..optim.row_optimizer import RowOptimizer, rule_of
from ..optim.staging import GradientStage
from ..store.base import Store
from ..store.fitting import check_fits
from ..store.opening import MODES, open_store
from .bag_calls import BagCalls
from .contents import TableContents
from .eager import outside_compile
from .ranking import interleaved, most_counted
from .rows_parameter import RowsParameter

__all__ = ["MODES", "HotEmbeddingBagCollection"]

WARMUP_RATIO = 0.7  # of the slots, as CachedEmbedding warms them


class HotEmbeddingBagCollection(nn.Module):
    """Embeddings of several tables that live in host memory, with the busy rows in slots.

    Call it with ids [samples, features], with a sequence of (indices, offsets) per feature, with
    indices and offsets of all features, one after the other, or with a KeyedJaggedTensor; the
    features of the first table come first, then those of the second, .... It returns
    float32[samples, sum of the dims], feature after feature; unpooled tables return
    float32[lookups, dim] likewise. `optimizer` trains the rows, by applying the gradients that
    backward stages; rows are no parameters of the module. In `eval()`, or without gradients, the
    module reads rows where they are, counts nothing and moves nothing.

    In `resident`, `scratchpipe` and `freqcache` final tables and state have the same bits, whatever
    the slots, policy, depth, workers and transport.

    Parameters
    ----------
    tables : sequence of TableConfig
        All pooled, or none; also TorchRec's EmbeddingBagConfigs, or EmbeddingConfigs for none.
        Without `seed`, their `init_fn` draws the rows.
    device : Device or str, optional
        An open device without tables, or a transport as in `hotrow.open`, whose device the
        collection opens and closes; None for "resident".
    mode : str
        "resident": whole tables in the trainer's memory. "scratchpipe": the rows of coming batches
        get slots. "freqcache": likewise, and access counts choose the victims. "hotline": rows
        that `learn` chose have slots, all others are fetched for one batch.
    optimizer : str or SGD, RowwiseAdagrad, Adagrad, Adam, PartialRowwiseAdam
        "sgd", "rowwise_adagrad", "adagrad", "adam" or "partial_rowwise_adam".
    lr : float
        Rate of an optimizer given by name.
    preset : str
        Preset of a device that the collection opens.
    policy : str, optional
        Choice of victims: "lru", "rrip", "lfu" or "freq".
    admission : bool
        Whether a row whose count is below its victim's is bypassed.
    cold : str
        Rows without a slot in mode hotline: "gathered" fetches them, "pooled" has the card pool and
        update them in the tables, within a tolerance instead of to the bit.
    bounds_check_mode : str
        For ids that are no row of their table, by FBGEMM's names: "fatal" raises, "warning" warns
        and looks up row 0 instead, "ignore" looks up row 0.
    slots_device : str or torch.device
        Memory of the slots: "cpu", or a GPU, which then has embeddings and gradients, too; tables
        of "resident" are in host memory.
    cache_load_factor : float, optional
        Most slots per row of all tables; the collection uses the card's slots, or a half, a
        quarter, ... of them.
    depth, look_ahead, workers, share, before
        As in `CachedStore`.
    seed : int, optional
        Seed of the tables' contents, uniform in +-1/sqrt(rows); by default drawn from PyTorch's
        generator.
    is_weighted : bool
        Whether the weights of a KeyedJaggedTensor are used, as in TorchRec.
    groups : list of TableGroup, optional
        Existing tables.
    initialise : bool
        False leaves the rows undefined, for a caller who writes all of them.

    Attributes
    ----------
    optimizer : RowOptimizer
    tables : tuple of TableConfig
    allow_fewer_rows : bool
        Whether loading takes tables of fewer rows, and leaves the others as they are; False at
        first.

    Raises
    ------
    Error
    """

    allow_fewer_rows = False
    several_ranks = False  # whether every rank of torch.distributed may make one

    def __init__(self, tables, device=None, mode="scratchpipe", optimizer="sgd", lr=0.01, *,
                 preset="ecp5", policy=None, admission=False, cold="gathered",
                 bounds_check_mode="fatal", slots_device="cpu", cache_load_factor=None, depth=4,
                 look_ahead=2, workers=0, share=1, before=None, seed=None, groups=None,
                 is_weighted=False, initialise=True):
        super().__init__()
        if not self.several_ranks:
            refuse_ranks("a HotEmbeddingBagCollection", "ShardedEmbeddingBagCollection")
        given = tuple(tables)
        self.tables, self.mode = tuple(table_config(each) for each in given), mode
        self._bag_configs = None if given == self.tables else list(given)
        check_tables(self.tables)
        memory = memory_on(slots_device)
        rule = rule_of(optimizer, lr)
        check_fits(self.tables, rule, device, preset, share)
        existing, groups = groups, groups or group_tables(self.tables, rule)
        self.layout = FeatureLayout(self.tables, groups, bounds_check_mode, is_weighted)
        self.store: Store = open_store(
            groups, rule, memory, device, mode, preset, policy, admission, cold, cache_load_factor,
            share, depth=depth, look_ahead=look_ahead, workers=workers, before=before)
        if existing is None and initialise:
            generator = torch.Generator().manual_seed(drawn_seed() if seed is None else seed)
            for group in groups:
                group.tables.initialise(generator)
        self.contents = TableContents(groups)
        self._gradients = GradientStage(groups, memory, cold == "pooled")
        self._missed: list[bool] = []  # not empty after a backward of a lookup in eval()
        self._no_rows, self.calls = torch.zeros(0), BagCalls()
        self.rows = RowsParameter.of(self._drop_staged, self.gradients)
        self._part: tuple[torch.Tensor, bool, bool] | None = None
        self.batches = 0
        self._arrays = [array for group in groups for array in (
            group.tables.rows.array, group.tables.rows.side) if array is not None]
        self._versions: list[int] | None = None
        self.optimizer = RowOptimizer(self, rule)
        if self._bag_configs and existing is None and seed is None and initialise:
            self.reset_parameters()

    @outside_compile
    def forward(self, inputs=None, offsets=None, per_sample_weights=None, *, features=None):
        """The embeddings of a batch, in the form that the class describes.

        Parameters
        ----------
        inputs
            As the class describes; by TorchRec's name `features`.
        offsets : integers [features * samples + 1], optional
        per_sample_weights : float32[n], optional
            Weight of each lookup, with pooling "sum" only.

        Raises
        ------
        BatchError
            Naming batch, sample, table and id.
        """
        inputs = features if inputs is None else inputs
        bags = self.bags(inputs, offsets, per_sample_weights)
        request, results = self._look_up(bags, self.training, self.rows)
        found = results if self.layout.pooled else self.layout.split(request, results)
        return joined(self.tables, self.layout.features, bags, found, inputs)

    def bags(self, inputs, offsets=None, per_sample_weights=None):
        """The lookups of a batch in the form that `prefetch` and `forward` also take: Bags."""
        return self.agree(lambda: self.layout.bags(inputs, offsets, per_sample_weights),
                          f"batch {self.batches} was refused, because of an input")

    def agree(self, call, what):
        """The result of `call()`; ranks of one collection refuse together, and say `what`."""
        return call()

    def prefetch(self, inputs, offsets=None, per_sample_weights=None):
        """Begin to fetch the rows of a batch; `forward` takes batches in the order of these calls.

        The ids are copied: the caller may overwrite them.
        """
        bags = self.bags(inputs, offsets, per_sample_weights).snapshot()
        self._adopt_writes()
        self.store.prefetch(self._request(bags, self.store.waiting))

    def lookup(self, bags, training=None, rows=None):
        """Embeddings of each feature of Bags.

        Parameters
        ----------
        bags : Bags
        training : bool, optional
            The module's own by default.
        rows : RowsParameter, optional
            Of the calling module: without `requires_grad` the rows are frozen.

        Returns
        -------
        list of float32[samples, dim], or, unpooled, of float32[lookups, dim]
        """
        training = self.training if training is None else training
        rows = self.rows if rows is None else rows
        if bags.features == 1 and training and torch.is_grad_enabled() and rows.requires_grad:
            found = self.calls.result(self, bags)
            if found is not None:
                return [found]
        request, results = self._look_up(bags, training, rows)
        return self.layout.split(request, results)

    def lookup_of(self, request, located):
        """The Lookup of pooled bags whose rows were located."""
        return self._gradients.lookups(
            request, located, self.layout.bag_layouts(request), pooled=True)[0]

    @property
    def part(self):
        """Samples int64[k] of the micro-batch that is to be looked up, or None."""
        return None if self._part is None else self._part[0]

    def _look_up(self, bags, training, rows):
        """Request of Bags, and the results of its lookups: list of Tensor."""
        self._adopt_writes()
        differentiates = torch.is_grad_enabled() and rows.requires_grad
        if not (training and differentiates):
            request, pending = self._request(bags), None
            located = self.store.look(request)
        else:
            request, located, pending = self._take(bags)
        weights = request.weights_of(bags)
        if weights is not None:
            weights = weights.to(self.store.slot_memory.device)
        results = []
        for lookup in self._gradients.lookups(
                request, located, self.layout.bag_layouts(request), self.layout.pooled):
            if pending is not None:
                pending.add(lookup)
                results.append(PooledLookup.apply(rows, weights, lookup))
            else:
                lookup.trains, lookup.missed = False, self._missed if differentiates else None
                results.append(PooledLookup.apply(
                    rows if differentiates else self._no_rows, weights, lookup))
        return request, results

    def _request(self, bags, ahead=0):
        """Check Bags of the batch that many `ahead` of the next one: Request."""
        if bags.weights is not None and self.store.pools_cold_rows:
            raise Error("weights per sample need cold='gathered': the card pools cold rows without")
        batch = f"batch {self.batches + ahead}"
        return self.agree(lambda: self.layout.request(bags, batch),
                          f"{batch} was refused, because of an id")

    def take(self, bags):
        """Rows of a batch that trains, as `_take`, after a check of writes into the tables."""
        self._adopt_writes()
        return self._take(bags)

    def _take(self, bags):
        """Rows of a batch that trains: (Request, list of LocatedRows, PendingBackward)."""
        again = self._take_again(bags)
        if again is not None:
            return again
        self.finish()
        if self._part is not None:
            request = self._request(bags.snapshot())
            located, pending = self.store.take_part(request, *self._part)
            self._part = None
            return request, located, pending
        request = self.store.coming(bags)
        if request is None:
            request = self._request(bags.snapshot())
        else:
            self.layout.check_weights(bags)
            if not request.source.equals(bags):
                raise Error(f"batch {self.batches} is not the one that was prefetched in its place "
                            f"({bags.lookups} ids, prefetched {request.source.lookups}): batches "
                            f"train in the order of prefetch(). Call skip() of the pipeline or the "
                            f"collection for a batch that is not looked up, and eval() where "
                            f"nothing trains")
        located, pending = self.store.take(request)
        self.batches += 1
        return request, located, pending

    def _take_again(self, bags):
        """What `_take` returned for Bags that are looked up once more, or None.

        Inside backward, activation checkpointing repeats a lookup. Elsewhere a batch is repeated
        only if another one was prefetched in the next place.
        """
        if self._part is None and torch._C._current_graph_task_id() < 0:
            coming = self.store.coming(bags)
            if coming is None or coming.source.equals(bags):
                return None
        self.layout.check_weights(bags)
        return self.store.take_again(bags)

    def skip(self):
        """Drop the batch that was prefetched first, which will not be looked up."""
        self.finish()
        request = self.store.coming()
        if request is not None:
            self.store.take(request)
            self.batches += 1

    @property
    def waiting_samples(self):
        """Samples of the batch that was prefetched first and not taken; 0 if there is none."""
        coming = self.store.coming()
        return 0 if coming is None else coming.bags.samples

    def parts(self) -> Iterator[torch.Tensor]:
        """The micro-batches of the batch that was prefetched first, in mode hotline.

        The popular samples come first, whose rows are all in slots, while the rows of the others
        are fetched; then the others. Call the collection with the yielded samples before the next.

        Yields
        ------
        int64[k]
            Samples, at least one.
        """
        micro_batches = self.store.micro_batches
        if micro_batches is None or self.mode != "hotline":
            raise Error(f"mode {self.mode} trains batches whole: parts() is for mode hotline")
        self.finish()
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
        self.batches += 1

    def gradients(self):
        """Tensors whose `grad` are the staged gradients: for clipping, not for another optimizer.

        Returns
        -------
        list of Tensor
            One per group of tables with one dim and dtype; with cold="pooled" another per group,
            whose gradients are of bags with cold rows, each bag once.
        """
        return [staged.tensor for staged in self._gradients.all]

    def staged(self):
        """The staged gradients of rows: list of StagedGradients, one per group."""
        return list(self._gradients.rows)

    def drop_staged(self, table):
        """Drop the staged gradients of the table of that number."""
        self.forget_missed()
        self._gradients.drop(table)

    def _drop_staged(self):
        self.forget_missed()
        for staged in self._gradients.all:
            staged.clear()

    def forget_missed(self):
        """Forget the backwards of lookups in `eval()`, for which `optimizer.step()` is refused."""
        self._missed.clear()

    def __reduce_ex__(self, protocol):
        """Copies, also by pickle and `torch.save`, are resident."""
        self.flush()
        contents = {config.name: self.table(config.name) for config in self.tables}
        return _resident_copy, (self.tables, self.optimizer.tuned_rule(), self.layout.options,
                                contents, self.training, self.rows.requires_grad)

    def apply_gradients(self):
        """Apply the staged gradients; `optimizer.step()` calls this."""
        if self._missed:
            raise Error("backward reached rows that were looked up in eval(), which gathers no "
                        "gradients of rows: call train() of the embeddings before the forward, or "
                        "zero_grad() after a backward that is not for training")
        self.calls.drop()
        self._gradients.apply(self.store, self.optimizer.rule, self.batches - 1)
        self.store.finish()

    def finish(self):
        """Release batches whose backward has run or cannot run, unless gradients are staged."""
        self.store.finish(holds_gradients=not self._gradients.empty)

    def abandon(self):
        """Release prefetched batches that will not be trained."""
        self.calls.drop()
        self.store.abandon()
        self.finish()

    def learn(self, rows=None, warmup_ratio=None, ids_freq_mapping=None, *, limit=None, decay=0):
        """Give the most accessed rows their slots, between two steps.

        Call it again to follow what is popular; in mode hotline rows that stay are not moved.

        Parameters
        ----------
        rows : mapping of str to sequence of int, optional
            Rows of each table by name, the most accessed of a table first; by default the rows
            that the device has counted most.
        warmup_ratio : float, optional
            Share of the slots to fill: 1 in hotline, else 0.7.
        ids_freq_mapping : mapping of str to sequence of int [rows], optional
            In place of `rows`, how often each row of each table is accessed.
        limit : int, optional
            In place of `warmup_ratio`, the number of slots to fill.
        decay : int
            Binary places by which the device first shifts every count right, so that old lookups
            weigh less.

        Returns
        -------
        int
            Rows that have a slot.
        """
        if self.mode == "resident":
            return 0
        if limit is None:
            if warmup_ratio is None:
                warmup_ratio = 1.0 if self.mode == "hotline" else WARMUP_RATIO
            limit = max(1, int(warmup_ratio * self.store.slots))
        if limit > self.store.slots:
            raise Error(f"{limit:,} hot rows do not fit: the card's directory holds "
                        f"{self.store.slots:,}")
        self.finish()
        if ids_freq_mapping is not None:
            return self.store.warm(most_counted(self._by_number(ids_freq_mapping), limit))
        if rows is not None:
            return self.store.warm(interleaved(self._by_number(rows), limit))
        return self.store.warm(self.store.hottest(limit, decay))

    def _by_number(self, arrays):
        """Arrays by the tables' names, as (the device's number, array) in order of the tables."""
        unknown = set(arrays) - {config.name for config in self.tables}
        if unknown:
            raise Error(f"there is no table {sorted(unknown)[0]!r}: expected some of "
                        f"{', '.join(config.name for config in self.tables)}")
        return [(self.store.device_table(number), np.asarray(arrays[config.name]))
                for number, config in enumerate(self.tables) if config.name in arrays]

    def access_counts(self):
        """The device's access counts: int64[3, n], tables, rows and counts; None without any."""
        counted = self.store.device and self.store.device.counts()
        if not counted:
            return None
        return torch.from_numpy(np.stack((counted.table, counted.row, counted.count)).astype(
            np.int64))

    def set_access_counts(self, counts):
        """Set the device's access counts to those of `access_counts`."""
        if self.store.device is not None:
            table, row, count = counts.numpy().astype(np.uint32)
            self.store.device.set_counts(HotRows(table, row, count, cycles=0))

    def observe(self, inputs, offsets=None, per_sample_weights=None):
        """Let the device count the lookups of a batch that does not train."""
        self.store.observe(self._request(self.bags(inputs, offsets, per_sample_weights)))

    @property
    def memory(self):
        """Bytes beside the tables, and bits of metadata per slot on the host: dict.

        `slots`, `bypass` (the bypass area), `staging` (rows on their way) and `gradients`, state
        included; `metadata` of the host, `metadata_bits_per_slot`. Empty for resident.
        """
        if not self.store.slots:
            return {}
        return {**self.store.memory(), "gradients": self._gradients.nbytes}

    @property
    def statistics(self):
        """Counts of the cache: dict of `lookups`, `hits`, `fills`, `evictions`, `bypasses`,
        `rows_moved` and `link_bytes`; empty for resident."""
        return self.store.statistics.total if self.store.statistics else {}

    @property
    def table_statistics(self):
        """The counts of each table, with `misses` and without `link_bytes`: dict by name.

        Here a hit is a lookup whose row had a slot before its batch. `statistics` has the card's
        hits, among which are repeated lookups of a row that the batch fetches, unless they are few
        beats apart. Empty for resident.
        """
        return self.store.statistics.by_table if self.store.statistics else {}

    def expect_writes(self):
        """Accept writes into the tables up to the next call, of rows that no slot holds."""
        self._versions = None

    def _adopt_writes(self):
        """Notice writes into the tables by others than the store, and drop the slots' copies.

        Raises
        ------
        Error
            Slots hold rows that were trained since the last `flush`, or batches are in flight.
        """
        versions = [array._version for array in self._arrays]
        written = self._versions is not None and versions != self._versions
        self._versions = versions
        window = self.store.window
        if not written or window is None:
            return
        self.finish()
        if window.finished != window.submitted or any(
                bool(each.dirty.any()) for each in self.store.storages):
            raise Error("a table was written in place while slots hold trained rows of it, or "
                        "batches are in flight: call flush() (state_dict() and weight do) after "
                        "the last step and before the write")
        self.store.reset()

    def flush(self):
        """Bring the tables up to date."""
        self._adopt_writes()
        self.store.flush()
        self._gradients.finite.settle(wait=True)

    def reset_cache_states(self):
        """Write back, and empty the slots."""
        self.finish()
        self._adopt_writes()
        self.store.flush()
        self.store.reset()

    def table(self, name):
        """One table: (weights [rows, dim], state or None), up to date only after `flush`."""
        return self.contents.table(name)

    @property
    def embeddings(self):
        """As `embedding_bags`, by the name that TorchRec has for tables that are not pooled."""
        return self.embedding_bags

    @property
    def embedding_bags(self):
        """Tables by name, up to date, each with `weight`, `state` (None without any) and, where
        the optimizer depends on it, `step`."""
        self.flush()
        named, step = self.contents.named(), self.step_count()
        for each in named.values() if step is not None else ():
            each.step = step
        return named

    def sha256(self):
        """Digests of all rows, then of all state, group after group; after `flush`."""
        return self.contents.sha256()

    def row_states(self):
        """State of each table that has any, by name, up to date."""
        self.flush()
        states = {config.name: self.table(config.name)[1] for config in self.tables}
        return {name: state for name, state in states.items() if state is not None}

    def load_row_states(self, states):
        """Set the state of every table."""
        self.reset_cache_states()
        own = self.row_states()
        if set(own) != set(states):
            raise Error(f"expected the state of tables {sorted(own)}, got {sorted(states)}")
        for name, state in states.items():
            shape, expected = list(state.shape), list(own[name].shape)
            if not self._takes(shape, expected):
                raise Error(f"the state of table {name!r} has shape {shape}, and the table's has "
                            f"{expected}")
        for name, state in states.items():
            self.contents.assign(name, state=state)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        self.flush()
        for config in self.tables:
            self.put_contents(destination, f"{prefix}{self._kind}.{config.name}.", config.name)

    def put_contents(self, destination, prefix, name):
        """Put a table into a state dict, up to date after `flush`: `weight`, `state` and, if the
        optimizer depends on it, its `step`."""
        for part, each in zip(("weight", "state"), self.table(name), strict=True):
            if each is not None:
                destination[prefix + part] = each
        step = self.step_count()
        if step is not None:
            destination[prefix + "step"] = step

    def step_count(self):
        """Steps of the optimizer: int64[], or None if it depends on none."""
        step = self.optimizer.param_groups[0].get("step")
        return None if step is None else torch.tensor(step)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys,
                              unexpected_keys, error_msgs):
        self.reset_cache_states()
        known = set()
        for config in self.tables:
            known.update(self.load_table(
                config.name, state_dict, f"{prefix}{self._kind}.{config.name}.", missing_keys,
                error_msgs))
        if strict:
            unexpected_keys += [key for key in state_dict
                                if key.startswith(prefix) and key not in known]

    @property
    def _kind(self):
        """First part of the keys of `state_dict`, as in TorchRec's two collections."""
        return "embedding_bags" if self.layout.pooled else "embeddings"

    def embedding_bag_configs(self):
        """The tables as TorchRec's EmbeddingBagConfigs: those given, or made of TableConfigs."""
        if not self.layout.pooled:
            raise Error("tables with pooling 'none' are TorchRec's EmbeddingConfigs: call "
                        "embedding_configs()")
        return self._torchrec_configs()

    def embedding_configs(self):
        """The tables, which are not pooled, as TorchRec's EmbeddingConfigs."""
        if self.layout.pooled:
            raise Error("pooled tables are TorchRec's EmbeddingBagConfigs: call "
                        "embedding_bag_configs()")
        return self._torchrec_configs()

    def _torchrec_configs(self):
        if self._bag_configs is None:
            self._bag_configs = [torchrec_config(config) for config in self.tables]
        return self._bag_configs

    def embedding_dim(self):
        """Elements of a row of tables that are not pooled."""
        return self.tables[0].embedding_dim

    def is_weighted(self):
        """Whether the weights of a KeyedJaggedTensor are used."""
        return self.layout.is_weighted

    @property
    def device(self):
        """Device of the results: torch.device."""
        return torch.device(self.store.slot_memory.device)

    def reset_parameters(self):
        """Draw the rows again, with PyTorch's generator or a config's `init_fn`; keep the state."""
        self.reset_cache_states()
        for number, config in enumerate(self.tables):
            draw = self._bag_configs and getattr(self._bag_configs[number], "init_fn", None)
            weights = torch.empty(config.num_embeddings, config.embedding_dim)
            bound = config.num_embeddings**-0.5
            (draw or (lambda each, bound=bound: each.uniform_(-bound, bound)))(weights)
            self.contents.assign(config.name, weights=weights)

    def load_table(self, name, state_dict, prefix, missing_keys, error_msgs):
        """Load one table, while no slot holds a row of it, from the keys of `put_contents`.

        The state and the step of an optimizer may be absent: they stay as they are.

        Returns
        -------
        list of str
            The keys that a table of this collection has.
        """
        config = next(each for each in self.tables if each.name == name)
        rows, rule = config.num_embeddings, self.optimizer.rule
        kind, columns = rule.state, rule.columns(config.embedding_dim)
        shapes = {"weight": [rows, config.embedding_dim],
                  "state": [rows, columns] if columns else [rows]}
        if kind is None:
            del shapes["state"]
        given = {part: state_dict.get(prefix + part) for part in shapes}
        if given["weight"] is None:
            missing_keys.append(prefix + "weight")
        wrong = {part: list(each.shape) for part, each in given.items()
                 if each is not None and not self._takes(list(each.shape), shapes[part])}
        fewer = "; allow_fewer_rows of the collection takes the first rows"
        error_msgs += [f"{prefix}{part} has shape {shape}, and the table {shapes[part]}"
                       + fewer * (shape[1:] == shapes[part][1:] and shape < shapes[part])
                       for part, shape in wrong.items()]
        if len({len(each) for each in given.values() if each is not None}) > 1 and not wrong:
            error_msgs.append(f"{prefix}weight and {prefix}state have different numbers of rows")
            wrong = given
        if not wrong:
            self.contents.assign(name, given["weight"], given.get("state"))
        if rule.counts_steps:
            shapes["step"] = []
            group = self.optimizer.param_groups[0]
            group["step"] = int(state_dict.get(prefix + "step", group["step"]))
        return [prefix + part for part in shapes]

    def _takes(self, shape, expected):
        """Whether loading takes a tensor of that shape."""
        return shape == expected or (
            self.allow_fewer_rows and shape[1:] == expected[1:] and shape < expected)

    def close(self):
        """Write back, end the threads, and close a device that the collection opened."""
        self.store.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with suppress(*([BaseException] if kind else [])):  # the first error is the one to show
            self.close()

    def extra_repr(self):
        rows = sum(config.num_embeddings for config in self.tables)
        return f"{len(self.tables)} tables, {rows:,} rows, mode={self.mode!r}"


def torchrec_config(config):
    """TorchRec's config of a TableConfig."""
    from torchrec import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType

    kinds = {torch.float32: DataType.FP32, torch.float16: DataType.FP16,
             torch.bfloat16: DataType.BF16}
    common = {"name": config.name, "num_embeddings": config.num_embeddings,
              "embedding_dim": config.embedding_dim, "data_type": kinds[config.dtype],
              "feature_names": list(config.feature_names)}
    if config.pooling == "none":
        return EmbeddingConfig(**common)
    return EmbeddingBagConfig(**common, pooling=PoolingType[config.pooling.upper()])


def _resident_copy(tables, rule, options, contents, training, trains):
    """A collection without a card, with the contents of another one."""
    copied = HotEmbeddingBagCollection(tables, None, "resident", copy(rule), initialise=False,
                                       **options)
    for name, (weights, state) in contents.items():
        copied.contents.assign(name, weights, state)
    return copied.train(training).requires_grad_(trains)


def drawn_seed():
    """A seed from PyTorch's generator, which `torch.manual_seed` fixes."""
    return int(torch.randint(1 << 62, ()))


def refuse_ranks(what, instead):
    """Raise Error in a process group of several ranks, each of which would train its own rows."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise Error(f"{what} in a process group of {dist.get_world_size()} ranks: every rank would "
                    f"train rows of its own; use {instead}")
