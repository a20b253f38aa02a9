"""Mode resident looks tables up in one call, or on the path of the other modes: bits are equal."""

import pytest
import torch
from hotrow.contract.errors import BatchError, Error
from hotrow.torch import HotEmbeddingBagCollection, TableConfig
from hotrow.torch.store.whole_tables import WholeLookup, WholeTables

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
