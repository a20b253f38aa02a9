"""Steps a second on a table that is larger than memory, beside others.

    python -m benchmarks.disk fill --folder FOLDER
    python -m benchmarks.disk hotrow --folder FOLDER
    python -m benchmarks.disk bag --folder FOLDER
    python -m benchmarks.disk rocksdb --folder FOLDER
    python -m benchmarks.disk memory --folder FOLDER
    python -m benchmarks.disk disk --folder FOLDER

`fill` trains every row once, so that all are in the log: else rows that were never trained are
drawn, and need no read. `hotrow` is mode scratchpipe with the table on disk. `bag` is
`nn.EmbeddingBag` on a file in mapped memory, `rocksdb` reads and writes the rows of a batch with
`rocksdict`, `memory` is mode resident, and `disk` is the rate of reads of 4 KiB by 32 threads. Run
the first ones under a limit of memory:
`--limit 640M` makes a group for it where this user may, else use `systemd-run --scope -p
MemoryMax=640M`. Without one the system keeps the whole file in memory.
"""

import argparse
import json
import mmap
import os
import threading
import time
from math import gcd
from pathlib import Path

import hotrow
import numpy as np
import torch
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, TrainPipeline

_LR = 0.01


class Batches:
    """Endless batches of ids by Zipf's law, the popular ones all over the table.

    Parameters
    ----------
    rows, samples, features, seed : int
    slope : float
    """

    def __init__(self, rows, samples, features, slope, seed=0):
        self._rows, self._shape, self._slope = rows, (samples, features), slope
        self._draw, self._step = np.random.default_rng(seed), int(rows * 0.618) | 1
        while gcd(self._step, rows) != 1:
            self._step += 2

    def __iter__(self):
        while True:
            u = self._draw.random(self._shape)
            if self._slope == 1:
                rank = self._rows**u
            else:  # the inverse of the integral of x**-slope from 1 to rows
                power = 1 - self._slope
                rank = (1 + u * (self._rows**power - 1))**(1 / power)
            rank = np.minimum(rank.astype(np.int64), self._rows) - 1
            yield torch.from_numpy(rank * self._step % self._rows)


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


def _config(options, path):
    return TableConfig("table", options.rows, options.dim, path=path,
                       feature_names=[f"f{number}" for number in range(options.features)])


def _batches(options):
    return Batches(options.rows, options.samples, options.features, options.slope)


def hotrow_disk(options):
    """Mode scratchpipe, with the table on disk."""
    folder = Path(options.folder) / "tables"
    with hotrow.open("cpu", slots=options.slots) as device, HotEmbeddingBagCollection(
            [_config(options, folder)], device, "scratchpipe", "sgd", _LR, seed=0,
            depth=options.depth, workers=options.workers) as collection:
        clock, store = Clock(options), collection.disk.disk.store
        with TrainPipeline(_batches(options), collection, inputs=lambda ids: ids) as pipeline:
            before = store.figures()
            for ids in pipeline:
                collection(ids).sum().backward()
                collection.optimizer.step()
                collection.optimizer.zero_grad()
                if not clock.steps:
                    before = store.figures()
                if clock.tick():
                    break
            found = {name: (each - before[name]) / clock.steps
                     for name, each in store.figures().items()
                     if name in ("requests", "rows_fetched", "tail_hits", "bytes_written",
                                 "bytes_trained", "rows_moved")}
            figures = clock.figures
        begin = time.perf_counter()
        collection.commit()
        found["commit_s"] = time.perf_counter() - begin
    return figures | found | {"resident_bytes": _resident()}


def fill(options, chunk=1 << 20):
    """Append every row in an order that is not theirs, and commit."""
    folder, begin = Path(options.folder) / "tables", time.perf_counter()
    with HotEmbeddingBagCollection([_config(options, folder)], "cpu", "scratchpipe", "sgd", _LR,
                                   seed=0) as collection:
        rows, step = collection.store.groups[0].tables.disk, int(options.rows * 0.382) | 1
        while gcd(step, options.rows) != 1:
            step += 2
        for first in range(0, options.rows, chunk):
            flat = torch.arange(first, min(first + chunk, options.rows)) * step % options.rows
            trained = rows.kind.allocate(len(flat))
            trained.array.fill_(0.01)
            rows.append(flat, trained)
        collection.commit()
        seconds = time.perf_counter() - begin
        return {"rows_per_s": options.rows / seconds, "seconds": seconds,
                **rows.store.figures()}


