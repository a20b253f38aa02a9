"""Training on tables that are larger than memory, by this package and by its peers."""

import mmap
import os
import signal
import time
from pathlib import Path

import hotrow
import numpy as np
import torch
from hotrow.tables import Store, Table, open
from hotrow.torch import HotEmbeddingBagCollection, Options, TrainPipeline
from hotrow.torch.training.dlrm import DLRM

from .disk_files import HEADER, LR, bag_file, config, rocksdb_options
from .disk_ids import ZipfBatches, batches, coprime, features
from .disk_projected import projected
from .plan_native import NativePlanner, load

_DENSE = 13  # features beside those of the table
_OWN = 4096  # rows of a ticket, of which four are on their way
_OF_A_STEP = ("requests", "rows_fetched", "tail_hits", "bytes_written", "bytes_trained",
              "rows_moved")


class Clock:
    """Counts steps, processor time and reads of the process after a warm-up."""

    def __init__(self, options):
        self._warm_up, self._seconds, self._begin = (
            options.warm_up, options.seconds, time.perf_counter())
        self._first = None
        self.steps = self._total = 0

    def tick(self):
        """Count a step; whether the time is over."""
        now = time.perf_counter()
        self._total += 1
        if self._first is None:
            if now - self._begin >= self._warm_up:
                self._first, self._read, self._cpu = now, _io("read_bytes"), time.process_time()
                self._written = _io("write_bytes")
            return False
        self.steps, self.elapsed = self.steps + 1, now - self._first
        return self.elapsed >= self._seconds

    @property
    def figures(self):
        return {
            "steps_per_s": self.steps / self.elapsed, "steps": self.steps,
            "warm_up_steps": self._total - self.steps,
            "cpu_ms_per_step": 1e3 * (time.process_time() - self._cpu) / self.steps,
            "pages_read_per_step": (_io("read_bytes") - self._read) / 4096 / self.steps,
            "bytes_written_per_step": (_io("write_bytes") - self._written) / self.steps}


def _io(name):
    return int(Path("/proc/self/io").read_text().split(f"{name}:")[1].split()[0])


class Dense:
    """What follows the embeddings of a batch: a DLRM, or with a scale of 0 their sum."""

    def __init__(self, options):
        self._shape, self._model = (-1, features(options), options.dim), None
        if options.dense:
            torch.manual_seed(0)
            self._model = DLRM(_DENSE, features(options), options.dim, options.dense)
            self._optimizer = torch.optim.SGD(self._model.parameters(), LR)

    def step(self, pooled):
        """Backward, and the model's own update."""
        if self._model is None:
            pooled.sum().backward()
            return
        pooled = pooled.view(self._shape)
        logits = self._model(torch.zeros(len(pooled), _DENSE), pooled)
        torch.nn.functional.binary_cross_entropy_with_logits(
            logits, torch.zeros_like(logits)).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


def rehearse(options):
    """Two steps without tables, for what else the process needs."""
    dense = Dense(options)
    for _ in range(2):
        dense.step(torch.zeros(options.samples * options.features, options.dim, requires_grad=True))


def last_used(options):
    """File of the rows of `learned` batches before the first, the last used ones first."""
    path = Path(options.folder) / f"learned-{options.learned}.npy"
    if not path.exists():
        used = np.zeros(options.rows, np.int32)
        past = ZipfBatches(options.rows, options.samples, options.features, options.slope, 2)
        for number, ids in zip(range(1, options.learned + 1), past, strict=False):
            used[ids] = number
        rows = np.argsort(-used)
        np.save(path, rows[used[rows] > 0])
    return path


