"""TorchRec's KeyedJaggedTensors in, its KeyedTensors out, and its own collection as reference."""

import hotrow
import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, TableConfig

from tests.torch.training import PLANNING, TABLES, draw

torchrec = pytest.importorskip("torchrec", reason="needs the package torchrec",
                               exc_type=ImportError)

NAMES = [config.name for config in TABLES]
RATE, SEED = 0.2, 9


def keyed(batch, names=NAMES):
    """A batch of `draw` as a KeyedJaggedTensor with its keys in some order."""
    columns = dict(zip(NAMES, batch.ids, strict=True))
    return torchrec.KeyedJaggedTensor(
        keys=list(names), values=torch.cat([columns[name][0] for name in names]),
        lengths=torch.cat([torch.diff(columns[name][1],
                                      append=torch.tensor([len(columns[name][0])]))
                           for name in names]).to(torch.int32))


def pooled_by(collection, batch, names=NAMES):
    found = collection(keyed(batch, names))
    assert isinstance(found, torchrec.KeyedTensor)
    assert list(found.keys()) == NAMES
    return found


@pytest.mark.parametrize("mode", ["resident", "scratchpipe", "hotline"])
def test_trains_as_with_offsets(mode):
    digests = []
    for given in ("offsets", "keyed"):
        device = None if mode == "resident" else hotrow.open("model", config=PLANNING)
        with HotEmbeddingBagCollection(TABLES, device, mode, "rowwise_adagrad", RATE,
                                       seed=3) as collection:
            for batch in draw(SEED, 8):
                if given == "offsets":
                    pooled = collection(batch.ids)
                else:
                    collection.prefetch(keyed(batch))
                    pooled = pooled_by(collection, batch).values()
                pooled.square().sum().backward()
                collection.optimizer.step()
            collection.flush()
            digests.append(collection.sha256())
        if device is not None:
            device.close()
    assert digests[0] == digests[1], f"seed {SEED}"


def test_keys_in_any_order():
    with HotEmbeddingBagCollection(TABLES, None, "resident", seed=3) as collection:
        collection.eval()
        for batch in draw(SEED, 3):
            expected = pooled_by(collection, batch)
            found = pooled_by(collection, batch, NAMES[::-1])
            for name in NAMES:
                assert torch.equal(found[name], expected[name]), name


def test_agrees_with_torchrecs_collection():
    """Sum and mean pooling, empty bags, and a step of SGD."""
    kinds = {"sum": torchrec.PoolingType.SUM, "mean": torchrec.PoolingType.MEAN}
    theirs = torchrec.EmbeddingBagCollection(device=torch.device("cpu"), tables=[
        torchrec.EmbeddingBagConfig(
            name=config.name, embedding_dim=config.embedding_dim,
            num_embeddings=config.num_embeddings, feature_names=[config.name],
            pooling=kinds[config.pooling]) for config in TABLES])
    with HotEmbeddingBagCollection(TABLES, None, "resident", "sgd", RATE, seed=3) as ours:
        assert theirs.state_dict().keys() == ours.state_dict().keys()
        theirs.load_state_dict(ours.state_dict())
        step = torch.optim.SGD(theirs.parameters(), RATE)
        for batch in draw(SEED, 5):
            found, expected = pooled_by(ours, batch), theirs(keyed(batch))
            for name in NAMES:
                torch.testing.assert_close(found[name], expected[name])
            for pooled in (found, expected):
                pooled.values().square().sum().backward()
            ours.optimizer.step()
            step.step()
            step.zero_grad()
        for name, weights in ours.state_dict().items():
            torch.testing.assert_close(weights, theirs.state_dict()[name])


def test_several_features_of_a_table_and_rows_as_they_are():
    """Keys and values are those of TorchRec's collections; a feature of two tables has both names.
    """
    ids = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=["a", "b", "c"], values=torch.tensor([3, 4, 5, 6, 7, 8]),
        lengths=torch.tensor([2, 0, 1, 1, 1, 1], dtype=torch.int32))
    names = [("one", ["b", "a"]), ("two", ["a"])]
    for pooling, kind, beside in (
            ("sum", torchrec.EmbeddingBagConfig, torchrec.EmbeddingBagCollection),
            ("none", torchrec.EmbeddingConfig, torchrec.EmbeddingCollection)):
        more = {} if pooling == "none" else {"pooling": torchrec.PoolingType.SUM}
        theirs = beside(tables=[kind(name=name, embedding_dim=8, num_embeddings=20,
                                     feature_names=features, **more) for name, features in names])
        tables = [TableConfig(name, 20, 8, pooling, feature_names=features)
                  for name, features in names]
        with HotEmbeddingBagCollection(tables, None, "resident", seed=3) as collection:
            modules = theirs.embedding_bags if pooling == "sum" else theirs.embeddings
            for config in tables:
                modules[config.name].weight.data.copy_(collection.table(config.name)[0])
            found, expected = collection(ids), theirs(ids)
            assert list(found.keys()) == list(expected.keys()) == ["b", "a@one", "a@two"]
            for name in found.keys():  # noqa: SIM118
                here, there = found[name], expected[name]
                if pooling == "none":
                    assert torch.equal(here.lengths(), there.lengths())
                    here, there = here.values(), there.values()
                torch.testing.assert_close(here, there)
