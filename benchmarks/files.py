"""Steps a second on a table in a file larger than memory: hotrow beside `nn.EmbeddingBag`, whose
weight is the same file in mapped memory.

    python -m benchmarks.files make --folder FOLDER
    python -m benchmarks.files bag --folder FOLDER
    python -m benchmarks.files hotrow --folder FOLDER

Run the last two under a limit of memory, such as `systemd-run --scope -p MemoryMax=512M`: without
one the system keeps the whole file in memory. `make` also reports how many reads of 4 KiB the disk
does at depths 1, 8 and 32.
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

_FIRST, _DIM, _LR = mmap.PAGESIZE, 16, 0.01  # offset of the rows in the file


class Batches:
    """Endless batches of ids with Zipf's law of slope 1, the popular ones all over the table.

    Parameters
    ----------
    rows, samples, features, seed : int
    """

    def __init__(self, rows, samples, features, seed=0):
        self._rows, self._shape = rows, (samples, features)
        self._draw, self._step = np.random.default_rng(seed), int(rows * 0.618) | 1
        while gcd(self._step, rows) != 1:
            self._step += 2

    def __iter__(self):
        while True:
            rank = (self._rows ** self._draw.random(self._shape)).astype(np.int64) - 1
            yield torch.from_numpy(rank * self._step % self._rows)


def config_of(options):
    """The table of the run: TableConfig."""
    return TableConfig("table", options.rows, _DIM, path=Path(options.folder) / "table",
                       feature_names=[f"f{number}" for number in range(options.features)])


def random_reads(path, depth, seconds=3.0):
    """Reads of 4 KiB a second at random places, past the system's cache, by `depth` threads."""
    pages, counts = os.path.getsize(path) // mmap.PAGESIZE, [0] * depth
    handle = os.open(path, os.O_RDONLY | os.O_DIRECT)
    end = time.perf_counter() + seconds

    def read(worker):
        draw, page = np.random.default_rng(worker), mmap.mmap(-1, mmap.PAGESIZE)
        while time.perf_counter() < end:
            os.preadv(handle, [page], int(draw.integers(pages)) * mmap.PAGESIZE)
            counts[worker] += 1

    threads = [threading.Thread(target=read, args=(worker,)) for worker in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(handle)
    return sum(counts) / seconds


def drop(path):
    """Empty the system's cache of a file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def limit():
    """Bytes that the process and the pages of its files may take, None without a limit."""
    for entry in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = entry.split(":", 2)
        name = {"memory": "memory/{}/memory.limit_in_bytes", "": "{}/memory.max"}.get(controllers)
        file = Path("/sys/fs/cgroup") / (name or "").format(group.strip("/"))
        if name and file.is_file() and file.read_text().strip().isdigit():
            found = int(file.read_text())
            return found if found < 1 << 60 else None
    return None


def read_bytes():
    """Bytes that the process had the disk read."""
    return int(Path("/proc/self/io").read_text().split("read_bytes:")[1].split()[0])


class Clock:
    """Counts steps and reads after a warm-up."""

    def __init__(self, warm_up, seconds):
        self._warm_up, self._seconds, self._begin = warm_up, seconds, time.perf_counter()
        self._first = None
        self.steps = self._total = 0

    def tick(self):
        """Count a step; whether the time is over."""
        now = time.perf_counter()
        self._total += 1
        if self._first is None:
            if now - self._begin >= self._warm_up:
                self._first, self._read = now, read_bytes()
            return False
        self.steps, self.elapsed = self.steps + 1, now - self._first
        return self.elapsed >= self._seconds

    @property
    def figures(self):
        return {"steps_per_s": self.steps / self.elapsed, "steps": self.steps,
                "warm_up_steps": self._total - self.steps,
                "pages_read_per_step": (read_bytes() - self._read) / mmap.PAGESIZE / self.steps}


def train_bag(options):
    """`nn.EmbeddingBag` with sparse gradients and SGD, on pages that the system does not expect to
    follow one another: else it reads megabytes for a row."""
    with open(config_of(options).path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    memory.madvise(mmap.MADV_RANDOM)
    weight = torch.from_numpy(np.frombuffer(memory, np.float32, options.rows * _DIM, _FIRST))
    bag = torch.nn.EmbeddingBag.from_pretrained(weight.view(-1, _DIM), freeze=False, mode="sum",
                                                sparse=True)
    optimizer, clock = torch.optim.SGD(bag.parameters(), _LR), Clock(options.warm_up,
                                                                     options.seconds)
    for ids in Batches(options.rows, options.samples, options.features):
        bag(ids.reshape(-1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if clock.tick():
            return clock.figures


def train_hotrow(options):
    """Mode scratchpipe; slots take a part of the memory that the system's cache has otherwise."""
    with hotrow.open("cpu", slots=options.slots) as device, HotEmbeddingBagCollection(
            [config_of(options)], device, "scratchpipe", "sgd", _LR, seed=0, depth=options.depth,
            workers=options.workers) as collection:
        clock = Clock(options.warm_up, options.seconds)
        batches = Batches(options.rows, options.samples, options.features)
        with TrainPipeline(batches, collection, inputs=lambda ids: ids) as pipeline:
            for ids in pipeline:
                collection(ids).sum().backward()
                collection.optimizer.step()
                collection.optimizer.zero_grad()
                if clock.tick():
                    break
            figures = pipeline.figures
        return clock.figures | {name: figures[name] for name in (
            "hit_rate", "read_hidden", "read", "stall")}


def make(options):
    """Make the table, and find out what the disk does."""
    path = config_of(options).path
    HotEmbeddingBagCollection([config_of(options)], None, "resident", seed=0).close()
    return {"table_bytes": os.path.getsize(path),
            "reads_per_s": {depth: random_reads(path, depth) for depth in (1, 8, 32)}}


def main():
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "bag", "hotrow"))
    parser.add_argument("--folder", required=True, help="of the table, which stays there")
    parser.add_argument("--rows", type=int, default=1 << 25, help="of 64 bytes")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--features", type=int, default=26)
    parser.add_argument("--slots", type=int, default=1 << 20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds")
    parser.add_argument("--seconds", type=float, default=60, help="timed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = {"make": make, "bag": train_bag, "hotrow": train_hotrow}[options.what]
    if options.what != "make":
        drop(config_of(options).path)
    print(json.dumps({"what": options.what, "limit_bytes": limit(), "cores": os.cpu_count(),
                      "load": os.getloadavg()[0], **run(options)}))


if __name__ == "__main__":
    main()
