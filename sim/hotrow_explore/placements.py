"""Placements of the tables: one function each.

Each maps a `Question` to a StepTime, or raises `DoesNotFit` with the requirement.
"""

from dataclasses import dataclass

from hotrow.contract.errors import Error
from hotrow.tables.memory import LOOKUPS, plan_memory
from hotrow.tables.table import Table

from .constants import Constants, driver_seconds
from .locality import count
from .replacement import PAGE, fetched_pages, fetched_rows
from .step_time import NS, US, Machine, StepTime
from .systems import GB, ExploreError, System
from .workloads import Workload


class DoesNotFit(ExploreError):
    """The machine lacks memory or a component of a placement."""


@dataclass(frozen=True)
class Framework:
    """Execution of operators in a training framework.

    Attributes
    ----------
    merged : bool
        One operator for all tables; else several per table.
    lock_free : bool
        The host updates rows without ordering duplicates (Hogwild).
    kernels : str
        Whose cost of an update in host memory: "core" (PyTorch's bag), "fbgemm" or "own".
    """

    merged: bool
    lock_free: bool = False
    kernels: str = "core"


FRAMEWORKS = {
    "fused": Framework(merged=True, kernels="fbgemm"),  # TorchRec, FBGEMM, HugeCTR
    "pytorch": Framework(merged=False),  # one nn.EmbeddingBag per table
    "caffe2": Framework(merged=False, lock_free=True),
}
OWN = Framework(merged=True, kernels="own")  # hotrow's


@dataclass(frozen=True)
class Question:
    """One workload on one system.

    Parameters
    ----------
    hot_bytes : float
        Bytes of rows at the trainer, for placements with a cache.
    card : Card, PublishedAccelerator or None
    why_no_card : str
        Reason without a card.
    framework : str
        One of FRAMEWORKS.
    whole : frozenset of int
        Tables that every trainer holds wholly, in placements that keep the others on the host.
    """

    workload: Workload
    system: System
    constants: Constants
    hot_bytes: float = 512 * 2**20
    card: object = None
    framework: str = "fused"
    why_no_card: str = "no card"
    whole: frozenset = frozenset()

    @property
    def machine(self):
        return Machine(self.workload, self.system, self.constants,
                       FRAMEWORKS[self.framework])

    @property
    def own_machine(self):
        """With hotrow's kernels."""
        return Machine(self.workload, self.system, self.constants, OWN)

    @property
    def hot_rows(self):
        return self.hot_bytes // self.workload.row_bytes

    def count(self, hot_rows=None, window=1):
        return count(self.workload, self.hot_rows if hot_rows is None else hot_rows, window,
                     self.whole)

    @property
    def whole_bytes(self):
        return sum(self.workload.rows[at] for at in self.whole) * self.workload.row_bytes

    @property
    def whole_share(self):
        """Share of the lookups that go to those tables."""
        lookups = self.workload.lookups
        return sum(lookups[at] for at in self.whole) / sum(lookups)

    def fetched_rows(self, held):
        """Rows that a step fetches into a memory of `held` rows."""
        if self.workload.trace is None:
            return fetched_rows(self.workload, held)
        window = int(self.constants.lookahead_window)
        return self.count(max(0, held - window * self.count(0).unique), window).fills

    def fetched_pages(self, held):
        """Pages that a step fetches into a memory of `held` pages. Of a trace, whose popular rows
        may lie together, as if each row had a page of its own."""
        if self.workload.trace is None:
            return fetched_pages(self.workload, held)
        fits = held * PAGE >= self.workload.table_bytes
        return 0.0 if fits else self.fetched_rows(held)

    def need_gpu(self):
        if not self.system.gpus:
            raise DoesNotFit(f"{self.system.title} has no GPU")

    def need_host(self):
        """The tables in host memory."""
        self._need("host memory", self.workload.table_bytes, self.system.host_memory_gb)

    def need_disk(self, times):
        """That many times the tables on the disk."""
        self._need("a disk of this system", times * self.workload.table_bytes,
                   self.system.disk_gb)

    def need_cache(self, slots_bytes):
        self._need("a GPU's memory for the hot rows", slots_bytes + self.whole_bytes,
                   self.system.gpu_memory_gb)

    def need_card(self):
        if self.card is None:
            raise DoesNotFit(self.why_no_card)
        if not self.system.takes_card:
            raise DoesNotFit(f"{self.system.title} takes no card")

    def _need(self, where, octets, has_gb):
        usable = self.constants.usable_memory * has_gb
        if octets > usable * GB:
            raise DoesNotFit(f"does not fit {where}: needs {octets / GB:.1f} GB, "
                             f"{usable:.1f} usable")