def _resident():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def bag(options):
    """`nn.EmbeddingBag` with sparse gradients and SGD, on pages that the system does not expect to
    follow one another: else it reads megabytes for a row."""
    path, size = Path(options.folder) / "bag", options.rows * options.dim * 4
    if not path.exists():
        rows = np.random.default_rng(0)
        with open(path, "wb") as file:
            for _ in range(0, size, 1 << 26):
                file.write(rows.random(1 << 24, np.float32).data)
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        memory = mmap.mmap(file.fileno(), 0)
    memory.madvise(mmap.MADV_RANDOM)
    weight = torch.from_numpy(np.frombuffer(memory, np.float32, options.rows * options.dim))
    module = torch.nn.EmbeddingBag.from_pretrained(weight.view(-1, options.dim), freeze=False,
                                                   mode="sum", sparse=True)
    return _train(options, module)


def memory(options):
    """Mode resident."""
    collection = HotEmbeddingBagCollection([_config(options, None)], None, "resident", "sgd", _LR,
                                           seed=0)
    return _train(options, collection, collection.optimizer)


def _train(options, module, optimizer=None):
    if optimizer is None:
        optimizer, shape = torch.optim.SGD(module.parameters(), _LR), (-1, 1)
    else:
        shape = (options.samples, options.features)
    clock = Clock(options)
    for ids in _batches(options):
        module(ids.reshape(shape)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if clock.tick():
            return clock.figures
    return {}


def rocksdb(options):
    """Rows of a batch by multi_get, and their new values by one batch of writes."""
    from rocksdict import Options, Rdict, WriteBatch

    settings = Options(raw_mode=True)
    rows, dim, clock = Rdict(str(Path(options.folder) / "rocksdb"), settings), options.dim, None
    start = np.zeros(dim, np.float32).tobytes()
    clock = Clock(options)
    for ids in _batches(options):
        distinct, where = torch.unique(ids, return_inverse=True)
        keys = [int(each).to_bytes(8, "little") for each in distinct]
        found = [start if each is None else each for each in rows[keys]]
        weight = torch.frombuffer(bytearray(b"".join(found)), dtype=torch.float32)
        weight = weight.view(-1, dim).requires_grad_()
        torch.nn.functional.embedding(where, weight).sum().backward()
        trained, batch = (weight.detach() - _LR * weight.grad).numpy(), WriteBatch(raw_mode=True)
        for key, row in zip(keys, trained, strict=True):
            batch[key] = row.tobytes()
        rows.write(batch)
        if clock.tick():
            return clock.figures
    return {}


def disk(options, depth=32, seconds=5.0):
    """Reads of 4 KiB a second at random places of the largest file, past the system's cache."""
    path = max((each for each in Path(options.folder).rglob("*") if each.is_file()),
               key=lambda each: each.stat().st_size)
    pages, counts = os.path.getsize(path) // 4096, [0] * depth
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    end = time.perf_counter() + seconds

    def read(worker):
        draw, page = np.random.default_rng(worker), mmap.mmap(-1, 4096)
        while time.perf_counter() < end:
            os.preadv(handle, [page], int(draw.integers(pages)) * 4096)
            counts[worker] += 1

    threads = [threading.Thread(target=read, args=(worker,)) for worker in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(handle)
    return {"reads_per_s": sum(counts) / seconds}


def limited(size):
    """Move this process to a group with so many bytes of memory, the pages of its files included.
    """
    groups = Path("/sys/fs/cgroup")
    first = groups / "memory" if (groups / "memory").is_dir() else groups
    name = "memory.limit_in_bytes" if first != groups else "memory.max"
    group = first / f"hotrow-bench-{os.getpid()}"
    group.mkdir()
    (group / name).write_text(str(size))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _bytes(text):
    """A size such as 640M: int."""
    number, unit = text.rstrip("B"), 1
    if number[-1:] in "KMG":
        unit, number = 1000**(1 + "KMG".index(number[-1])), number[:-1]
    return int(float(number) * unit)


def main():
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    runs = {"fill": fill, "hotrow": hotrow_disk, "bag": bag, "rocksdb": rocksdb,
            "memory": memory, "disk": disk}
    parser.add_argument("what", choices=runs)
    parser.add_argument("--folder", required=True, help="of the files, which stay there")
    parser.add_argument("--slope", type=float, default=1.0, help="of Zipf's law")
    for name, number in (("rows", 1 << 26), ("dim", 16), ("samples", 512), ("features", 26),
                         ("slots", 1 << 20), ("depth", 4), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--limit", type=_bytes, help="memory of the process, such as 640M")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds")
    parser.add_argument("--seconds", type=float, default=60, help="timed")
    options = parser.parse_args()
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    if options.limit:
        limited(options.limit)
    print(json.dumps({"what": options.what, "limit_bytes": options.limit, "cores": os.cpu_count(),
                      "load": os.getloadavg()[0], **runs[options.what](options)}))


if __name__ == "__main__":
    main()
