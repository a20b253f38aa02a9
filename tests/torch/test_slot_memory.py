"""Slots outside host memory, whose operations run later, and the events that order them.

A stand-in runs operations as late as their events allow. With a GPU the same trainings run there.
"""

import threading

import hotrow
import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, Options
from hotrow.torch.memory.slot_memory import SlotMemory, memory_on

from tests.torch.training import PLANNING, TABLES, draw, train

HERE = torch.cuda.is_available()
RUNS = [
    {"mode": "scratchpipe", "share": 4, "ahead": 5},
    pytest.param({"mode": "scratchpipe", "share": 4, "ahead": 5, "workers": 3},
                 marks=pytest.mark.slow),
    pytest.param({"mode": "freqcache", "share": 2, "ahead": 3, "depth": 2, "optimizer": "adagrad"},
                 marks=pytest.mark.slow),
    {"mode": "hotline", "ahead": 2, "every": 2},
]


class LateMemory(SlotMemory):
    """Runs asynchronous work only when somebody waits for it; staging memory starts as NaN."""

    asynchronous = True

    def __init__(self):
        self.asked, self.done, self.lock = [], 0, threading.RLock()

    def staging_rows(self, kind, count):
        rows = kind.allocate(count)
        for each in (rows.array, rows.side):
            if each is not None:
                each.fill_(float("nan"))
        return rows

    def run_async(self, work, after=None):
        with self.lock:
            self.asked.append(work)
            return len(self.asked)

    def record_event(self):
        return 0  # the trainer's own operations are not delayed

    def wait_event(self, event, *tensors):
        self.synchronize(event)

    def synchronize(self, event):
        with self.lock:
            while self.done < (event or 0):
                self.done += 1
                self.asked[self.done - 1]()

    def is_done(self, event):
        return False

    def synchronize_all(self):
        self.synchronize(len(self.asked))


class NobodyWaitsForWhatComes(LateMemory):
    def wait_event(self, event, *tensors):
        pass


class NobodyWaitsForWhatLeaves(LateMemory):
    def synchronize(self, event):
        pass

    def wait_event(self, event, *tensors):
        super().synchronize(event)


class EarlyMemory(SlotMemory):
    """Runs the stages' work as early as its events allow: on slots without what the trainer did
    since the latest event for which the stages have waited."""

    asynchronous = True

    def __init__(self):
        self.store, self.seen, self.waited = None, [], 0

    def arrays(self):
        return [each for storage in self.store.storages
                for each in (storage.rows.array, storage.rows.side) if each is not None]

    def record_event(self):
        self.seen.append([each.clone() for each in self.arrays()] if self.store else None)
        return len(self.seen) - 1

    def synchronize_all(self):
        self.seen = [None] * len(self.seen)  # the slots may move

    def run_async(self, work, after=None):
        self.waited = max(self.waited, after or 0)
        view = self.seen[self.waited]
        arrays = self.arrays() if view else []
        now = [each.clone() for each in arrays]
        for array, early in zip(arrays, view or (), strict=True):
            array.copy_(early)
        work()
        for number, array in enumerate(arrays):
            written = array != view[number]
            for earlier in self.seen[self.waited:]:
                if earlier is not None:
                    earlier[number][written] = array[written]
            now[number][written] = array[written]
            array.copy_(now[number])


class NobodyWaitsForTheTrainer(EarlyMemory):
    def run_async(self, work, after=None):
        return super().run_async(work)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EarlyMemory, NobodyWaitsForTheTrainer])
def test_stages_wait_for_the_trainer(kind):
    """Else victims leave their slots without the last step."""
    batches, memory = draw(6, 20), kind()

    def attach(store):
        memory.store, memory.seen = store, []
        store.batch_stages.released = memory.record_event()
    resident = train(batches, optimizer="rowwise_adagrad")
    found = trained(batches, RUNS[0], slots_device=memory, store=attach)
    assert found.figures["evictions"]
    assert (found.sha256 == resident.sha256) == (kind is EarlyMemory)


