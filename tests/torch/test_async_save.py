"""`torch.distributed.checkpoint.async_save` copies tables at the step at which it is called."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, convert
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict

IDS = torch.stack([torch.arange(64) % 50, torch.arange(64) * 7 % 40], 1)


@pytest.fixture(autouse=True, scope="module")
def one_process(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.EmbeddingBag(50, 8, mode="sum"), nn.Embedding(40, 8)
        self.top = nn.Linear(16, 1)

    def forward(self, ids):
        return self.top(torch.cat((self.a(ids[:, :1]), self.b(ids[:, 1])), 1))


def collection(mode, optimizer):
    made = HotEmbeddingBagCollection(  # two tables in one array, and one with another width
        [TableConfig("a", 50, 8), TableConfig("b", 45, 8)],
        mode=mode, optimizer=optimizer, lr=0.1, options=Options(seed=0))
    return made, made


def converted(mode, optimizer):
    model = Model()
    return model, convert(model, mode=mode, optimizer=optimizer, lr=0.1)


@pytest.mark.parametrize("state_of", [nn.Module.state_dict, get_model_state_dict])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("make", [collection, converted])
def test_a_copy_of_the_step(tmp_path, make, mode, optimizer, state_of):
    model, tables = make(mode, optimizer)

    def step():
        model(IDS).sin().sum().backward()
        tables.optimizer.step()
    for _ in range(2):
        step()
    kept = copy.deepcopy(state_of(model))
    saving = dcp.async_save({"model": state_of(model)}, checkpoint_id=tmp_path)
    step()
    saving.result()
    found = {"model": copy.deepcopy(state_of(model))}
    assert any(not torch.equal(found["model"][key], value)
               for key, value in kept.items() if torch.is_tensor(value)), "the step moved nothing"
    dcp.load(found, checkpoint_id=tmp_path)
    for key, value in kept.items():
        assert not torch.is_tensor(value) or torch.equal(found["model"][key], value), key
    tables.close()
