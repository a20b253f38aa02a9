"""TorchRec's KeyedJaggedTensors in, its KeyedTensors out, and its own collection as reference."""

import hotrow
import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig

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
                                       options=Options(seed=3)) as collection:
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
    with HotEmbeddingBagCollection(TABLES, None, "resident", options=Options(seed=3)) as collection:
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
    with HotEmbeddingBagCollection(TABLES, None, "resident", "sgd", RATE,
                                   options=Options(seed=3)) as ours:
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
        with HotEmbeddingBagCollection(tables, None, "resident",
                                       options=Options(seed=3)) as collection:
            modules = theirs.embedding_bags if pooling == "sum" else theirs.embeddings
            for config in tables:
                modules[config.name].weight.data.copy_(collection.embeddings[config.name].weight.detach())
            found, expected = collection(ids), theirs(ids)
            assert list(found.keys()) == list(expected.keys()) == ["b", "a@one", "a@two"]
            for name in found.keys():  # noqa: SIM118
                here, there = found[name], expected[name]
                if pooling == "none":
                    assert torch.equal(here.lengths(), there.lengths())
                    here, there = here.values(), there.values()
                torch.testing.assert_close(here, there)


def test_the_last_of_a_repeated_key_counts():
    for pooled in (True, False):
        theirs, configs = torchrecs(pooled)
        ours = HotEmbeddingBagCollection(configs, mode="resident")
        ours.load_state_dict(theirs.state_dict())
        ids = torchrec.KeyedJaggedTensor(
            keys=["fa", "fb", "fa"], values=torch.arange(6),
            lengths=torch.tensor([2, 1, 0, 1, 1, 1], dtype=torch.int32))
        found, expected = ours(ids), theirs(ids)
        for name in ("fa", "fb"):
            if not pooled:
                assert found[name].lengths().dtype == expected[name].lengths().dtype
            here, there = (each[name] if pooled else each[name].values()
                           for each in (found, expected))
            torch.testing.assert_close(here, there)


def torchrecs(pooled=True, **options):
    """TorchRec's collection of two tables, and its configs."""
    more = {"pooling": torchrec.PoolingType.MEAN} if pooled else {}
    kind, module = ((torchrec.EmbeddingBagConfig, torchrec.EmbeddingBagCollection) if pooled else
                    (torchrec.EmbeddingConfig, torchrec.EmbeddingCollection))
    configs = [kind(name=name, embedding_dim=8, num_embeddings=20, feature_names=[f"f{name}"],
                    **more, **options) for name in "ab"]
    return module(tables=configs), configs


@pytest.mark.parametrize("pooled", [True, False])
def test_torchrecs_configs_are_tables_and_state_goes_both_ways(pooled):
    theirs, configs = torchrecs(pooled)
    ours = HotEmbeddingBagCollection(configs, mode="resident")
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    own = (ours.embedding_bag_configs if pooled else ours.embedding_configs)()
    assert own == configs and own is not configs
    same = HotEmbeddingBagCollection(ours.tables, mode="resident")
    made = (same.embedding_bag_configs if pooled else same.embedding_configs)()
    for each in (*made, *configs):
        each.init_fn = None  # partial functions are never equal
    assert made == configs
    assert not [name for name in dir(theirs) if name[0] != "_" and not hasattr(ours, name)
                and name not in ("embedding_names_by_table", "need_indices")
                and not name.startswith("use_gather_select")]
    ids = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=["fa", "fb"], values=torch.arange(6), lengths=torch.tensor([2, 1, 0, 3]))
    found, expected = ours(features=ids), theirs(ids)
    for name in expected.keys():  # noqa: SIM118
        here, there = (each[name] if pooled else each[name].values() for each in (found, expected))
        torch.testing.assert_close(here, there)


def test_torchrecs_dlrm_takes_the_collection():
    from torchrec.models.dlrm import DLRM

    theirs, configs = torchrecs()
    ours = HotEmbeddingBagCollection(configs, mode="resident", lr=0.1)
    ours.load_state_dict(theirs.state_dict())
    models = []
    for each in (ours, theirs):
        torch.manual_seed(0)
        models.append(DLRM(each, 3, [16, 8], [8, 1]))
    ids = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=["fa", "fb"], values=torch.arange(4), lengths=torch.ones(4, dtype=torch.int32))
    for model in models:
        model(torch.ones(2, 3), ids).sum().backward()
    ours.optimizer.step()
    torch.optim.SGD(theirs.parameters(), 0.1).step()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight)


def test_parameters_are_drawn_again_and_other_configs_refused():
    _, configs = torchrecs(init_fn=lambda each: torch.nn.init.constant_(each, 2))
    ours = HotEmbeddingBagCollection(configs, mode="resident")
    assert (ours.embeddings["a"].weight.detach() == 2).all()
    ours.embeddings["a"].weight.detach().zero_()
    ours.reset_parameters()
    assert (ours.embeddings["a"].weight.detach() == 2).all() and ours.device == torch.device("cpu")
    assert not ours.is_weighted()
    _, configs = torchrecs(data_type=torchrec.DataType.FP16)
    configs[0].data_type = torchrec.DataType.INT8
    with pytest.raises(hotrow.Error, match="INT8"):
        HotEmbeddingBagCollection(configs, mode="resident")
    with pytest.raises(hotrow.Error, match="TableConfigs"):
        HotEmbeddingBagCollection(["a"], mode="resident")
