"""A default device of PyTorch concerns the caller's tensors: tables are the host's, and train."""

import copy

import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, TrainPipeline, convert
from torch import nn

IDS = torch.stack([torch.arange(32) % 9, torch.arange(32) * 5 % 20], 1)
MODES = "resident", "scratchpipe", "freqcache", "hotline"


def collection(mode, ids):
    return HotEmbeddingBagCollection([TableConfig("a", 30, 4, ids=ids), TableConfig("b", 20, 4)],
                                     mode=mode, optimizer="rowwise_adagrad", lr=0.1,
                                     options=Options(seed=0))


def steps(trained):
    for _ in range(3):
        trained(IDS).sin().sum().backward()
        trained.optimizer.step()
    with torch.no_grad():
        trained.eval()(IDS)
    trained.train()
    return trained.sha256()


@pytest.fixture(params=["set", "with"])
def elsewhere(request):
    """A block with `meta` as default device."""
    class Block:
        def __enter__(self):
            self.inner = torch.device("meta")
            torch.set_default_device("meta") if request.param == "set" else self.inner.__enter__()

        def __exit__(self, *error):
            torch.set_default_device(None) if request.param == "set" else self.inner.__exit__(
                *error)
    return Block()


@pytest.mark.parametrize("ids", ["rows", "any"])
@pytest.mark.parametrize("mode", MODES)
def test_making_training_and_loading(mode, ids, elsewhere):
    with collection(mode, ids) as beside:
        expected = steps(beside)
        state, optimizer = copy.deepcopy((beside.state_dict(), beside.optimizer.state_dict()))
        later = steps(beside)
    with elsewhere:
        trained = collection(mode, ids)
        assert torch.empty(1).is_meta
        found = steps(trained)
        memory = trained.memory
        changed = ids == "any" and trained.changes(0)["a"].rows.numel()
        trained.state_dict()
        trained.close()
        loaded = collection(mode, ids)
        loaded.load_state_dict(state)
        loaded.optimizer.load_state_dict(optimizer)
        resumed = steps(loaded)
        loaded.close()
    assert (found, resumed) == (expected, later) and memory is not None
    assert changed == (9 if ids == "any" else False)


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_converted_model_and_a_pipeline(mode, elsewhere):
    def trained(block):
        torch.manual_seed(0)
        model = nn.Sequential(nn.EmbeddingBag(20, 4), nn.Linear(4, 1))
        with block, convert(model, mode=mode, lr=0.1) as tables:
            with TrainPipeline([IDS] * 4, model, inputs=lambda ids: {"0": ids}) as pipeline:
                for ids in pipeline:
                    model(ids).sum().backward()
                    tables.optimizer.step()
            return tables.sha256()
    assert trained(elsewhere) == trained(torch.device("cpu"))
