"""Measures this machine: MLP, memory and embedding rates, with PyTorch, in about a minute.

Times a training step of mode `resident` and its dense part at several sizes, in several rounds, and
keeps the minimum of each, as other load only adds time. Non-negative least squares yields the
rates.
"""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.rules import SGD
from hotrow.torch.training.collection_trainer import CollectionTrainer
from hotrow.torch.training.dlrm import BOTTOM_WIDTHS, DLRM, TOP_WIDTHS
from hotrow.torch.training.trainer import flat_rows
from hotrow.traces.synthetic import SyntheticTrace
from torch.nn.functional import binary_cross_entropy_with_logits

from .constants import load
from .placements import Question, cpu
from .systems import Rates, System
from .workloads import Workload

SLOPE, SEED, DENSE = 1.05, 0, 13
ROUNDS, LEAST_SECONDS = 7, 0.02
SCALED = 7  # of `CALIBRATED`: the size that is timed on one thread as well, mostly rows
COPY_BYTES = 2**27
GEMM = 1024


@dataclass(frozen=True)
class Size:
    """One training run to time, with tables of `rows` rows and MLP widths times `scale`."""

    batch: int
    tables: int
    rows: int
    dim: int
    scale: float

    @property
    def workload(self):
        def widths(base):
            return tuple(max(1, round(width * self.scale)) for width in base)
        return Workload(str(self), (self.rows,) * self.tables, (1,) * self.tables, DENSE, self.dim,
                        self.batch, widths(BOTTOM_WIDTHS), widths(TOP_WIDTHS), SLOPE)


CALIBRATED = (
    Size(128, 4, 10_000, 16, 0.25), Size(512, 8, 100_000, 16, 1.0),
    Size(1024, 26, 100_000, 16, 0.5), Size(2048, 8, 100_000, 64, 0.5),
    Size(2048, 26, 300_000, 32, 1.0), Size(4096, 26, 100_000, 16, 1.0),
    Size(1024, 16, 300_000, 64, 2.0), Size(4096, 8, 1_000_000, 32, 0.25),
)
CHECKED = (Size(768, 12, 200_000, 32, 1.0), Size(1536, 20, 200_000, 16, 0.5),
           Size(3072, 16, 400_000, 48, 1.0))


class Run:
    """A trainer of one size with functions for its step and its dense part."""

    def __init__(self, size):
        self.size = size
        torch.manual_seed(SEED)
        trace = SyntheticTrace("calibration", [size.rows] * size.tables, SLOPE, DENSE, SEED)
        tables = EmbeddingTables(trace.cardinalities, size.dim).initialise(SEED)
        model = DLRM(DENSE, size.tables, size.dim, size.scale)
        self.trainer = CollectionTrainer(model, tables, SGD(0.01))
        self.samples = [trace.batch(number, size.batch) for number in range(4)]
        self.pooled = torch.rand(size.batch, size.tables, size.dim, requires_grad=True)
        self.unique = np.mean([len(np.unique(flat_rows(tables, each).numpy()))
                               for each in self.samples])
        self.turn = 0

    def step(self):
        self.turn += 1
        self.trainer.step(self.samples[self.turn % len(self.samples)])

    def dense(self):
        samples, model = self.samples[0], self.trainer.model
        model.zero_grad()
        logits = model(torch.from_numpy(samples.dense), self.pooled)
        binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label)).backward()
        self.trainer.dense_optimizer.step()


def least_seconds(works, rounds=ROUNDS):
    """Minimum time of each function over `rounds` rounds of all of them."""
    least = [float("inf")] * len(works)
    for work in works:
        work()
    for _ in range(rounds):
        for at, work in enumerate(works):
            started = time.perf_counter()
            while True:
                before = time.perf_counter()
                work()
                after = time.perf_counter()
                least[at] = min(least[at], after - before)
                if after - started > LEAST_SECONDS:
                    break
    return least


