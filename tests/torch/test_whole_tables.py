"""Mode resident looks tables up in one call, or on the path of the other modes: bits are equal."""

from contextlib import ExitStack

import hotrow
import pytest
import torch
from hotrow.contract.errors import BatchError, Error
from hotrow.torch import Adagrad, HotEmbeddingBagCollection, Options, TableConfig
from hotrow.torch.store import whole_tables
from hotrow.torch.store.whole_tables import WholeLookup, WholeTables
from torch.nn.utils import clip_grad_norm_

SAMPLES = 30
MIXED = [TableConfig("a", 40, 16), TableConfig("b", 9, 4, "mean"),
         TableConfig("c", 70, 16, feature_names=("c", "d"), dtype=torch.bfloat16),
         TableConfig("e", 50, 16, "mean")]
ONE = [TableConfig("a", 40, 20), TableConfig("c", 9, 20, feature_names=("c", "d"))]
MEAN = [TableConfig("a", 40, 20, "mean"), TableConfig("c", 9, 20, feature_names=("c", "d"))]


def grid(tables):
    return [torch.stack([torch.randint(0, table.num_embeddings, (SAMPLES,))
                         for table in tables for _ in table.feature_names], 1)]


def jagged(tables, weighted=False):
    parts = []
    for table in tables:
        for _ in table.feature_names:
            ends = torch.randint(0, 4, (SAMPLES,)).cumsum(0)
            ids = torch.randint(0, table.num_embeddings, (int(ends[-1]),), dtype=torch.int32)
            parts.append((ids, torch.cat((torch.zeros(1, dtype=torch.int64), ends[:-1])),
                          *([torch.randn(len(ids))] if weighted else [])))
    return [parts]


def weighted(tables):
    return jagged(tables, True)


def trained(tables, optimizer, batches, monkeypatch, whole):
    taken = []
    with monkeypatch.context() as patch:
        look_up = WholeTables.look_up
        patch.setattr(WholeTables, "look_up", lambda self, bags: (
            taken.append(look_up(self, bags)) or taken[-1]) if whole else None)
        collection = HotEmbeddingBagCollection(tables, optimizer=optimizer, lr=0.3, seed=1)
        for number, (batch, weights) in enumerate(batches):
            ids = batch[0].clone() if isinstance(batch[0], torch.Tensor) else batch[0]
            found = collection(ids)
            if isinstance(ids, torch.Tensor):
                ids.zero_()  # the caller's again
            (found * weights).sum().backward()
            if number % 3:  # some steps have the gradients of two batches
                collection.optimizer.step()
        results = [found.detach(), *(part for table in collection.embeddings.values()
                                     for part in (table.weight.detach(), table.state)
                                     if part is not None)]
    return results, taken


@pytest.mark.parametrize("tables, make, fused", [
    (ONE, grid, True), (ONE, jagged, True), (ONE, weighted, True), (MEAN, jagged, True),
    (MIXED, grid, True), (MIXED, jagged, False)])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_both_paths_have_the_same_bits(tables, make, fused, optimizer, monkeypatch):
    torch.manual_seed(3)
    width = sum(table.embedding_dim * len(table.feature_names) for table in tables)
    batches = [(make(tables), torch.randn(SAMPLES, width)) for _ in range(6)]
    ours, taken = trained(tables, optimizer, batches, monkeypatch, True)
    theirs, _ = trained(tables, optimizer, batches, monkeypatch, False)
    assert all(map(torch.equal, ours, theirs))
    assert len(taken) == 6 and all(isinstance(each, WholeLookup) == fused for each in taken)


@pytest.mark.parametrize("wrong", [40, -1, 1 << 40])
def test_a_wrong_id_changes_nothing_and_is_named(wrong):
    collection = HotEmbeddingBagCollection(ONE, lr=0.3, seed=1)
    before, [ids] = collection.embeddings["a"].weight.detach().clone(), grid(ONE)
    ids[7, 0] = wrong
    with pytest.raises(BatchError, match=f"batch 0: id {wrong} of sample 7 is no row of table 'a'"):
        collection(ids)
    assert not collection.batches.count and collection.staging.empty
    ids[7, 0] = 39
    collection(ids).sum().backward()
    collection.gradients()[0].grad.data[0] = float("inf")
    with pytest.raises(Error, match="not finite, and nothing was applied"):
        collection.optimizer.step()
    assert torch.equal(collection.embeddings["a"].weight, before)


