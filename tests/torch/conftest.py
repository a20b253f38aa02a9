"""Small trainings that the tests share."""

import copy
import signal
from dataclasses import replace
from pathlib import Path

import hotrow
import numpy as np
import pytest
import torch
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.rules import OPTIMIZERS
from hotrow.torch.training.check import StepCheck
from hotrow.torch.training.collection_trainer import CollectionTrainer
from hotrow.torch.training.dlrm import DLRM
from hotrow.torch.training.learning import LearningSchedule
from hotrow.torch.training.reference import ReferenceTrainer
from hotrow.traces import Samples

from tests.torch.launching import one_at_a_time, torchrun


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tests run in parallel processes, which share the cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def interrupts():
    """A shell that starts the tests in the background has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", params=[
    pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.long)],
    ids="{} ranks".format)
def launched(request, tmp_path_factory):
    """(Ranks, their folder), from one launch of ranks.py for all workers of a test session."""
    world, here = request.param, tmp_path_factory.getbasetemp()
    shared = here.parent if hasattr(request.config, "workerinput") else here
    folder = shared / f"{world}-ranks"
    with one_at_a_time(folder.with_suffix(".lock")):
        if not (folder / "found.pt").exists():
            folder.mkdir()
            torchrun(world, folder, str(Path(__file__).with_name("ranks.py")), folder)
    return world, folder


@pytest.fixture
def device():
    with hotrow.open("model", preset="tiny") as device:
        yield device


class Setting:
    """A small model, its tables, and batches with hot, cold and repeated rows.

    Parameters
    ----------
    seed : int
    cardinalities : tuple of int
    optimizer : str
    jagged : bool
        Bags of `shortest` to 4 ids instead of one each.
    shortest : int
    """

    dim, dense = 8, 3

    def __init__(self, seed, cardinalities=(40, 90, 300), optimizer="sgd", jagged=False,
                 shortest=0):
        self.rng = np.random.default_rng(seed)
        self.cardinalities, self.jagged, self.shortest = cardinalities, jagged, shortest
        self.optimizer = OPTIMIZERS[optimizer](0.2)
        initial = getattr(self.optimizer, "initial", None)
        self.tables = EmbeddingTables(cardinalities, self.dim, initial).initialise(seed)
        torch.manual_seed(seed)
        self.model = DLRM(self.dense, len(cardinalities), self.dim, scale=0.05)

    def parts(self):
        """Arguments of a trainer: copies of the model and the tables, equal for all."""
        return copy.deepcopy(self.model), self.tables.copy(), self.optimizer

    def reference(self):
        return ReferenceTrainer(*self.parts())

    def resident(self):
        return CollectionTrainer(*self.parts())

    def hotline(self, device, **options):
        """A trainer in mode hotline, whose steps count nothing."""
        trainer = CollectionTrainer(*self.parts(), device, "hotline", **options)
        trainer.counting = False
        return trainer

    def samples(self, count=64):
        """A batch whose ids are skewed towards 0."""
        columns = len(self.cardinalities)
        lengths = None
        if self.jagged:
            lengths = self.rng.integers(self.shortest, 5, (count, columns)).astype(np.uint16)
        column = np.tile(np.arange(columns), count)
        column = np.repeat(column, 1 if lengths is None else lengths.ravel())
        rows = np.array(self.cardinalities)[column]
        ids = np.floor(rows * self.rng.random(len(column)) ** 4).astype(np.uint32)
        return Samples(
            ids=ids.reshape(count, columns) if lengths is None else ids,
            lengths=lengths,
            dense=self.rng.standard_normal((count, self.dense)).astype(np.float32),
            label=(self.rng.random(count) < 0.4).astype(np.float32))

    def batches(self, number, count=64, drift=0.0):
        """Batches whose skew moves by `drift` ids from each to the next."""
        drawn = []
        for moved in (int(drift * index) for index in range(number)):
            samples = self.samples(count)
            rows = np.array(self.cardinalities)[samples.lookup_columns].reshape(samples.ids.shape)
            ids = ((samples.ids + moved) % rows).astype(np.uint32)
            drawn.append(replace(samples, ids=ids))
        return drawn


@pytest.fixture
def setting():
    """The class."""
    return Setting


def emptied(device):
    """A device without tables, counts or hot rows."""
    for table in device.tables:
        device.unregister_table(table)
    device.clear_counters()
    device.clear_directory()
    return device


def relearn(here, device, batches, every=2, decay=1, hot_rows=80, learning=2, checked_by=StepCheck,
            prepare=None, **options):
    """Train as `hotrow train` does, on an emptied device: (trainer, check, schedule).

    `prepare` is called with the trainer before it trains.
    """
    trainer = here.hotline(emptied(device), **options)
    if prepare is not None:
        prepare(trainer)
    check = checked_by(trainer, here.reference())
    schedule = LearningSchedule(learning, hot_rows, every, decay)
    for number, samples in enumerate(batches):
        schedule.before(number, samples, trainer, check)
        check.step(samples)
        trainer.step(samples)
    return trainer, check, schedule