def calibrate(checked=(), threads=None):
    """Measure.

    Parameters
    ----------
    checked : sequence of Size
        Additional sizes to time in the same rounds, not used for the rates.
    threads : int, optional
        Threads to measure with, one for each free core of the host; default PyTorch's.

    Returns
    -------
    system : System
        This host, without a GPU.
    record : dict
        The measurements; `checked` has predicted and measured seconds of each additional size,
        `row_scaling` the speed of embedding work over that on one thread.
    """
    started = time.monotonic()
    if threads:
        torch.set_num_threads(threads)
    runs = [Run(size) for size in (*CALIBRATED, *checked)]
    source, target = torch.ones(COPY_BYTES // 4), torch.empty(COPY_BYTES // 4)
    left = torch.rand(GEMM, GEMM)
    times = least_seconds([*(run.step for run in runs), *(run.dense for run in runs),
                           lambda: target.copy_(source), lambda: left @ left])
    count, known = len(runs), len(CALIBRATED)
    steps, dense = np.array(times[:count]), np.array(times[count:2 * count])
    host = System(
        "this-host", "this host", cores=threads or os.cpu_count() or 1,
        host_memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        host_memory_gbps=2 * COPY_BYTES / times[-2] / 1e9,
        host_tflops=2 * GEMM**3 / times[-1] / 1e12, core_speed=1.0,
        source="measured with PyTorch", rates=_rates(runs[:known], steps[:known], dense[:known]))
    record = {
        "threads": torch.get_num_threads(), "row_scaling": _row_scaling(runs[SCALED]),
        "gemm_tflops": host.host_tflops,
        "copy_gbps": host.host_memory_gbps, "rates": vars(host.rates),
        "calibrated": _compare(runs[:known], steps, host),
        "checked": _compare(runs[known:], steps[known:], host),
        "seconds": time.monotonic() - started,
    }
    return host, record


def _row_scaling(run):
    """Speed of the step without its dense part on all threads, over that on one."""
    threads = torch.get_num_threads()

    def on(count, work):
        def call():
            torch.set_num_threads(count)
            work()
        return call

    try:
        step, dense, own_step, own_dense = least_seconds(
            [on(count, work) for count in (threads, 1) for work in (run.step, run.dense)])
    finally:
        torch.set_num_threads(threads)
    return (own_step - own_dense) / (step - dense)


def _rates(runs, steps, dense):
    machines = [Question(run.size.workload, _BARE, load()).machine for run in runs]
    flop_s, byte_s, op_s = nonnegative_fit(
        [[machine.flops(run.size.batch), machine.dense_bytes(run.size.batch),
          len(machine.work.layers)] for machine, run in zip(machines, runs, strict=True)], dense)
    lookups = np.array([run.size.batch * run.size.tables for run in runs])
    row_bytes = np.array([4 * run.size.dim for run in runs])
    unique = np.array([run.unique for run in runs])
    step_s, lookup, lookup_byte, row_byte = nonnegative_fit(
        np.stack([np.ones(len(runs)), lookups, lookups * row_bytes, unique * row_bytes], axis=1),
        np.maximum(steps - dense, 1e-9), weights=1 / steps)
    # Only the whole step is timed; its forward is one of three passes over the rows.
    return Rates(op_s, flop_s, byte_s, lookup / 3, lookup_byte / 3, lookup * 2 / 3,
                 lookup_byte * 2 / 3, row_byte, step_s)


_BARE = System("bare", "bare", cores=1, host_memory_gb=1, host_memory_gbps=1, host_tflops=1)


def nonnegative_fit(features, seconds, weights=None):
    """Non-negative coefficients of least squared relative error.

    Drops the most negative coefficient and fits again, until none is negative.
    """
    seconds = np.asarray(seconds, float)
    weights = 1 / seconds if weights is None else weights
    features = np.asarray(features, float) * weights[:, None]
    scale = np.abs(features).max(axis=0)
    kept = list(range(features.shape[1]))
    while kept:
        found = np.linalg.lstsq(features[:, kept] / scale[kept], seconds * weights, rcond=None)[0]
        if found.min() >= 0:
            break
        kept.pop(int(found.argmin()))
    result = np.zeros(features.shape[1])
    result[kept] = found / scale[kept]
    return map(float, result)


def _compare(runs, measured, host):
    """Predicted and measured seconds of a step, and their ratio."""
    compared = []
    for run, seconds in zip(runs, measured, strict=False):
        predicted = cpu(Question(run.size.workload, host, load())).seconds
        compared.append({"size": vars(run.size), "predicted": predicted,
                         "measured": float(seconds), "ratio": predicted / float(seconds)})
    return compared