def test_evaluation_trains_and_counts_nothing():
    collection = HotEmbeddingBagCollection(ONE, lr=0.3, seed=1).eval()
    [ids] = grid(ONE)
    found = collection(ids)
    assert torch.equal(found[:, :20], collection.embeddings["a"].weight[ids[:, 0]])
    found.sum().backward()
    assert collection.staging.empty and not collection.batches.count
    with pytest.raises(Error, match="looked up in eval"):
        collection.optimizer.step()


def long_bags(samples=SAMPLES):
    """Bags of 3 ids."""
    return [(torch.randint(0, table.num_embeddings, (3 * samples,)), torch.arange(samples) * 3)
            for table in ONE for _ in table.feature_names]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", Adagrad(0.1, weight_decay=0.1)])
def test_gradients_that_somebody_sees_are_those_of_the_step(optimizer):
    """Rows train without their sums, unless these are looked at, or the rule needs them."""
    ends = []
    for looks in (False, True):
        torch.manual_seed(5)
        with HotEmbeddingBagCollection(ONE, optimizer=optimizer, lr=0.3, seed=1) as collection:
            for _ in range(3):
                batch = long_bags()
                gradient = torch.randn(SAMPLES, 60)
                collection(batch).backward(gradient)
                gradient.fill_(float("nan"))  # the caller's again
                assert not collection.staging.empty and collection.staging.nbytes
                if looks:
                    norm = clip_grad_norm_(collection.gradients(), 1e9)
                    assert norm > 0
                assert (collection.staging.rows[0].deferred is None) == looks
                collection.optimizer.step()
                assert collection.staging.empty and collection.gradients()[0].grad is None
            ends.append([part.clone() for table in collection.embeddings.values()
                         for part in (table.weight.detach(), table.state) if part is not None])
    assert all(map(torch.equal, *ends))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 3e38])
def test_a_gradient_of_long_bags_that_is_not_finite_changes_nothing(wrong):
    collection = HotEmbeddingBagCollection(ONE, lr=0.3, seed=1)
    before = collection.embeddings["a"].weight.detach().clone()
    gradient = torch.ones(SAMPLES, 60)
    gradient[:, 3] = wrong
    collection([(ids * 0 + 2, offsets) for ids, offsets in long_bags()]).backward(gradient)
    with pytest.raises(Error, match="row 2 of table 'a' is not finite, and nothing was applied"):
        collection.optimizer.step()
    assert torch.equal(collection.embeddings["a"].weight, before)
    collection.optimizer.zero_grad()
    assert collection.staging.empty


def test_gradients_of_long_bags_are_set_scaled_and_dropped():
    collection = HotEmbeddingBagCollection(ONE, lr=1.0, seed=1)
    before = collection.embeddings["a"].weight.detach().clone()
    sums, = collection.gradients()
    collection(long_bags()).sum().backward()
    sums.grad = None
    collection.optimizer.step()
    assert torch.equal(collection.embeddings["a"].weight, before)
    collection(long_bags()).sum().backward()
    sums.grad.data[:] = float("nan")
    with pytest.raises(Error, match="not finite"):
        collection.optimizer.step()
    collection.optimizer.zero_grad()
    collection([(ids * 0, offsets) for ids, offsets in long_bags()]).sum().backward()
    sums.grad *= 0.5
    collection.optimizer.step()
    torch.testing.assert_close(collection.embeddings["a"].weight[0], before[0] - 1.5 * SAMPLES)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
def test_rows_in_slots_step_without_sums(monkeypatch, optimizer):
    """Bags of several ids, of which a plan evicts and bypasses rows, have the bits of resident."""
    tables = [TableConfig(f"t{number}", 400, 8) for number in range(3)]
    generator, found, stepped = torch.Generator().manual_seed(4), [], []
    offsets = torch.arange(0, 24 * 5 + 1, 5)
    batches = [torch.randint(400, (24 * 5,), generator=generator) for _ in range(6)]
    step = whole_tables._Gradients.step
    monkeypatch.setattr(whole_tables._Gradients, "step", lambda self, rule: (
        stepped.append(len(found)) or step(self, rule)))
    for slots in (None, 1 << 14, 64):
        with ExitStack() as held:
            device = slots and held.enter_context(hotrow.open("cpu", slots=slots))
            collection = HotEmbeddingBagCollection(
                tables, device, "scratchpipe" if slots else "resident", optimizer, 0.1,
                options=Options(seed=1))
            for ids in batches:
                collection(ids, offsets).square().sum().backward()
                collection.optimizer.step()
            found.append([each.clone() for each in collection.state_dict().values()])
            collection.close()
    assert {0, 1} <= {*stepped}
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))