class Disk:
    """Mode scratchpipe, with the table on disk."""

    def __init__(self, options):
        path = Path(options.folder) / ("trained" if options.base else "tables")
        begin, self._device = time.perf_counter(), None
        if options.memory is None:
            self._device = hotrow.open("cpu", slots=options.slots)
        self.collection = HotEmbeddingBagCollection(
            [config(options, path)], self._device, "scratchpipe", "sgd", LR,
            options=Options(seed=0, depth=options.depth, workers=options.workers))
        self.opened_s, self._options = time.perf_counter() - begin, options
        self.store = self.collection.disk.disk.store
        self.learned = self._learn(options) if options.learned else 0

    def _learn(self, options):
        """Give slots to the rows that were used last in batches before the first, as trained ones:
        they are written when they leave. Those before them go to the end of the log. The number
        of all."""
        storage, plan = self.collection.store.storages[0], self.collection.disk.disk.plan
        known, first = np.load(last_used(options), mmap_mode="r"), storage.slots
        last = min(len(known), first + plan.tail // (4 * options.dim + 16)) if plan else first
        view = self.store.rows(["table"], [0])
        values = np.full((_OWN, options.dim), 0.01, np.float32)
        for begin in range(last, first, -_OWN):
            view.append(known[max(first, begin - _OWN):begin], values)
        rows = known[:first]
        # In the order of `fill`, so that a block is read once.
        place = pow(coprime(options.rows, 0.382), -1, options.rows)
        rows = rows[np.argsort(rows * place % options.rows)]
        found = self.collection.learn({"table": rows}, limit=len(rows))
        storage.dirty[storage.resident_slots] = True
        return found + max(0, last - first)

    def train(self, over):
        """Train until `over()` after a step: steps, and the store's figures before and after
        the last of them that are counted."""
        dense, collection = Dense(self._options), self.collection
        with TrainPipeline(batches(self._options), collection,
                           inputs=lambda ids: ids) as pipeline:
            for ids in pipeline:
                dense.step(collection(ids))
                collection.optimizer.step()
                collection.optimizer.zero_grad()
                if over():
                    return

    def close(self):
        """Seconds, and bytes that it wrote: it commits the slots that changed."""
        before, begin = _io("write_bytes"), time.perf_counter()
        self.collection.close()
        seconds = time.perf_counter() - begin
        if self._device is not None:
            self._device.close()
        return {"close_s": seconds, "close_bytes": _io("write_bytes") - before}


def hotrow_disk(options):
    """Steps, and figures of the store by step."""
    run, clock = Disk(options), Clock(options)
    before = run.store.figures()

    def over():
        nonlocal before
        if not clock.steps:
            before = run.store.figures()
        return clock.tick()
    run.train(over)
    after, figures = run.store.figures(), clock.figures
    figures["reads_in_flight"] = (after["read_seconds"] - before["read_seconds"]) / clock.elapsed
    figures |= {} if options.text else own_rate(options, run)
    found = {name: (after[name] - before[name]) / clock.steps for name in _OF_A_STEP}
    plan = run.collection.disk.disk.plan
    return (figures | found | {"requests_per_row": found["requests"] / found["rows_fetched"],
                               "memory_plan": plan and str(plan), "opened_s": run.opened_s,
                               "learned": run.learned}
            | (projected(options) if plan and not options.text else {})
            | run.close() | {"resident_bytes": _resident()})


def own_rate(options, run, seconds=10):
    """What the disk gives for the same blocks with nothing else: rows that would be fetched for
    other batches of the same kind, whose rows have no slots, by the store's own reads.

    It follows the run, so that what the disk itself keeps in a cache is the same.
    """
    view, storage = run.store.rows(["table"], [0]), run.collection.store.storages[0]
    coming = iter(ZipfBatches(options.rows, options.samples, options.features, options.slope, 1))
    parts = []
    for _ in range(100):
        flat = torch.unique(next(coming))
        where, _ = storage.find(flat)
        missing = torch.ones(len(flat), dtype=torch.bool)
        missing[where] = False
        parts.append(flat[missing])
    flat = torch.unique(torch.cat(parts))
    if len(flat) < 16 * _OWN:
        return {}
    flat = flat[torch.randperm(len(flat))].numpy()
    out, tickets = np.empty((_OWN, options.dim), np.float32), []
    before, begin = run.store.figures(), time.perf_counter()
    for first in range(0, len(flat), _OWN):
        tickets.append(view.begin(flat[first:first + _OWN]))
        if len(tickets) == 4:
            view.finish(tickets.pop(0), out)
        if time.perf_counter() - begin > seconds:
            break
    while tickets:
        view.finish(tickets.pop(0), out)
    after, elapsed = run.store.figures(), time.perf_counter() - begin
    return {"own_reads_per_s": (after["requests"] - before["requests"]) / elapsed,
            "own_reads_in_flight": (after["read_seconds"] - before["read_seconds"]) / elapsed}


def _resident():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def checkpoint(options, steps=100):
    """A commit after some steps; then the process ends by a signal, some steps later."""
    run, counted = Disk(options), 0

    def over():
        nonlocal counted
        counted += 1
        return counted % steps == 0
    run.train(over)
    run.collection.commit()
    run.train(over)
    before, begin = _io("write_bytes"), time.perf_counter()
    run.collection.commit()
    found = {"commit_s": time.perf_counter() - begin, "steps": steps,
             "commit_bytes": _io("write_bytes") - before, "opened_s": run.opened_s}
    run.train(over)
    yield found
    os.kill(os.getpid(), signal.SIGKILL)


def opening(options):
    """Seconds until tables are there to train, and until a reader has its first rows."""
    run = Disk(options)
    run.collection.abandon()
    found = {"opened_s": run.opened_s} | run.close()
    begin = time.perf_counter()
    with open(Path(options.folder) / ("trained" if options.base else "tables")) as reader:
        reader.rows("table", np.arange(1000))
    return found | {"reader_s": time.perf_counter() - begin}


def bag(options):
    """`nn.EmbeddingBag` with sparse gradients and SGD, on pages that the system does not expect to
    follow one another: else it reads megabytes for a row."""
    path = bag_file(options)
    with path.open("r+b") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        memory = mmap.mmap(file.fileno(), 0)
    memory.madvise(mmap.MADV_RANDOM)
    weight = torch.from_numpy(np.frombuffer(memory, np.float32, options.rows * options.dim,
                                            HEADER if options.base else 0))
    module = torch.nn.EmbeddingBag.from_pretrained(weight.view(-1, options.dim), freeze=False,
                                                   mode="sum", sparse=True)
    optimizer = torch.optim.SGD(module.parameters(), LR)
    return _train(options, lambda ids: module(ids.reshape(-1, 1)), optimizer)


def memory(options):
    """Mode resident."""
    options.memory = None
    collection = HotEmbeddingBagCollection([config(options, None)], None, "resident", "sgd", LR,
                                           options=Options(seed=0))
    return _train(options, collection, collection.optimizer)


def _train(options, embed, optimizer):
    dense, clock = Dense(options), Clock(options)
    for ids in batches(options):
        dense.step(embed(ids))
        optimizer.step()
        optimizer.zero_grad()
        if clock.tick():
            return clock.figures | {"resident_bytes": _resident()}
    return {}


def rocksdb(options):
    """Rows of a batch by multi_get, and their new values by one batch of writes without a log."""
    from rocksdict import Rdict, WriteBatch, WriteOptions

    rows, dim = Rdict(str(Path(options.folder) / "rocksdb"), rocksdb_options()), options.dim
    settings, dense, clock = WriteOptions(), Dense(options), Clock(options)
    settings.disable_wal = True
    for ids in batches(options):
        distinct, where = torch.unique(ids, return_inverse=True)
        keys = distinct.numpy().astype(">u8").tobytes()
        keys = [keys[at:at + 8] for at in range(0, len(keys), 8)]
        weight = torch.frombuffer(bytearray(b"".join(rows[keys])), dtype=torch.float32)
        weight = weight.view(-1, dim).requires_grad_()
        dense.step(torch.nn.functional.embedding(where, weight))
        trained, batch = (weight.detach() - LR * weight.grad).numpy(), WriteBatch(raw_mode=True)
        for key, row in zip(keys, trained, strict=True):
            batch[key] = row.tobytes()
        rows.write(batch, settings)
        if clock.tick():
            return clock.figures | {"resident_bytes": _resident()}
    return {}


def wear(options):
    """Bytes that the log writes for rows that leave their slots, with cleaning, without commits."""
    rows, folder = options.rows, Path(options.folder) / "wear"
    slots, width = options.slots, 4 * options.dim
    table = Table("table", rows, options.dim)
    planner = NativePlanner(load(), rows, slots, options.samples * options.features)
    with Store(folder, [table]) as store:
        view, step = store.rows(["table"], [0]), coprime(rows, 0.382)
        values = np.random.default_rng(0).random((1 << 16, options.dim), np.float32)
        for first in range(0, rows, 1 << 16):
            flat = np.arange(first, min(first + (1 << 16), rows)) * step % rows
            view.append(flat, values)
        left, before = 0, store.figures()
        for number, ids in enumerate(ZipfBatches(rows, options.samples, options.features,
                                                 options.slope)):
            found = planner.plan(ids.numpy().reshape(-1), number, number - 1)
            view.append(found.evicted, values)
            left += len(found.evicted)
            if left < 3 * rows:
                before, counted = store.figures(), left
            elif left >= 4 * rows:
                break
        after = store.figures()
    wrote, trained = (after[name] - before[name] for name in ("bytes_written", "bytes_trained"))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return {"written_per_byte": wrote / trained, "rows_left": left - counted, "row_bytes": width,
            "steps": number, "moved_per_row": (after["rows_moved"] - before["rows_moved"])
            / (left - counted)}