def trained(batches, run, **more):
    return train(batches, transport="model", **{"optimizer": "rowwise_adagrad", **run}, **more)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_the_bits_are_those_of_slots_in_host_memory(run):
    seed = 6
    batches = draw(seed, 20)
    resident = train(batches, optimizer=run.get("optimizer", "rowwise_adagrad"),
                     every=run.get("every", 1))
    found = trained(batches, run, slots_device=LateMemory())
    assert (found.sha256, found.losses) == (resident.sha256, resident.losses), f"seed {seed}"
    assert found.figures["rows_moved"] and found.figures["lookups"]


@pytest.mark.slow
@pytest.mark.parametrize("kind, error, message", [
    (NobodyWaitsForWhatComes, AttributeError, "None"),  # nor are their places
    (NobodyWaitsForWhatLeaves, hotrow.Error, "gradient was not finite"),  # from NaN in tables
])
def test_what_nobody_waits_for_shows(kind, error, message):
    with pytest.raises(error, match=message):
        trained(draw(6, 20), RUNS[0], slots_device=kind())


class RecordingMemory(LateMemory):
    """Records the threads on which the host waits, and whether they hold the store's lock."""

    def __init__(self):
        super().__init__()
        self.waiting, self.store, self.locked = set(), None, False

    def synchronize(self, event):
        self.waiting.add(threading.current_thread())
        self.locked |= self.store.lock._is_owned()
        super().synchronize(event)

    def wait_event(self, event, *tensors):
        super().synchronize(event)


@pytest.mark.slow
def test_the_trainer_does_not_wait_for_its_memory():
    """Only the threads of the stages wait, until `flush`."""
    memory, batches = RecordingMemory(), draw(7, 16)
    with hotrow.open("model", config=PLANNING) as device, HotEmbeddingBagCollection(
        TABLES, device, "scratchpipe", "rowwise_adagrad", 0.2,
        options=Options(seed=3, share=4, workers=2, slots_device=memory)) as collection:
        memory.store = collection.store
        for batch in batches:
            collection.prefetch(batch.ids)
        for batch in batches:
            collection(batch.ids).square().sum().backward()
            collection.optimizer.step()
            collection.optimizer.zero_grad()
        figures = collection.statistics
        assert figures["bypasses"] and figures["evictions"]
        assert memory.waiting and threading.main_thread() not in memory.waiting
        assert not memory.locked
        collection.flush()
        assert threading.main_thread() in memory.waiting


def test_filled_beforehand_and_read_between():
    ends = []
    for mode in ("resident", "freqcache"):
        device = None if mode == "resident" else hotrow.open("model", config=PLANNING)
        with HotEmbeddingBagCollection(
            TABLES, device, mode, "sgd", 0.2,
            options=Options(seed=3, slots_device="cpu" if mode == "resident" else LateMemory()),
        ) as collection:
            assert collection.learn({"user": range(100), "item": range(100)}, 0.25) in (0, 64)
            seen = []
            for batch in draw(8, 6):
                collection(batch.ids).square().sum().backward()
                collection.optimizer.step()
                collection.optimizer.zero_grad()
                seen.append(collection.eval()(batch.ids))
                collection.train()
            assert mode == "resident" or collection.statistics["hits"]
            collection.flush()
            ends.append((seen, collection.sha256()))
        if device is not None:
            device.close()
    assert ends[0][1] == ends[1][1]
    for here, there in zip(ends[0][0], ends[1][0], strict=True):
        assert torch.equal(here, there)


def test_a_step_that_is_not_finite_is_reported_later():
    batch, = draw(3, 1)
    with hotrow.open("model", config=PLANNING) as device, HotEmbeddingBagCollection(
        TABLES, device, "scratchpipe", "rowwise_adagrad", 0.2,
        options=Options(seed=3, slots_device=LateMemory())) as collection:
        before = collection.sha256()
        (collection(batch.ids).sum() * float("nan")).backward()
        collection.optimizer.step()  # nobody knows yet
        with pytest.raises(hotrow.Error, match="batch 0: a gradient was not finite, and its step"):
            collection.flush()
        assert collection.sha256() == before
        collection.optimizer.zero_grad()
        collection(batch.ids).sum().backward()
        collection.optimizer.step()
        collection.flush()
        assert collection.sha256() != before


