"""Training loops as people write them: evaluation, skipped and repeated batches, an interrupt."""

import signal
import threading

import hotrow
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, TrainPipeline, convert
from torch import nn
from torch.utils.checkpoint import checkpoint

MODES = ("resident", "scratchpipe", "freqcache", "hotline")
BATCHES = [torch.randint(50, (16, 1), generator=torch.Generator().manual_seed(seed))
           for seed in range(8)]


def opened(mode, **options):
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    return HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode=mode, optimizer="adagrad",
                                     lr=0.1, seed=0, **{**card, **options})


def trained(mode, forward, batches=BATCHES):
    """Digest after an epoch; `forward` returns the loss of a batch, or None to skip it."""
    with opened(mode) as tables, TrainPipeline(batches, tables, lambda ids: ids) as pipeline:
        for number, ids in enumerate(pipeline):
            loss = forward(tables, ids, number)
            if loss is None:
                pipeline.skip()
                continue
            loss.backward()
            tables.optimizer.step()
        tables.flush()
        return tables.sha256()


def agree(forward):
    digests = {mode: trained(mode, forward) for mode in MODES}
    assert len(set(digests.values())) == 1, digests


def skipping(tables, ids, number):
    return None if number in (0, 3, 4, 7) else tables(ids).square().sum()


@pytest.mark.slow
def test_skipped_batches():
    agree(skipping)
    kept = [ids for number, ids in enumerate(BATCHES) if number not in (0, 3, 4, 7)]
    assert trained("scratchpipe", skipping) == trained(
        "resident", lambda tables, ids, _: tables(ids).square().sum(), kept)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("owned", [True, False])
def test_after_close_rows_are_read_and_do_not_train(mode, owned):
    """Also with a device of the caller's, which stays open."""
    device = None if owned or mode == "resident" else hotrow.open("model", preset="tiny")
    tables = opened(mode, **({} if device is None else {"device": device}))
    for ids in BATCHES[:3]:
        tables(ids).square().sum().backward()
        tables.optimizer.step()
    kept = tables.embedding_bags["a"].weight.detach().clone()
    tables(BATCHES[3]).sum().backward()  # is not applied
    tables.close()
    tables.close()
    if mode != "resident":
        with pytest.raises(Error, match="closed"):
            tables.optimizer.step()
        with pytest.raises(Error, match="closed"):
            tables(BATCHES[0])
    tables.eval()
    assert torch.equal(tables(BATCHES[0]), kept[BATCHES[0][:, 0]])
    tables.load_state_dict({**tables.state_dict(), "embedding_bags.a.weight": kept + 1})
    with torch.no_grad():
        tables.embedding_bags["a"].weight.mul_(2)
        assert torch.equal(tables(BATCHES[0]), 2 * (kept + 1)[BATCHES[0][:, 0]])
    if device is not None:
        device.close()


@pytest.mark.parametrize("samples", [16, 1])
def test_a_batch_without_a_lookup_is_named(samples):
    batches = [ids[:samples] for ids in BATCHES]
    with opened("scratchpipe") as tables:
        pipeline = TrainPipeline(batches, tables, lambda ids: ids)
        with pytest.raises(Error, match=r"skip\(\)"):
            for number, ids in enumerate(pipeline):
                if number:
                    tables(ids)
        pipeline.close()
        for ids in pipeline:
            tables(ids)
            with pytest.raises(Error, match="was looked up"):
                pipeline.skip()
            break


@pytest.mark.slow
def test_a_batch_looked_up_twice():
    agree(lambda tables, ids, _: (tables(ids) * tables(ids)).sum())


@pytest.mark.slow
def test_activation_checkpointing():
    """The lookup that backward repeats reads the rows of its batch, and stages nothing."""
    def forward(tables, ids, _):
        return checkpoint(lambda ids: tables(ids).exp().square(), ids, use_reentrant=False).sum()

    agree(forward)
    assert trained("scratchpipe", forward) == trained(
        "resident", lambda tables, ids, _: tables(ids).exp().square().sum())


def test_checkpointed_batches_of_one_backward():
    digests = []
    for mode in ("resident", "scratchpipe"):
        with opened(mode) as tables:
            for first in range(0, len(BATCHES), 2):
                sum(checkpoint(lambda ids, tables=tables: tables(ids).exp(), ids,
                               use_reentrant=False).sum()
                    for ids in BATCHES[first:first + 2]).backward()
                tables.optimizer.step()
            tables.flush()
            digests.append(tables.sha256())
    assert digests[0] == digests[1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_evaluation_through_a_pipeline(mode):
    """It leaves no batch waiting, for a collection and for a converted model."""
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    converted = nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum"))
    with opened(mode) as tables, convert(converted, mode=mode, **card) as others:
        for model, collection in ((tables, tables), (converted, others)):
            pipeline = TrainPipeline(BATCHES, model, lambda ids: ids)
            for training in (True, False, True):
                model.train(training)
                for ids in pipeline:
                    out = model(ids)
                    if training:
                        out.sum().backward()
                        collection.optimizer.step()
                assert not collection.store.waiting


@pytest.mark.parametrize("stage", ["plan", "collect", "exchange", "insert"])
def test_a_run_goes_on_after_an_interrupt(stage):
    def step(tables, ids):
        tables(ids).sum().backward()
        tables.optimizer.step()

    def interrupt(name, number):
        if (name, number) == (stage, 2) and not raised:
            raised.append(signal.raise_signal(signal.SIGINT))

    raised, beside = [], opened("resident")
    with opened("scratchpipe") as tables:
        tables.store.stages.before = interrupt
        for number, ids in enumerate(BATCHES):
            if number == 2:
                with pytest.raises(KeyboardInterrupt):
                    step(tables, ids)
                tables.abandon()
            step(tables, ids)
            step(beside, ids)
        tables.flush()
        assert raised and tables.sha256() == beside.sha256()


@pytest.mark.parametrize("at", ["start", "join"])
def test_a_run_goes_on_after_an_interrupt_while_threads_start_or_end(monkeypatch, at):
    method, interrupts = getattr(threading.Thread, at), []

    def interrupted(self, *arguments):
        if not interrupts:
            interrupts.append(at)
            signal.raise_signal(signal.SIGINT)
        method(self, *arguments)

    beside = opened("resident")
    with opened("scratchpipe", workers=2) as tables:
        monkeypatch.setattr(threading.Thread, at, interrupted)
        with pytest.raises(KeyboardInterrupt):
            tables.prefetch(BATCHES[0])
            tables.abandon()
        tables.abandon()
        for each in (tables, beside):
            each(BATCHES[1]).sum().backward()
            each.optimizer.step()
            each.flush()
        assert tables.sha256() == beside.sha256()
