"""Embedding tables of any size as a PyTorch module: `HotEmbeddingBagCollection`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from ...contract.errors import Error
from ...device import Device
from ...tables import Commit
from ..features.configs import TableConfig, check_tables, table_config
from ..features.outputs import joined
from ..memory.slot_memory import memory_on
from ..optim.on_host import entries_on_host
from ..optim.rules import OptimizerName, Rule
from ..store.fitting import check_fits
from ..store.near_memory import check_near
from ..store.opening import MODES, Mode, default_mode
from ..store.options import DEFAULTS, Options
from .copies import ResidentCopy
from .eager import outside_compile, refuse_scripting
from .id_batches import TableChanges
from .named_tables import NamedTables
from .parts import Parts
from .row_optimizer import rule_of
from .saved_state import load_others
from .torchrec_tables import TorchRecTables

__all__ = ["FORWARD_HOOKS", "MODES", "HotEmbeddingBagCollection"]

Self = TypeVar("Self", bound="HotEmbeddingBagCollection")
FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs",
                 "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
_COPIED = (*FORWARD_HOOKS, "_buffers", "_non_persistent_buffers_set")


@entries_on_host
class HotEmbeddingBagCollection(nn.Module):
    """Embeddings of several tables that live in host memory, with the busy rows in slots.

    Call it with ids [samples, features], with a sequence of (indices, offsets) per feature, with
    indices and offsets of all features, one after the other, or with a KeyedJaggedTensor; the
    features of the first table come first, then those of the second, .... It returns
    float32[samples, sum of the dims], feature after feature; unpooled tables return
    float32[lookups, dim] likewise. `optimizer` trains the rows, by applying the gradients that
    backward stages; the `grad` of their parameters stays None. In `eval()`, or without gradients,
    the module reads rows where they are, counts nothing and moves nothing.

    In all modes but `hotline` final tables and state have the same bits, whatever the slots,
    policy, depth, workers and transport.

    Parameters
    ----------
    tables : sequence of TableConfig
        All pooled, or none; also TorchRec's EmbeddingBagConfigs, or EmbeddingConfigs for none.
        Without `seed`, their `init_fn` draws the rows.
    device : Device or str, optional
        An open device without tables, or a transport as in `hotrow.open`, whose device the
        collection opens and closes; by default "cpu", and none in mode "resident".
    mode : str, optional
        By default "resident" where all tables are in memory and nothing is said of a device or of
        slots, else "scratchpipe"; a log message of "hotrow.torch" says why.
        "resident": whole tables in the trainer's memory. "scratchpipe": the rows of coming batches
        get slots. "freqcache": likewise, and access counts choose the victims. "hotline": rows
        that `learn` chose have slots, all others are fetched for one batch. "near_memory": the
        tables lie on the card, which pools bags and updates rows there; on "cpu" that is
        "resident".
    optimizer : str or SGD, RowwiseAdagrad, Adagrad, Adam, PartialRowwiseAdam
        "sgd", "rowwise_adagrad", "adagrad", "adam" or "partial_rowwise_adam".
    lr : float
        Rate of an optimizer given by name.
    options : Options
        Its fields are also arguments by their names: `seed=0` is `options=Options(seed=0)`.

    Attributes
    ----------
    optimizer : RowOptimizer
    tables : list of TableConfig
    embedding_bags, embeddings : NamedTables
        The tables by name, each a `Table` with `weight` and `state`, by TorchRec's two names.
    device : torch.device
        Of the results.
    layout : FeatureLayout
        From what callers pass to checked ids.
    store : Store
        The place of the rows.
    staging : GradientStage
        Gradients of rows before a step; `steps` counts these.
    lifecycle : Lifecycle
        Between batches: `finish`, `flush`, `reset`, which empties the slots, and writes of others
        into the tables.
    batches : TrainedBatches
        Batches that were prefetched or train; `count` is the number of the next one, and `parts`
        takes one in micro-batches.
    lookups : Lookups
        Forward, also by feature.
    calls : BagCalls
        Bags of a converted model that are looked up as one batch.
    contents : TableContents
    saved : SavedState
        State dicts.
    disk : Commits
        Of tables on disk.
    cache : Cache
        Learned rows and access counts.
    id_maps : IdMaps or None
        Of tables with `ids="any"`; `forget` shortens the log of their changes.

    Raises
    ------
    Error

    Examples
    --------
    >>> tables = [TableConfig("user", 100, 4), TableConfig("item", 500, 4, pooling="mean")]
    >>> embeddings = HotEmbeddingBagCollection(
    ...     tables, "cpu", optimizer="adagrad", lr=0.1, seed=0, workers=0)
    >>> found = embeddings(torch.tensor([[7, 8], [7, 9], [3, 8]]))
    >>> found.shape
    torch.Size([3, 8])
    >>> found.sum().backward()
    >>> embeddings.optimizer.step()
    >>> embeddings.statistics["lookups"], embeddings.statistics["fills"]
    (6, 4)
    >>> embeddings.close()
    """

    several_ranks = False  # whether every rank of torch.distributed may make one

    def __init__(self, tables: Iterable[Any], device: Device | str | None = None,
                 mode: Mode | None = None, optimizer: OptimizerName | Rule = "sgd",
                 lr: float = 0.01, options: Options = DEFAULTS, **fields: Any) -> None:
        super().__init__()
        options = replace(options, **fields)
        if not self.several_ranks:
            refuse_ranks("a HotEmbeddingBagCollection", "ShardedEmbeddingBagCollection")
        if isinstance(tables, TableConfig) or not isinstance(tables, Iterable):
            raise Error(f"expected a sequence of TableConfigs, not {type(tables).__name__}")
        given = tuple(tables)
        self.tables = [table_config(each) for each in given]
        self._torchrec = TorchRecTables(self.tables, given)
        check_tables(self.tables)
        mapped = any(config.ids == "any" for config in self.tables)
        if mapped and options.cold == "pooled":
            raise Error("tables with ids='any' need cold='gathered'")
        rule = rule_of(optimizer, lr)
        if mode is None:
            mode = default_mode(self.tables, memory_on(options.slots_device), device, options)
        if mode == "near_memory":
            check_near(self.tables, rule, self.several_ranks)
        check_fits(self.tables, rule, device, options, slots=mode != "near_memory")
        self.mode, self.options = mode, options
        parts = self._assembled(self.tables, self._torchrec, device, mode, rule, options)
        self.layout, self.store, self.contents = parts.layout, parts.store, parts.contents
        self.staging, self.lifecycle, self.id_maps = parts.staging, parts.lifecycle, parts.id_maps
        self.batches, self.calls, self.lookups = parts.batches, parts.calls, parts.lookups
        self.disk, self.cache, self.saved = parts.disk, parts.cache, parts.saved
        self.device = torch.device(self.store.slot_memory.device)
        # By one of its two names, which are properties, as a module.
        self._modules[self._kind] = parts.named
        self.optimizer = parts.optimizer

    def _assembled(self, *given: Any) -> Parts:
        """The parts, from the arguments of `Parts`."""
        return Parts(*given)

    @outside_compile
    def forward(self, inputs: Any = None, offsets: Any = None, per_sample_weights: Any = None, *,
                features: Any = None) -> Any:
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
        bags = self.batches.bags(inputs, offsets, per_sample_weights)
        request, results = self.lookups.results(bags, self.training, self.train_rows)
        found = results if self.layout.pooled else self.layout.split(bags, request, results)
        return joined(self.tables, self.layout.features, bags, found, inputs)

    @property
    def _kind(self) -> str:
        return "embedding_bags" if self.layout.pooled else "embeddings"

    @property
    def embeddings(self) -> NamedTables:
        """The tables by name."""
        tables = self._modules[self._kind]
        assert isinstance(tables, NamedTables)
        return tables

    embedding_bags = embeddings

    @property
    def train_rows(self) -> bool:
        """Whether lookups train rows; errors as in `NamedTables.train_rows`."""
        return self.embeddings.train_rows

    def __prepare_scriptable__(self) -> None:
        refuse_scripting()

    def prefetch(self, inputs: Any, offsets: Any = None, per_sample_weights: Any = None) -> None:
        """Begin to fetch the rows of a batch; `forward` takes batches in the order of these calls.

        The ids are copied: the caller may overwrite them.
        """
        self.batches.prefetch(self.batches.bags(inputs, offsets, per_sample_weights))

    def gradients(self) -> list[torch.Tensor]:
        """Tensors whose `grad` are the staged gradients: for clipping, not for another optimizer.

        Returns
        -------
        list of Tensor
            One per group of tables with one dim and dtype; with cold="pooled" another per group,
            whose gradients are of bags with cold rows, each bag once, or of several batches' rows.
            In mode near_memory the host sums them by row from this call on, in place of the card.
        """
        return self.staging.inspected()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the staged gradients."""
        super().zero_grad(set_to_none)
        self.staging.clear()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies, also by pickle and `torch.save`, are resident."""
        if type(self) is not HotEmbeddingBagCollection:
            raise Error(f"a {type(self).__name__}, a subclass, cannot be copied or pickled: save "
                        f"its state_dict()")
        if any(not group.tables.in_memory for group in self.store.groups):
            raise Error("tables on disk cannot be copied or pickled: open their folder again, or "
                        "save the state_dict(), which names a commit")
        self.flush()
        copied = ResidentCopy(
            self.tables, self.optimizer.tuned_rule(), self.options, self.training,
            self.allow_fewer_rows, self.embeddings, self.optimizer.param_groups[0], self.id_maps)
        return _open_copy, (copied,), {
            **{name: getattr(self, name) for name in _COPIED}, "_modules": {
                name: each for name, each in self._modules.items() if name != self._kind}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["_modules"] = {self._kind: self.embeddings, **state["_modules"]}
        self.__dict__.update(state)

    def skip(self) -> None:
        """Drop the batch that was prefetched first, which will not be looked up."""
        self.batches.skip()

    def abandon(self) -> None:
        """Release prefetched batches that will not be trained."""
        self.calls.drop()
        self.batches.abandon()

    def learn(self, rows: Mapping[str, Any] | None = None, warmup_ratio: float | None = None,
              ids_freq_mapping: Mapping[str, Any] | None = None, *, limit: int | None = None,
              decay: int = 0) -> int:
        """Give the most accessed rows their slots, between two steps.

        Call it again to follow what is popular; in mode hotline rows that stay are not moved. All
        is checked before anything changes.

        Parameters
        ----------
        rows : mapping of str to sequence of int, optional
            Rows of each table by name, each once, the most accessed of a table first; by default
            the rows that the device has counted most.
        warmup_ratio : float, optional
            Share of the slots to fill, 0 to 1, but at least one slot: 1 in hotline, else 0.7.
        ids_freq_mapping : mapping of str to sequence of number [rows], optional
            In place of `rows`, how often each row of each table is accessed, 0 or more.
        limit : int, optional
            In place of `warmup_ratio`, the number of slots to fill.
        decay : int
            Binary places by which the device first shifts every count right, so that old lookups
            weigh less.

        Returns
        -------
        int
            Rows that have a slot.

        Raises
        ------
        BatchError
            What is given for a table is no list, array or tensor of one dimension of integers, a
            row is no row of its table, or is listed twice.
        Error
            There is no such table, a number is out of range, batches are in flight, or the
            collection is closed.
        """
        with self.lifecycle.lock:
            return self.cache.learn(rows, warmup_ratio, ids_freq_mapping, limit, decay)

    def observe(self, inputs: Any, offsets: Any = None, per_sample_weights: Any = None) -> None:
        """Let the device count the lookups of a batch that does not train."""
        self.store.observe(self.batches.request(
            self.batches.bags(inputs, offsets, per_sample_weights), use="observe"))

    @property
    def memory(self) -> dict[str, float]:
        """Bytes beside the tables, and bits of metadata per slot on the host: dict.

        `slots`, `bypass` (the bypass area), `staging` (rows on their way) and `gradients`, state
        included; `metadata` of the host, `metadata_bits_per_slot`. Empty for resident.
        """
        card = self.store.card
        return {} if card is None else {**card.memory(), "gradients": self.staging.nbytes}

    @property
    def statistics(self) -> dict[str, int]:
        """Counts of the cache: dict of `lookups`, `hits`, `fills`, `evictions`, `bypasses`,
        `rows_moved` and `link_bytes`; empty for resident.

        A hit is a lookup whose row had a slot before its batch.
        """
        return {} if self.store.statistics is None else self.store.statistics.total

    @property
    def table_statistics(self) -> dict[str, dict[str, int]]:
        """The counts of each table, without `hits` and `link_bytes`: dict by name; empty for
        resident."""
        return {} if self.store.statistics is None else self.store.statistics.by_table

    def flush(self) -> None:
        """Bring the tables' memory up to date."""
        self.lifecycle.flush()

    def sha256(self) -> str:
        """Digests of all rows, then of all state, group after group."""
        self.flush()
        return self.contents.sha256()

    @property
    def allow_fewer_rows(self) -> bool:
        """Whether loading takes tables of fewer rows, and leaves the others as they are; False at
        first."""
        return self.saved.allow_fewer_rows

    @allow_fewer_rows.setter
    def allow_fewer_rows(self, value: bool) -> None:
        self.saved.allow_fewer_rows = value

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str,
                            keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        self.saved.save_all(prefix, self._prefixes(prefix), destination, keep_vars)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str,
                              local_metadata: Any, strict: bool, missing_keys: list[str],
                              unexpected_keys: list[str], error_msgs: list[str]) -> None:
        state_dict = load_others(
            self, state_dict, prefix, local_metadata, strict, missing_keys, error_msgs)
        self.saved.load_all(prefix, self._prefixes(prefix), state_dict, strict, missing_keys,
                            unexpected_keys, error_msgs)

    def _prefixes(self, prefix: str) -> dict[str, str]:
        """The prefix of each table's keys in `state_dict`, as in TorchRec's two collections."""
        return {config.name: f"{prefix}{self._kind}.{config.name}." for config in self.tables}

    def embedding_bag_configs(self) -> list[Any]:
        """The tables as TorchRec's EmbeddingBagConfigs: those given, or made of TableConfigs."""
        return self._torchrec.configs(pooled=True)

    def embedding_configs(self) -> list[Any]:
        """The tables, which are not pooled, as TorchRec's EmbeddingConfigs."""
        return self._torchrec.configs(pooled=False)

    def embedding_dim(self) -> int:
        """Elements of a row of tables that are not pooled."""
        return self.tables[0].embedding_dim

    def is_weighted(self) -> bool:
        """Whether the weights of a KeyedJaggedTensor are used."""
        return self.layout.is_weighted

    def reset_parameters(self) -> None:
        """Draw the rows again, with PyTorch's generator or a config's `init_fn`; keep the state."""
        self.lifecycle.reset()
        for name, weights in self._torchrec.drawn():
            self.contents.assign(name, weights)

    def changes(self, since: int = 0) -> dict[str, TableChanges]:
        """Of tables with any ids, what an export lacks: see `IdMaps.changes`."""
        if self.id_maps is None:
            raise Error("changes() is for tables with ids='any', and there is none")
        return self.id_maps.changes(since)

    def commit(self, dense: Any = None, keep: str | None = None) -> int:
        """Make all steps so far, of tables on disk, the state that survives any end of the process.

        Parameters
        ----------
        dense : optional
            State dicts, tensors, numbers, strings, lists and dicts, which `open_commit` returns:
            what belongs to the rows, such as that of the dense model and its optimizer.
        keep : str, optional
            A name: the commit stays until another one has the name, or `release(keep)`. Without it
            the commit stays until the next one.

        Returns
        -------
        int
            Number of the commit.

        Raises
        ------
        Error
            No table is on disk, or the disk refuses: the last commit stands.
        """
        return self.disk.commit(dense, keep)

    def open_commit(self, number: int | None = None) -> Any:
        """Return to a commit between two steps: rows, state and ids are what they were then.

        Parameters
        ----------
        number : int, optional
            One of `commits()`; by default the open one, as it is.

        Returns
        -------
        object
            Its `dense`.
        """
        return self.disk.open(number)

    def commits(self) -> list[Commit]:
        """The commits that can be opened, ascending: those that are kept, and the last one."""
        return self.disk.all()

    def release(self, keep: str) -> None:
        """Let the commit of that name go, unless it is the last."""
        self.disk.release(keep)

    def close(self) -> None:
        """Write back, end the threads, and close a device that the collection opened.

        Tables on disk are committed, if they have changed, and others may open them. After a
        `commit` with `dense` that one stays the last, with a warning if steps followed it.
        """
        try:
            self.lifecycle.close(self.disk.save)
        finally:
            self.disk.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        with suppress(*([BaseException] if kind else [])):  # the first error is the one to show
            self.close()

    def extra_repr(self) -> str:
        rows = sum(config.num_embeddings for config in self.tables)
        return f"{len(self.tables)} tables, {rows:,} rows, mode={self.mode!r}"


def _open_copy(copied: ResidentCopy) -> HotEmbeddingBagCollection:
    """A collection without a card, with the contents of another one."""
    collection = HotEmbeddingBagCollection(copied.tables, None, "resident", copied.rule,
                                           options=copied.options)
    copied.fill(collection.contents, collection.embeddings, collection.optimizer.param_groups[0],
                collection.id_maps)
    collection.allow_fewer_rows = copied.allow_fewer_rows
    return collection.train(copied.training)


def refuse_ranks(what: str, instead: str) -> None:
    """Raise Error in a process group of several ranks, each of which would train its own rows."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise Error(f"{what} in a process group of {dist.get_world_size()} ranks: every rank would "
                    f"train rows of its own; use {instead}")