@pytest.mark.skipif(not HERE, reason="needs a GPU that PyTorch can use")
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_on_a_gpu(run):
    """A GPU's sums may round in another order: equal within a tolerance."""
    batches = draw(6, 20)
    ends = []
    for device in ("cpu", "cuda"):
        options = {name: value for name, value in run.items() if name not in ("ahead", "every")}
        with hotrow.open("model", config=PLANNING) as card, HotEmbeddingBagCollection(
            TABLES, card, lr=0.2, seed=3, slots_device=device,
                                            **{"optimizer": "rowwise_adagrad", **options},
        ) as collection:
            for batch in batches:
                found = collection(batch.ids)
                assert found.device.type == device
                found.square().mean().backward()
                collection.optimizer.step()
                collection.optimizer.zero_grad()
            collection.flush()
            ends.append([collection.contents.table(config.name)[0].clone() for config in TABLES])
    for here, there in zip(*ends, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-6)


def test_wrong_devices():
    with pytest.raises(hotrow.Error, match="slots_device is 'cpu' or a GPU such as 'cuda', not "):
        memory_on("meta")
    with pytest.raises(hotrow.Error, match=r"such as 'cuda', not \[3\]"):
        memory_on([3])
    with pytest.raises(hotrow.Error, match="mode resident trains tables in host memory"):
        HotEmbeddingBagCollection(TABLES, None, "resident",
                                  options=Options(slots_device=LateMemory()))
    if not HERE:
        with pytest.raises(hotrow.Error, match="slots on 'cuda' need a GPU"):
            memory_on("cuda")


class Stream:
    """Stands in for a stream or an event of a GPU, and notes what is asked of it."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __enter__(self):
        self.log.append(f"on {self.name}")

    def __exit__(self, *_):
        self.log.append(f"off {self.name}")

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event.name}")

    def record_event(self):
        return Stream(self.log, f"event of {self.name}")

    def synchronize(self):
        self.log.append(f"the host waits for {self.name}")

    def query(self):
        return self.name == "past"

    def record_stream(self, stream):
        self.log.append(f"{stream.name} reads {self.name}")


@pytest.fixture
def gpu(monkeypatch):
    """A log of the calls of `torch.cuda`, whose current device is number 3."""
    log = []
    for name, value in {
            "is_available": lambda: True, "current_device": lambda: 3,
            "Stream": lambda device: Stream(log, f"own {device}"), "stream": lambda stream: stream,
            "current_stream": lambda device: Stream(log, f"trainer's {device}")}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return log


def test_streams_and_events_of_a_gpu(gpu):
    assert memory_on("cuda").device == torch.device("cuda", 3)
    memory, past, coming = memory_on("cuda:1"), Stream(gpu, "past"), Stream(gpu, "coming")
    assert memory.device == torch.device("cuda", 1) and memory.asynchronous
    assert memory.is_done(None) and memory.is_done(past) and not memory.is_done(coming)
    event = memory.run_async(lambda: gpu.append("work"), after=coming)
    assert gpu == ["on own cuda:1", "own cuda:1 waits for coming", "work", "off own cuda:1"]
    assert event.name == "event of own cuda:1"
    gpu.clear()
    memory.run_async(lambda: gpu.append("work"))
    assert gpu == ["on own cuda:1", "work", "off own cuda:1"]
    gpu.clear()
    memory.wait_event(event, Stream(gpu, "rows"))
    memory.wait_event(None, Stream(gpu, "rows"))
    assert gpu == ["trainer's cuda:1 waits for event of own cuda:1", *[
        "trainer's cuda:1 reads rows"] * 2]
    gpu.clear()
    memory.synchronize(None)
    memory.synchronize(memory.record_event())
    assert gpu == ["the host waits for event of trainer's cuda:1"]
