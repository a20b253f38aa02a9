"""Readers in processes of their own beside a trainer: each read is the rows of one commit."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from hotrow.ids import initial_rows
from hotrow.tables import Store, Table, open

from .disk_ids import ZipfBatches

_READ = 1000  # rows of a read
_STEP = 0.05  # seconds, of a step of the trainer: readers repeat what it trained


def _table(options):
    return Table("table", options.rows, options.dim, seed=1, bound=1.0)


def _batch(options, step):
    """Distinct rows that a step trains: int64[n], of its number alone."""
    ids = next(iter(ZipfBatches(options.rows, options.samples, options.features, options.slope,
                                seed=step)))
    return np.unique(ids.numpy())


def _values(options, rows, step):
    """Rows as the step of each leaves them: float32[n, dim]."""
    mixed = (rows[:, None] * 0x9E3779B1 + step[:, None] * 0x85EBCA6B + np.arange(options.dim)
             * 0xC2B2AE35) & 0xFFFFFF
    return mixed.astype(np.float32)


def readers(options):
    """Train and commit beside readers, which check every row that they read; sums of their rates.

    A reader that gets a row of no commit, or of another one, ends with an error.
    """
    folder, step = Path(options.folder) / "read", 0
    arguments = [sys.executable, "-m", "benchmarks.disk_readers", str(folder)] + [
        str(each) for each in (options.rows, options.dim, options.samples, options.features,
                               options.slope, options.every, options.seconds)]
    with Store(folder, [_table(options)]) as store:
        rows = store.rows(["table"], [0])
        store.commit(step=0)
        running = [subprocess.Popen([*arguments, str(number)], stdout=subprocess.PIPE, text=True)
                   for number in range(options.readers)]
        commits, begin = 0, time.perf_counter()
        while any(each.poll() is None for each in running):
            step += 1
            batch = _batch(options, step)
            rows.append(batch, _values(options, batch, np.full(len(batch), step)))
            if step % options.every == 0:
                store.commit(step=step)
                commits += 1
            time.sleep(max(0, begin + _STEP * step - time.perf_counter()))
        seconds, figures = time.perf_counter() - begin, store.figures()
    found = [each.communicate()[0] for each in running]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    if any(each.returncode for each in running):
        raise SystemExit(f"readers ended with {[each.returncode for each in running]}")
    counts = np.array([list(map(int, each.split())) for each in found])
    return {"readers": options.readers, "rows_read": int(counts[:, 0].sum()),
            "rows_per_s": counts[:, 0].sum() / options.seconds,
            "commits_seen": counts[:, 1].tolist(), "commits": commits, "steps": step,
            "steps_per_s": step / seconds, "rows_moved": figures["rows_moved"]}


class _Shape:
    def __init__(self, rows, dim, samples, features, slope, every):
        self.rows, self.dim, self.samples = int(rows), int(dim), int(samples)
        self.features, self.slope, self.every = int(features), float(slope), int(every)


def _read(folder, *given):
    """Read and check for some seconds; print rows and commits."""
    *shape, seconds, number = given
    options, draw = _Shape(*shape), np.random.default_rng(int(number))
    last, known, seen, count = np.zeros(options.rows, np.int64), 0, set(), 0
    end = time.perf_counter() + float(seconds)
    with open(folder) as reader:
        while time.perf_counter() < end:
            step = options.every * (reader.refresh() - 1)
            while known < step:
                known += 1
                last[_batch(options, known)] = known
            seen.add(step)
            trained = np.flatnonzero(last)
            for _ in range(10):
                ids = draw.integers(options.rows, size=_READ)
                if known:
                    ids[::2] = draw.choice(trained, len(ids[::2]))
                rows, was = reader.rows("table", ids), last[ids]
                wanted = np.where((was > 0)[:, None], _values(options, ids, was), initial_rows(
                    ids.astype(np.uint64), options.dim, 1, 1.0))
                if (rows != wanted).any():
                    sys.exit(f"rows are not those of step {step}")
                count += _READ
    print(count, len(seen))


if __name__ == "__main__":
    _read(*sys.argv[1:])
