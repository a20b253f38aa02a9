"""TorchRec's KeyedJaggedTensors in, its KeyedTensors out, and its own collection beside ours."""

import hotrow
import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection

from .training import PLANNING, TABLES, draw

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
