"""Ten thousand steps in which stages, callbacks, backwards, signals and the device fail."""

import ctypes
import gc
import os
import random
import signal
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context

import hotrow
import pytest
import torch
from hotrow.contract.errors import DeviceError
from hotrow.torch import HotEmbeddingBagCollection, TableConfig

from tests.torch.training import PLANNING

TABLES = [TableConfig("a", 300, 8), TableConfig("b", 500, 8), TableConfig("c", 200, 4),
          TableConfig("one", 1, 4)]
MODES = [("scratchpipe", 0), ("scratchpipe", 2), ("freqcache", 0), ("hotline", 2)]
FAULTS = ("stage", "signal in a stage", "backward", "signal in backward", "device")
GROWTH = 8 << 20  # bytes of other memory that a run of any length may gain


class Run:
    """A collection that fails on request, beside a resident one that trains the same steps."""

    def __init__(self, seed):
        self.random, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.limits = torch.tensor([config.num_embeddings for config in TABLES])
        self.resident = self.make(None, "resident")
        self.collection, self.fault, self.failed = None, None, dict.fromkeys(FAULTS, 0)

    def make(self, device, mode, **options):
        return HotEmbeddingBagCollection(TABLES, device, mode, "adagrad", 0.01,
                                         seed=2, **options)

    def open(self):
        mode, workers = self.random.choice(MODES)
        self.device = hotrow.open("cpu", config=PLANNING)
        self.collection = self.make(self.device, mode, workers=workers)
        self.collection.store.stages.before = self.before
        self.collection.load_state_dict(self.resident.state_dict())
        self.collection.optimizer.load_state_dict(self.resident.optimizer.state_dict())

    def close(self):
        """Close, whatever has failed, and hold the tables to those of the same steps."""
        with warnings.catch_warnings(), suppress(ValueError, DeviceError):
            warnings.simplefilter("ignore")
            self.collection.close()
        self.device.transport.close()
        for name, rows in self.resident.state_dict().items():
            assert torch.equal(self.collection.state_dict()[name], rows), name
        for name, state in self.resident.saved.row_states().items():
            assert torch.equal(self.collection.saved.row_states()[name], state), name
        self.collection = None
        gc.collect()  # a closed collection has references to itself

    def before(self, stage, number):
        if self.fault == "stage":
            raise ValueError("planted")
        if self.fault == "signal in a stage":
            self.fault = None
            signal.raise_signal(signal.SIGINT)

    def in_backward(self, gradient):
        if self.fault == "backward":
            raise ValueError("planted")
        if self.fault == "signal in backward":
            self.fault = None
            signal.raise_signal(signal.SIGINT)

    def refuse(self, *_, **__):
        raise DeviceError("a queue has stopped")

    def step(self):
        """One step, with or without a fault, repeated if it was not applied."""
        ids = (torch.rand(self.random.randrange(25), len(TABLES), generator=self.generator) ** 2
               * self.limits).long()
        self.fault = self.random.choice(FAULTS) if self.random.random() < 0.02 else None
        while True:
            if self.collection is None:
                self.open()
            before, planted = self.collection.staging.steps, self.fault
            if planted == "device":
                self.device._commands.submit = self.refuse
            try:
                results = self.collection(ids)
                results.register_hook(self.in_backward)
                results.square().sum().backward()
                self.collection.optimizer.step()
            except (ValueError, KeyboardInterrupt, DeviceError):
                self.failed[planted] += 1
                self.collection.optimizer.zero_grad()
            self.fault = None
            stepped = self.collection.staging.steps > before
            if stepped:
                self.resident(ids).square().sum().backward()
                self.resident.optimizer.step()
            if planted in ("stage", "device"):
                self.close()
            if stepped:
                return


def used():
    """Bytes of memory, threads and open files of this process, which gives back what is free."""
    ctypes.CDLL(None).malloc_trim(0)  # what the arenas of many threads keep moves by megabytes
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return (pages * os.sysconf("SC_PAGE_SIZE"), threading.active_count(),
            len(os.listdir("/proc/self/fd")))


def figures_of(steps):
    """Run so many steps; return what failed, and `used` after a fifth of them and at the end."""
    run, figures = Run(seed=11), []
    for number in range(steps):
        run.step()
        if number in (steps // 5, steps - 1):
            if run.collection is not None:
                run.close()
            figures.append(used())
    return run.failed, figures


@pytest.mark.parametrize("steps", [
    pytest.param(200, marks=pytest.mark.slow), pytest.param(10_000, marks=pytest.mark.long)])
def test_nothing_is_lost_and_memory_is_flat(steps, capsys):
    # In a process of its own: what other tests left in the allocators moves its memory, too.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        failed, (early, late) = process.submit(figures_of, steps).result()
    with capsys.disabled():
        print(f"\n{steps} steps, seed 11, failures {failed}; bytes, threads and files after a "
              f"fifth {early} and at the end {late}")
    assert sum(failed.values()) > steps // 200
    assert late[0] - early[0] < GROWTH
    assert late[1:] == early[1:]
