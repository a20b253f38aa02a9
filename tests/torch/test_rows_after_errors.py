"""Whatever fails, and wherever: the rows of every step that ended are in the tables."""

import threading
import warnings

import hotrow
import pytest
import torch
from hotrow.contract.errors import DeviceError
from hotrow.torch import HotEmbeddingBagCollection, TableConfig

from tests.torch.training import PLANNING

STAGES = ("plan", "collect", "exchange", "insert")
FAILED, STEPS = 4, 8  # the batch at which a stage fails, and batches in all
TABLES = [TableConfig("a", 300, 8), TableConfig("b", 500, 8), TableConfig("c", 200, 4)]


def batches():
    generator = torch.Generator().manual_seed(5)
    limits = torch.tensor([config.num_embeddings for config in TABLES])
    return [(torch.rand(24, 3, generator=generator) ** 2 * limits).long() for _ in range(STEPS)]


def trained(steps):
    """The tables after some steps in mode resident."""
    collection = HotEmbeddingBagCollection(TABLES, None, "resident", "adagrad", 0.1, seed=2)
    for ids in batches()[:steps]:
        collection(ids).square().sum().backward()
        collection.optimizer.step()
    return collection.state_dict()


class Failure:
    """Called before a stage: fails once, or breaks the device for good."""

    def __init__(self, stage, kind):
        self.stage, self.kind, self.device = stage, kind, None

    def __call__(self, stage, number):
        if (stage, number) != (self.stage, FAILED):
            return
        if self.kind is not DeviceError:
            raise self.kind("a stage failed")

        def refuse(*_, **__):
            raise DeviceError("a queue has stopped")

        self.device._commands.submit = refuse


def run(mode, workers, failure, close=True):
    """Train until the failure: (steps that ended, the collection)."""
    failure.device = hotrow.open("model", config=PLANNING)
    collection = HotEmbeddingBagCollection(
        TABLES, failure.device, mode, "adagrad", 0.1, seed=2, workers=workers, before=failure)
    steps, drawn = 0, batches()
    with pytest.raises((failure.kind, DeviceError)):
        for number, ids in enumerate(drawn):
            if workers:
                for coming in drawn[number + collection.store.waiting:number + 3]:
                    collection.prefetch(coming)
            collection(ids).square().sum().backward()
            collection.optimizer.step()
            steps += 1
    if close:
        with pytest.raises((failure.kind, DeviceError)):
            collection.close()
    return steps, collection


def check(collection, steps):
    expected, found = trained(steps), collection.state_dict()
    assert set(found) >= set(expected)
    for name, values in expected.items():
        assert torch.equal(found[name], values), (name, steps)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, DeviceError])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode, workers", [
    ("scratchpipe", 0), ("scratchpipe", 2), ("freqcache", 0), ("hotline", 0), ("hotline", 2)])
def test_trained_rows_reach_the_tables(mode, workers, stage, kind):
    before = threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the host writes in the device's place
        failure = Failure(stage, kind)
        steps, collection = run(mode, workers, failure)
        assert 1 <= steps <= FAILED + 1
        check(collection, steps)
    failure.device.transport.close()
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("kind", [ValueError, DeviceError])
def test_saved_before_the_close(kind):
    """A device that does not answer is reported, and the state is complete."""
    failure = Failure("collect", kind)
    steps, collection = run("scratchpipe", 0, failure, close=False)
    if kind is DeviceError:
        with pytest.warns(UserWarning, match=r"a queue has stopped.*none is lost"):
            check(collection, steps)
    else:
        check(collection, steps)
    with pytest.raises(kind):
        collection.close()
    check(collection, steps)
    failure.device.transport.close()


def test_a_step_of_rows_without_a_slot_that_the_card_did_not_take_is_named():
    failure = Failure("insert", DeviceError)
    failure.device = hotrow.open("model", config=PLANNING)
    collection = HotEmbeddingBagCollection(
        TABLES[:1], failure.device, "hotline", "sgd", 0.1, seed=2, cold="pooled", before=failure)
    with pytest.raises(DeviceError, match=r"stopped; the step of batch 4 .* rows without a slot, "
                                          r"of 'a'"):
        for ids in batches():
            collection(ids[:, :1]).square().sum().backward()
            collection.optimizer.step()
    failure.device.transport.close()


def test_an_error_that_the_caller_catches_and_a_device_that_was_closed_first():
    device = hotrow.open("model", config=PLANNING)
    collection = HotEmbeddingBagCollection(TABLES, device, "scratchpipe", "adagrad", 0.1, seed=2)
    for ids in batches()[:3]:
        collection(ids).square().sum().backward()
        collection.optimizer.step()
    device.close()
    with pytest.warns(UserWarning, match="none is lost"):
        check(collection, 3)