def cpu(question):
    """Tables and dense part on the host."""
    question.need_host()
    m, work = question.machine, question.workload
    unique = question.count(0).unique if m.system.rates else 0.0
    forward, update = m.host_embedding(work.step_lookups, unique=unique)
    return StepTime(({"host": m.cpu_dense() | {"embedding": forward, "update": update}},))


def resident(question):
    """hotrow's kernels on tables in host memory; the dense part on the GPUs, or on the host where
    that is faster."""
    question.need_host()
    return _on_rows(question, question.own_machine)


def disk(question):
    """hotrow's tables on a disk: slots and the last evicted rows in host memory, divided by
    `plan_memory`, rows of coming batches read with a deep queue, evicted rows appended to a log."""
    m, c, work = question.own_machine, question.constants, question.workload
    question.need_disk(c.log_capacity)
    row = work.row_bytes
    limit = int(c.usable_memory * question.system.host_memory_gb * GB)
    tables = [Table(str(number), rows, work.dim) for number, rows in enumerate(work.rows)]
    try:
        plan = plan_memory(limit, tables)
        if (fetched := int(question.fetched_rows(plan.slots))) > LOOKUPS:
            plan = plan_memory(limit, tables, fetched)
    except Error as wrong:
        raise DoesNotFit(f"does not fit host memory: {wrong}") from None
    evicted = question.fetched_rows(plan.slots)
    requests = (question.fetched_rows(plan.slots + plan.tail // (row + 8))
                + evicted * (row + 4) * c.log_written / c.log_write_bytes)
    cores = m.cores(c.row_parallel)
    return _on_rows(
        question, m, {"plan": work.step_lookups * c.engine_plan_ns * NS / cores,
                      "log": evicted * c.disk_row_us * US / cores},
        {"driver": {"driver": driver_seconds(work.step_lookups, c)},
         "disk": {"disk": requests / (1e3 * c.disk_fraction * question.system.disk_kreads)}})


def mapped(question):
    """The framework's bags on a file in mapped memory, whose pages the system reads on demand."""
    question.need_disk(1)
    m, c = question.machine, question.constants
    pages = c.usable_memory * question.system.host_memory_gb * GB // PAGE
    faults = question.fetched_pages(pages)
    waits = max(faults * c.fault_us * US / m.system.cores,
                2 * faults / (1e3 * question.system.disk_kreads))
    return _on_rows(question, m, {"faults": waits})


def _on_rows(question, m, host=None, tracks=None):
    """A step on rows in host memory with the kernels of `m`; `host` has more parts of the host's
    cores, `tracks` those of others."""
    work, more = question.workload, host or {}
    unique = question.count(0).unique if m.system.rates else 0.0
    forward, update = m.host_embedding(work.step_lookups, unique=unique)
    rows = {"embedding": forward, "update": update}
    steps = [StepTime(({"host": m.cpu_dense() | rows | more} | (tracks or {}),))]
    if question.system.gpus:
        parts = (m.gpu_dense(tables=0) | m.all_reduce() | rows | more
                 | {"host operators": m.host_launch(), "link": 2 * m.link(work.pooled_bytes)})
        steps.append(StepTime(({"all": parts} | (tracks or {}),)))
    return min(steps, key=lambda step: step.seconds)


def gpu_tables(question):
    """Whole tables spread over the GPUs' memories, pooled rows exchanged."""
    question.need_gpu()
    m, work, gpus = question.machine, question.workload, question.system.gpus
    sizes, load = [0.0] * gpus, [0.0] * gpus
    for rows, lookups in sorted(zip(work.rows, work.lookups, strict=True), reverse=True):
        at = min(range(gpus), key=lambda gpu: (sizes[gpu], load[gpu]))
        sizes[at] += rows * work.row_bytes
        load[at] += lookups
    question._need("one GPU's memory", max(sizes), question.system.gpu_memory_gb)
    return _on_gpus(m, max(load) / sum(load), work.pooled_bytes, -(-work.tables // gpus))


def gpu_rows(question):
    """Rows of every table spread over the GPUs' memories; partial sums exchanged, or rows that are
    not pooled."""
    question.need_gpu()
    m, work, gpus = question.machine, question.workload, question.system.gpus
    question._need("one GPU's memory", work.table_bytes / gpus, question.system.gpu_memory_gb)
    sums = gpus if work.pooled else 1  # of each bag
    return _on_gpus(m, 1 / gpus, work.pooled_bytes * sums, work.tables)


def _on_gpus(m, busiest, octets, tables):
    work = m.work
    parts = (m.gpu_dense(tables=tables) | m.gpu_embedding(work.step_lookups, busiest)
             | m.all_reduce())
    if m.system.gpus > 1:
        parts["all-to-all"] = m.exchange(8 * work.step_lookups) + 2 * m.exchange(octets)
    return StepTime(({"gpu": parts | m.inputs()},))


def hybrid(question):
    """Tables on the host, those of `whole` and the dense part on the GPUs."""
    question.need_gpu()
    question.need_host()
    question.need_cache(0)
    m, work, held = question.machine, question.workload, len(question.whole)
    lookups = (1 - question.whole_share) * work.step_lookups
    held_share = held / work.tables if work.pooled else question.whole_share
    unique = question.count(0).unique if m.system.rates else 0.0
    forward, update = m.host_embedding(lookups, unique=unique)
    parts = m.gpu_dense(tables=held) | m.all_reduce() | {
        "embedding": forward, "update": update, "host operators": m.host_launch(),
        "link": 2 * m.link((1 - held_share) * work.pooled_bytes)}
    if held:
        parts |= m.replicas(question.whole_share) | {
            "GPU embedding": m.gpu_embedding(work.step_lookups - lookups)["embedding"]}
    return StepTime(({"all": parts},))


def parameter_servers(question):
    """Tables on parameter servers; updates are asynchronous, so everything overlaps."""
    system, m, work = question.system, question.machine, question.workload
    if not system.parameter_servers:
        raise DoesNotFit(f"{system.title} has no parameter servers")
    question._need("the servers' memory", work.table_bytes,
                   system.parameter_servers * system.host_memory_gb)
    forward, update = m.host_embedding(work.step_lookups, system.parameter_servers)
    dense = m.gpu_dense(tables=0) | m.all_reduce() if system.gpus else m.cpu_dense()
    if not system.gpus and m.framework.lock_free:
        del dense["launch"]  # threads with a batch each hide the launches
    return StepTime(({"trainer": dense, "servers": {"embedding": forward, "update": update},
                      "wire": {"network": m.network(8 * work.step_lookups
                                                    + 2 * work.pooled_bytes)}},))


def static_cache(question):
    """A fixed set of hot rows on every GPU; the host looks up and updates the others."""
    question.need_gpu()
    question.need_host()
    question.need_cache(question.hot_rows * question.workload.row_bytes)
    m, work = question.machine, question.workload
    seen = question.count()
    hits = seen.hit_rate
    forward, update = m.host_embedding((1 - hits) * work.step_lookups, unique=seen.misses)
    return StepTime(({"all": m.gpu_dense() | m.all_reduce()
                      | m.gpu_embedding(hits * work.step_lookups) | m.inputs() | m.replicas(hits)
                      | {"host embedding": forward, "host update": update,
                         "host operators": m.host_launch(),
                         "link": 2 * m.link(min(work.pooled_bytes, (1 - hits) * work.step_lookups
                                                * work.row_bytes))}},))


def fae(question):
    """Samples of hot rows train on the GPUs, the others as in the hybrid; sorted in advance."""
    question.need_cache(question.hot_rows * question.workload.row_bytes)
    cold = hybrid(question)
    popular, m = question.count().popular, question.machine
    parts = (m.gpu_dense() | m.gpu_embedding(m.work.step_lookups) | m.all_reduce() | m.replicas()
             | m.inputs())
    hot = {f"hot {name}": popular * value for name, value in parts.items()}
    return StepTime(({"hot": hot}, {"cold": {
        name: (1 - popular) * value for name, value in cold.parts.items()}}))


def hotline(question):
    """Popular samples train while the card gathers the missing rows of the others."""
    question.need_gpu()
    question.need_host()
    question.need_card()
    m, work, card = question.machine, question.workload, question.card
    hot_rows = min(question.hot_rows, card.slots)
    question.need_cache(hot_rows * work.row_bytes)
    seen = question.count(hot_rows)
    octets = seen.misses * work.row_bytes
    launches = (1 + question.constants.split_ops) / 2 if 0 < seen.popular < 1 else 1.0
    first = m.gpu_dense(seen.popular, launches) if seen.popular else {}
    second = m.gpu_dense(1 - seen.popular, launches) if seen.popular < 1 else {}
    driver = {"driver": card.driver_seconds(work.step_lookups, question.constants)}
    mover = {"card": card.lookup_seconds(work.step_lookups),
             "gather": 2 * max(octets / (card.memory_gbps * 1e9),
                               octets / (question.system.host_memory_gbps * 1e9)),
             "link": 2 * max(m.link(octets), octets / (card.link_gbps * 1e9))}
    popular = m.gpu_embedding(seen.popular * work.step_lookups)["embedding"]
    rest = m.gpu_embedding((1 - seen.popular) * work.step_lookups)["embedding"]
    return StepTime((
        {"trainer": m.inputs() | first | {"embedding": popular}, "card": mover, "driver": driver},
        {"trainer": second | {"embedding": rest} | m.all_reduce() | m.replicas(seen.hit_rate)}))


def scratchpipe(question):
    """A cache that is filled with the rows of coming batches; all stages overlap."""
    question.need_card()
    m, card, lookups = question.machine, question.card, question.workload.step_lookups
    fills, train = _look_ahead(question, min(question.hot_rows, card.slots))
    octets = fills * question.workload.row_bytes
    return StepTime(({
        "trainer": train, "driver": {"driver": card.driver_seconds(lookups, question.constants)},
        "card": {"card": card.lookup_seconds(lookups)},
        "host": {"gather": 0.0 if card.moves_rows else 2 * m.host_copy(fills)},
        "link": {"link": max(m.link(octets), 2 * octets / (card.link_gbps * 1e9))}},))


def software(question):
    """The same cache without a card: the compiled engine plans and moves rows on the host's
    cores."""
    m, c, lookups = question.machine, question.constants, question.workload.step_lookups
    fills, train = _look_ahead(question, question.hot_rows)
    plan = lookups * c.engine_plan_ns * NS / m.cores(c.row_parallel)
    return StepTime(({
        "trainer": train, "driver": {"driver": driver_seconds(lookups, c)},
        "cores": {"plan": plan, "gather": 2 * m.host_copy(fills)},
        "link": {"link": m.link(fills * question.workload.row_bytes)}},))


def _look_ahead(question, slots):
    """Rows that a step fetches into so many slots, and the trainer's parts of the step."""
    question.need_gpu()
    question.need_host()
    m, work = question.machine, question.workload
    question.need_cache(slots * work.row_bytes)
    window = int(question.constants.lookahead_window)
    held = window * question.count(0).unique
    if held > slots:
        raise DoesNotFit(f"does not fit the slots: {window} batches touch up to {held:,.0f} "
                         f"rows, {slots:,.0f} slots")
    return question.count(slots - held, window).fills, (
        m.gpu_dense() | m.gpu_embedding(work.step_lookups) | m.all_reduce() | m.replicas()
        | m.inputs())


def prefetching_cache(question):
    """TorchRec's prefetching pipeline: a cache on the GPU, whose kernels find the rows of the
    next batch and read them from host memory over the link while a batch trains."""
    m, work, c = question.machine, question.workload, question.constants
    fills, train = _look_ahead(question, question.hot_rows)
    train |= {"cache": c.cache_kernel_ns * work.step_lookups / question.system.gpus * NS}
    return StepTime(({"trainer": train, "link": {
        "link": m.link(fills * work.row_bytes / c.zero_copy_fraction)}},))


def near_memory(question):
    """Tables in the card's own memory, which pools and updates every row: only pooled rows and
    their gradients cross the link. Nothing of the next batch is pooled before the update.

    Rows that are not pooled are bags of one row: each crosses the link, and so does its gradient.
    """
    question.need_card()
    m, work, card = question.machine, question.workload, question.card
    question._need("the card's memory", work.table_bytes, card.memory_gb)
    lookups, dim = work.step_lookups, work.dim
    wire = {"link": m.constants.link_us * US + work.pooled_bytes / (card.link_gbps * 1e9)}
    rows = lookups * work.row_bytes / (card.memory_gbps * 1e9)
    # The host sends ids for POOL ahead, and groups them for UPDATE in the step.
    ahead = card.driver_seconds(0, m.constants) + lookups * m.constants.near_ahead_ns * NS
    unique = question.count(0).unique
    octets = 8 * lookups + 10 * unique  # ids, bags; rows and their counts
    trainer = (m.gpu_dense(tables=0) | m.all_reduce() if question.system.gpus else m.cpu_dense())
    return StepTime((
        {"pool": {"pool": max(rows, card.arithmetic_seconds(lookups, dim))}, "link": wire},
        {"trainer": trainer, "lists": {"lists": octets / (card.link_gbps * 1e9)},
         "driver": {"driver": ahead}},
        {"host lists": {"host lists": lookups * m.constants.near_step_ns * NS}},
        {"update": {"update": max(2 * rows, card.arithmetic_seconds(lookups + unique, dim))},
         "gradients": {"gradients": sum(wire.values())}}))


def frequency_cache(question):
    """A software cache with rows ranked by frequency; misses are copied before the step."""
    question.need_gpu()
    question.need_host()
    question.need_cache(question.hot_rows * question.workload.row_bytes)
    m, work, c = question.machine, question.workload, question.constants
    seen = question.count()
    octets = seen.fills * work.row_bytes
    # HBM bounds tensor operators on ids.
    admin = c.cache_admin_bytes * work.step_lookups / question.system.gpus / (
        1e9 * question.system.gpu_memory_gbps)
    return StepTime(({"all": m.gpu_dense() | m.gpu_embedding(work.step_lookups)
                      | m.all_reduce() | m.replicas()
                      | {"cache": admin, "gather": 2 * m.host_copy(seen.fills),
                         "link": 2 * m.link(octets)} | m.inputs()},))


def managed_memory(question):
    """Tables in unified memory: the rows that fit stay on the GPU, pages of the others move on
    demand."""
    question.need_gpu()
    question.need_host()
    m, work, c = question.machine, question.workload, question.constants
    space = c.usable_memory * question.system.gpu_memory_gb * GB
    resident = min(sum(work.rows), space // work.row_bytes)
    seen = question.count(resident)
    parts = (m.gpu_dense() | m.gpu_embedding(work.step_lookups) | m.inputs() | m.all_reduce()
             | m.replicas())
    if seen.misses:
        parts["pages"] = 2 * m.link(seen.misses * max(c.uvm_page_bytes, work.row_bytes))
    return StepTime(({"all": parts},))


WITHOUT_CARD = {
    "cpu": cpu, "gpu-tables": gpu_tables, "gpu-rows": gpu_rows, "hybrid": hybrid,
    "parameter-servers": parameter_servers, "managed-memory": managed_memory,
    "static-cache": static_cache, "fae": fae, "frequency-cache": frequency_cache,
    "prefetching-cache": prefetching_cache, "software": software, "resident": resident,
    "disk": disk, "mapped": mapped,
}
OURS = ("software", "resident", "disk")  # hotrow without a card
WITH_CARD = {"hotline": hotline, "scratchpipe": scratchpipe, "near-memory": near_memory}
PLACEMENTS = WITHOUT_CARD | WITH_CARD
