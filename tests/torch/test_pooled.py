"""Mode `hotline` with cold rows pooled and updated on the card."""

from dataclasses import replace

import hotrow
import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, convert
from hotrow.torch.training.check import StepCheck
from hotrow_rtl.config import preset
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.torch.conftest import emptied, relearn
from tests.torch.test_hotline import KINDS


@pytest.mark.slow
@pytest.mark.parametrize("transport, optimizer, jagged", [
    *(("model", *kind) for kind in KINDS),
    *(pytest.param("sim", *kind, marks=pytest.mark.long) for kind in KINDS)])
def test_a_step_is_the_reference_s_within_the_tolerance(setting, transport, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    with hotrow.open(transport, preset="tiny") as device:
        trainer = here.hotline(device, cold="pooled")
        check, popular, cold = StepCheck(trainer, here.reference()), 0, 0
        for number, samples in enumerate(here.batches(4)):
            if number == 0:
                trainer.observe(samples)
            if number == 1:
                trainer.learn(60)
            check.step(samples)
            result = trainer.step(samples)
            popular += result.popular
            cold += result.lookups - result.hits
            assert 0 < result.rows_moved <= 2 * (result.lookups - result.hits)
        assert popular and cold, "the test needs both parts"
        assert check.held and 0 < check.max_difference <= 1
        commands = device.statistics
        assert commands["POOL"].commands == commands["UPDATE"].commands == 8
        assert (commands["GATHER"].commands > 1) == jagged, "hot rows, and cold ones of their bags"


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_an_update_left_out_is_seen(setting, device, optimizer, monkeypatch):
    here = setting(2, optimizer=optimizer)
    trainer = here.hotline(device, cold="pooled")
    check = StepCheck(trainer, here.reference())
    first, second = here.batches(2)
    check.step(first)
    assert check.held
    monkeypatch.setattr(device, "update", lambda *_, **__: None)
    check.step(second)
    assert not check.held


def test_with_every_row_hot_nothing_is_left_to_the_card(setting, device):
    here = setting(3, cardinalities=(20, 30))
    trainer, resident = here.hotline(device, cold="pooled"), here.resident()
    batches = here.batches(3)
    for samples in batches:
        trainer.observe(samples)
    trainer.learn(100)
    trainer.counted()
    for samples in batches:
        assert trainer.step(samples).rows_moved == 0
        resident.step(samples)
    trainer.flush()
    assert trainer.tables.sha256() == resident.tables.sha256()
    assert not {"POOL", "UPDATE"} & device.statistics.keys()


@pytest.mark.slow
def test_hot_rows_learned_again(setting, device):
    here = setting(4, optimizer="rowwise_adagrad", jagged=True)
    _, check, schedule = relearn(here, device, here.batches(10, drift=8.0), cold="pooled")
    assert check.held and schedule.replaced > 0


@pytest.mark.slow
def test_batches_of_any_size(setting, device):
    here = setting(5, jagged=True)
    trainer = here.hotline(device, cold="pooled")
    check = StepCheck(trainer, here.reference())
    for count in (8, 64, 1, 128, 3):
        samples = here.samples(count)
        check.step(samples)
        trainer.step(samples)
    assert check.held


def test_a_card_without_arithmetic_is_refused(setting):
    here = setting(6)
    with (hotrow.open("model", config=replace(preset("tiny"), arithmetic=0)) as device,
          pytest.raises(hotrow.Error, match=r"no arithmetic.*cold='gathered'")):
        here.hotline(device, cold="pooled")


def collection(device, tables, **options):
    return HotEmbeddingBagCollection(tables, device, "hotline", lr=0.1,
                                     seed=0, **options)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_batches_of_one_step_are_resident_to_the_bit(device, optimizer):
    """Jagged bags with hot rows, cold rows and both; a scaler's factor reaches cold rows, too."""
    tables = [TableConfig("user", 60, 8), TableConfig("item", 90, 20, "mean")]
    generator, ends, batches = torch.Generator().manual_seed(3), [], []
    for _ in range(6):
        lengths = torch.randint(9, (2, 16), generator=generator)
        drawn = [torch.rand(int(each.sum()), generator=generator) ** 2 for each in lengths]
        batches.append([
            ((part * config.num_embeddings).long(), each.cumsum(0) - each)
            for config, part, each in zip(tables, drawn, lengths, strict=True)])
    for options in ({"mode": "resident"}, {"device": device, "mode": "hotline"},
                    {"device": device, "mode": "hotline", "cold": "pooled"}):
        with HotEmbeddingBagCollection(tables, lr=0.1, seed=0, optimizer=optimizer,
                                       **options) as embeddings:
            if options["mode"] == "hotline":
                embeddings.learn({"user": range(9), "item": range(20)})
            for number, bags in enumerate(batches):
                (embeddings(bags).square().sum() * 4).backward()
                if number % 2:
                    for each in embeddings.gradients():
                        if each.grad is not None:
                            each.grad /= 4
                    embeddings.optimizer.step()
                    embeddings.optimizer.zero_grad()
            embeddings.flush()
            ends.append([part.clone() for config in tables
                         for part in embeddings.contents.table(config.name) if part is not None])
        emptied(device)
    resident, gathered, pooled = ends
    assert all(map(torch.equal, gathered, resident)) and all(map(torch.equal, pooled, resident))


def test_a_cold_row_s_gradient_that_is_not_finite_is_named(device):
    with collection(device, [TableConfig("user", 60, 8)], cold="pooled") as embeddings:
        found = embeddings(torch.tensor([[7], [8]]))
        (found * torch.tensor([[1.0], [float("nan")]])).sum().backward()
        with pytest.raises(hotrow.Error, match="row 8 of table 'user' is not finite"):
            embeddings.optimizer.step()
        embeddings.optimizer.zero_grad()


@pytest.mark.parametrize("table, options, message", [
    (TableConfig("a", 60, 6), {}, "'a': the card pools float32 rows whose dim is a multiple of 4"),
    (TableConfig("a", 60, 8, dtype=torch.float16), {}, "not torch.float16 rows"),
    (TableConfig("a", 60, 8, "none"), {}, "'a' is not pooled: leave cold='pooled' out"),
    (TableConfig("a", 60, 8), {"optimizer": "adagrad"}, "sgd or rowwise_adagrad, not adagrad"),
    (TableConfig("a", 60, 8), {"mode": "scratchpipe"}, "scratchpipe has no cold rows"),
    (TableConfig("a", 60, 8), {"cold": "kept"}, "cold is 'gathered' or 'pooled', not 'kept'"),
])
def test_what_the_card_does_not_pool_is_refused(device, table, options, message):
    options = {"cold": "pooled", "mode": "hotline", **options}
    with pytest.raises(hotrow.Error, match=message):
        HotEmbeddingBagCollection([table], device, **options)


def test_weights_per_sample_are_refused(device):
    with (collection(device, [TableConfig("user", 60, 8)], cold="pooled") as embeddings,
          pytest.raises(hotrow.Error, match="weights per sample need cold='gathered'")):
        embeddings(torch.tensor([1, 2]), torch.tensor([0, 2]), torch.ones(2))


def test_bags_that_backward_repeats(device):
    """Activation checkpointing looks up one of three bags again: it has the sums of its own."""
    ends, batches = [], [torch.randint(50, (6, 3), generator=torch.Generator().manual_seed(seed))
                         for seed in range(4)]
    for options in ({"mode": "resident"}, {"mode": "hotline", "cold": "pooled", "device": device}):
        torch.manual_seed(1)
        model = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(3))
        tables = convert(model, optimizer="sgd", lr=0.1, **options)

        def forward(ids, model=model):
            sums = [bag(ids[:, [number]]) for number, bag in enumerate(model) if number != 1]
            again = checkpoint(lambda part: model[1](part).exp(), ids[:, [1]], use_reentrant=False)
            return (sums[0] * again * sums[1]).sum()

        for ids in batches:
            if options["mode"] == "hotline":
                tables.prefetch(tables.batches.bags(ids))
            forward(ids).backward()
            tables.optimizer.step()
            tables.optimizer.zero_grad()
        tables.flush()
        ends.append([bag.weight.detach().clone() for bag in model])
        tables.close()
    for pooled, resident in zip(*ends[::-1], strict=True):
        assert torch.equal(pooled, resident)
