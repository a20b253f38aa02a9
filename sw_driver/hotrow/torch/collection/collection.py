"""Embedding tables of any size as a PyTorch module: `HotEmbeddingBagCollection`."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from copy import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

from ...contract.errors import Error
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
from .contents import NamedTables, TableContents
from .eager import outside_compile
from .hot_rows import access_counts, set_access_counts, warm
from .id_maps import IdMaps, TableChanges
from .result_dtype import followed, unchanged
from .rows_parameter import RowsParameter, refuse_scripting, rows_of
from .saved_state import SavedState
from .table_view import TableView
from .table_writes import TableWrites
from .torchrec_tables import TorchRecTables
from .trained_batches import TrainedBatches

__all__ = ["MODES", "HotEmbeddingBagCollection"]


class HotEmbeddingBagCollection(nn.Module):
    """Embeddings of several tables that live in host memory, with the busy rows in slots.

    Call it with ids [samples, features], with a sequence of (indices, offsets) per feature, with
    indices and offsets of all features, one after the other, or with a KeyedJaggedTensor; the
    features of the first table come first, then those of the second, .... It returns
    float32[samples, sum of the dims], feature after feature; unpooled tables return
    float32[lookups, dim] likewise; after `to(dtype)` in that dtype. `optimizer` trains the rows, by
    applying the gradients that backward stages; rows are no parameters of the module. In `eval()`,
    or without gradients, the module reads rows where they are, counts nothing and moves nothing.

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
    depth, look_ahead, share, before
        As in `CachedStore`.
    workers : int, optional
        Threads that run the stages of coming batches while one trains; with 0 the stages run when a
        batch is used. By default 1 with a card in software and two cores or more, else 0.
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

    several_ranks = False  # whether every rank of torch.distributed may make one

    def __init__(self, tables, device=None, mode="scratchpipe", optimizer="sgd", lr=0.01, *,
                 preset=None, policy=None, admission=False, cold="gathered",
                 bounds_check_mode="fatal", slots_device="cpu", cache_load_factor=None, depth=4,
                 look_ahead=2, workers=None, share=1, before=None, seed=None, groups=None,
                 is_weighted=False, initialise=True):
        super().__init__()
        if not self.several_ranks:
            refuse_ranks("a HotEmbeddingBagCollection", "ShardedEmbeddingBagCollection")
        given = tuple(tables)
        self.tables, self.mode = tuple(table_config(each) for each in given), mode
        self._torchrec = TorchRecTables(self.tables, given)
        check_tables(self.tables)
        self.id_maps: IdMaps | None = None
        if any(config.ids == "any" for config in self.tables):
            if self.several_ranks or cold == "pooled":
                raise Error("ids='any' is for tables of one process, with cold='gathered'")
            self.id_maps = IdMaps(self.tables, drawn_seed() if seed is None else seed)
        memory = memory_on(slots_device)
        rule = rule_of(optimizer, lr)
        check_fits(self.tables, rule, device, preset, share)
        existing, groups = groups, groups or group_tables(self.tables, rule)
        self.contents = TableContents(groups)
        with ExitStack() as undo:
            for group in groups:
                undo.callback(group.tables.discard)
            self.layout = FeatureLayout(self.tables, groups, bounds_check_mode, is_weighted)
            self.store: Store = open_store(
                groups, rule, memory, device, mode, preset, policy, admission, cold,
                cache_load_factor, share, depth=depth, look_ahead=look_ahead, workers=workers,
                before=before)
            if existing is None and initialise:
                self._draw(groups, seed)
            for group in groups:
                group.tables.filled()
            undo.pop_all()
        self._gradients = GradientStage(groups, memory, cold == "pooled")
        self._dtype = torch.float32  # of results
        self._no_rows, self.calls = torch.zeros(0, dtype=torch.float32), BagCalls()
        self.rows = RowsParameter.of(self._gradients)
        self._trained, self.saved = TrainedBatches(self), SavedState(self.tables, self.contents)
        self._writes = TableWrites(self, groups)
        self.optimizer = RowOptimizer(self, rule)

    def _draw(self, groups, seed):
        """Draw the rows of tables that have no contents."""
        if seed is None and self._torchrec.draw:
            for name, weights in self._torchrec.drawn(
                    config for config in self.tables if not self.contents.exists(config.name)):
                self.contents.assign(name, weights)
            return
        generator = torch.Generator().manual_seed(drawn_seed() if seed is None else seed)
        for group in groups:
            group.tables.initialise(generator)

    @outside_compile
    def forward(self, inputs=None, offsets=None, per_sample_weights=None, *, features=None):
        """The embeddings of a batch, in the form that the class describes.

        Parameters
        ----------
        inputs
            As the class describes; by TorchRec's name `features`.
        offsets : integers [features * samples + 1], optional
        per_sample_weights : float32[n], or float32[samples, features] with such ids, optional
            Weight of each lookup, with pooling "sum" only.

        Raises
        ------
        BatchError
            Naming batch, sample, table and id.
        """
        inputs = features if inputs is None else inputs
        bags = self.bags(inputs, offsets, per_sample_weights)
        request, results = self._look_up(bags, self.training, rows_of(self))
        found = results if self.layout.pooled else self.layout.split(request, results)
        if self._dtype != torch.float32:
            found = [each.to(self._dtype) for each in found]
        return joined(self.tables, self.layout.features, bags, found, inputs)

    def _apply(self, fn, recurse=True):
        """Follow a change of dtype by the model: results have it, rows keep theirs."""
        self._dtype = followed(fn, self._dtype, "a collection has its rows")
        with unchanged(self):
            return super()._apply(fn, recurse)

    def __prepare_scriptable__(self):
        refuse_scripting()

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
        self._trained.prefetch(bags)

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
        rows = rows_of(self) if rows is None else rows
        with self._gradients.lock:
            if bags.features == 1 and training and torch.is_grad_enabled() and rows.trains:
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
        return self._trained.part

    @property
    def batches(self):
        """Batches that were taken or dropped: the number of the next one, in messages."""
        return self._trained.count

    @batches.setter
    def batches(self, count):
        self._trained.count = count

    def _look_up(self, bags, training, rows):
        """Request of Bags, and the results of its lookups: list of Tensor."""
        with self._gradients.lock:
            return self._look_up_alone(bags, training, rows)

    def _look_up_alone(self, bags, training, rows):
        self._adopt_writes()
        differentiates = torch.is_grad_enabled() and rows.trains
        if not (training and differentiates):
            request, pending = self._trained.request(bags, use="evaluate"), None
            located = self.store.look(request)
        else:
            request, located, pending = self._trained.take(bags)
        weights = request.weights_of(bags)
        if weights is not None:
            weights = weights.to(self.store.slot_memory.device)
        results = []
        for lookup in self._gradients.lookups(
                request, located, self.layout.bag_layouts(request), self.layout.pooled):
            lookup.leaves = (rows,) if differentiates else ()
            if pending is not None:
                pending.add(lookup)
                results.append(PooledLookup.apply(rows, weights, lookup))
            else:
                lookup.trains, lookup.missed = False, self._gradients.missed
                results.append(PooledLookup.apply(
                    rows if differentiates else self._no_rows, weights, lookup))
        return request, results

    def take(self, bags):
        """Rows of a batch that trains: (Request, list of LocatedRows, PendingBackward)."""
        self._adopt_writes()
        return self._trained.take(bags)

    def skip(self):
        """Drop the batch that was prefetched first, which will not be looked up."""
        self._trained.skip()

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
        return self._trained.parts()

    def gradients(self):
        """Tensors whose `grad` are the staged gradients: for clipping, not for another optimizer.

        Returns
        -------
        list of Tensor
            One per group of tables with one dim and dtype; with cold="pooled" another per group,
            whose gradients are of bags with cold rows, each bag once.
        """
        self._gradients.settle()
        return [staged.tensor for staged in self._gradients.all]

    def staged(self):
        """The staged gradients of rows: list of StagedGradients, one per group."""
        return list(self._gradients.rows)

    def leaf(self, table):
        """The RowsParameter of a module that looks up in the table of that number."""
        found = self.calls.leaves[table] = RowsParameter.of(self._gradients, table)
        self.optimizer.show(found)
        return found

    def zero_grad(self, set_to_none=True):
        """Drop the staged gradients."""
        super().zero_grad(set_to_none)
        with self._gradients.lock:
            self._gradients.clear()

    def __reduce_ex__(self, protocol):
        """Copies, also by pickle and `torch.save`, are resident."""
        self.flush()
        contents = {config.name: self.contents.table(config.name) for config in self.tables}
        return _resident_copy, (self.tables, self.optimizer.tuned_rule(), self.layout.options,
                                contents, self.training, self.rows.requires_grad, self._dtype,
                                self.id_maps and self.id_maps.state())

    def apply_gradients(self):
        """Apply the staged gradients; `optimizer.step()` calls this."""
        with self._gradients.lock:
            self.agree(self._check_step, "nothing was applied, because of the optimizer")
            self.calls.drop()
            self._gradients.apply(self.store, self.optimizer.rule, self.batches - 1)
            if self.id_maps is not None:
                self.id_maps.trained()
            self.store.finish()

    def _check_step(self):
        self._gradients.check_scaled()
        if self._gradients.missed:
            raise Error("backward reached rows that were looked up in eval(), which gathers no "
                        "gradients of rows: call train() of the embeddings before the forward, or "
                        "zero_grad() after a backward that is not for training")
        self.optimizer.tuned_rule().steps += 1

    def finish(self):
        """Release batches whose backward has run or cannot run, unless gradients are staged."""
        self.store.finish(holds_gradients=not self._gradients.empty)

    def abandon(self):
        """Release prefetched batches that will not be trained."""
        self.calls.drop()
        if self.id_maps is not None:
            self.id_maps.abandon()
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
        return warm(self, rows, warmup_ratio, ids_freq_mapping, limit, decay)

    def access_counts(self):
        """The device's access counts: int64[3, n], tables, rows and counts; None without any."""
        return access_counts(self.store.device)

    @property
    def counters(self):
        """Access counters of the device, 0 without one."""
        return self.store.device.geometry.counter_entries if self.store.device else 0

    def set_access_counts(self, counts):
        """Set the device's access counts to those of `access_counts`."""
        set_access_counts(self.store.device, counts)

    def changes(self, since: int = 0) -> dict[str, TableChanges]:
        """What an export of tables with `ids="any"` lacks that was made after batch `since`.

        Parameters
        ----------
        since : int
            `until` of the changes of the last export; 0 exports every id.

        Returns
        -------
        dict of str to TableChanges
            By the table's name.

        Raises
        ------
        Error
            No table has any ids, or the log has forgotten those batches.
        """
        if self.id_maps is None:
            raise Error("changes() is for tables with ids='any', and there is none")
        self.flush()
        return self.id_maps.changes(since, self.contents)

    def observe(self, inputs, offsets=None, per_sample_weights=None):
        """Let the device count the lookups of a batch that does not train."""
        self.store.observe(self._trained.request(
            self.bags(inputs, offsets, per_sample_weights), use="observe"))

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
        self._writes.expect()

    def _adopt_writes(self):
        """As `TableWrites.adopt`."""
        self._writes.adopt()

    def flush(self):
        """Bring the tables' memory up to date."""
        with self._gradients.lock:
            self._adopt_writes()
            self.store.flush()
            self._gradients.finite.settle(wait=True)

    def reset_cache_states(self):
        """Write back, and empty the slots."""
        self.finish()
        self._adopt_writes()
        self.store.flush()
        self.store.reset()

    def table(self, name, rows=None):
        """One table: (weights [rows, dim], state or None), TableViews that stay up to date.

        `rows` is the RowsParameter of the module whose `weight` the weights are, if any.
        """
        if self.several_ranks:
            self.flush()
        weights, state = self.contents.table(name)
        return (TableView.of(weights, self, rows, self.several_ranks),
                None if state is None else TableView.of(state, self, copied=self.several_ranks))

    @property
    def embeddings(self):
        """As `embedding_bags`, by the name that TorchRec has for tables that are not pooled."""
        return self.embedding_bags

    @property
    def embedding_bags(self):
        """The tables by name, each with `weight` and `state` as in `table`."""
        named = NamedTables()
        for config in self.tables:
            weight, state = self.table(config.name, self.rows)
            named[config.name] = SimpleNamespace(weight=weight, state=state)
        return named

    def sha256(self):
        """Digests of all rows, then of all state, group after group; after `flush`."""
        return self.contents.sha256()

    def row_states(self):
        """State of each table that has any, by name, up to date."""
        self.flush()
        return self.saved.row_states()

    def load_row_states(self, states):
        """Set the state of every table."""
        self.reset_cache_states()
        self.saved.load_row_states(states)

    @property
    def allow_fewer_rows(self):
        return self.saved.allow_fewer_rows

    @allow_fewer_rows.setter
    def allow_fewer_rows(self, value):
        self.saved.allow_fewer_rows = value

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, of_table in self._prefixes(prefix).items():
            destination[of_table + "weight"] = self.saved_weight(
                name, self.rows if keep_vars else None)
        if self.id_maps is not None:
            destination[prefix + "_extra_state"] = self.id_maps.state()

    def saved_weight(self, name, rows=None):
        """The rows of a table for a state dict, contiguous: a copy where state lies between."""
        self.flush()
        return TableView.of(self.contents.table(name)[0], self, rows, self.several_ranks,
                            partial(self.contents.contiguous, name))

    @property
    def steps(self):
        """Steps of the optimizer that were applied here."""
        return self._gradients.steps

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *arguments):
        self.reset_cache_states()
        if self.id_maps is not None:
            _, missing, _, messages = arguments
            self.id_maps.load_saved(prefix + "_extra_state", state_dict, missing, messages)
        self.saved.load(self._prefixes(prefix), state_dict, prefix, *arguments)

    def _prefixes(self, prefix):
        """The prefix of each table's keys in `state_dict`, as in TorchRec's two collections."""
        kind = "embedding_bags" if self.layout.pooled else "embeddings"
        return {config.name: f"{prefix}{kind}.{config.name}." for config in self.tables}

    def embedding_bag_configs(self):
        """The tables as TorchRec's EmbeddingBagConfigs: those given, or made of TableConfigs."""
        return self._torchrec.configs(pooled=True)

    def embedding_configs(self):
        """The tables, which are not pooled, as TorchRec's EmbeddingConfigs."""
        return self._torchrec.configs(pooled=False)

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
        for name, weights in self._torchrec.drawn():
            self.contents.assign(name, weights)

    def close(self):
        """Write back, end the threads, and close a device that the collection opened.

        The files of tables are on the disk then, and others may open them.
        """
        complete = False
        try:
            self.store.close()
            complete = True
        finally:
            for group in self.store.groups:
                group.tables.close(complete)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with suppress(*([BaseException] if kind else [])):  # the first error is the one to show
            self.close()

    def extra_repr(self):
        rows = sum(config.num_embeddings for config in self.tables)
        return f"{len(self.tables)} tables, {rows:,} rows, mode={self.mode!r}"


def _resident_copy(tables, rule, options, contents, training, trains, dtype, id_maps=None):
    """A collection without a card, with the contents of another one."""
    tables = [replace(config, path=None) for config in tables]
    copied = HotEmbeddingBagCollection(tables, None, "resident", copy(rule), initialise=False,
                                       seed=0, **options)
    for name, (weights, state) in contents.items():
        copied.contents.assign(name, weights, state)
    if copied.id_maps is not None:
        copied.id_maps.load(id_maps)
    copied._dtype = dtype
    return copied.train(training).requires_grad_(trains)


def drawn_seed():
    """A seed from PyTorch's generator, which `torch.manual_seed` fixes."""
    return int(torch.randint(1 << 62, ()))


def refuse_ranks(what, instead):
    """Raise Error in a process group of several ranks, each of which would train its own rows."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise Error(f"{what} in a process group of {dist.get_world_size()} ranks: every rank would "
                    f"train rows of its own; use {instead}")
