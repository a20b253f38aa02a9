"""`convert`: a model's EmbeddingBags replaced in place."""

import hotrow
import pytest
import torch
from hotrow.torch import convert
from torch import nn

from tests.torch.training import PLANNING


class Model(nn.Module):
    """Bags of several kinds, one in a list, one used twice."""

    def __init__(self):
        super().__init__()
        self.one = nn.EmbeddingBag(50, 6, mode="sum", include_last_offset=True)
        self.more = nn.ModuleList([nn.EmbeddingBag(70, 8, padding_idx=3)])
        self.again = self.one
        self.top = nn.Linear(20, 1)

    def forward(self, ids, offsets, rows):
        return self.top(torch.cat((self.one(ids, offsets), self.again(ids.flip(0), offsets),
                                   self.more[0](rows)), dim=1))


@pytest.mark.parametrize("mode", ["resident", "scratchpipe", "hotline"])
def test_everything_else_stays(mode):
    torch.manual_seed(1)
    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    keys = list(model.state_dict())
    device = None if mode == "resident" else hotrow.open("model", config=PLANNING)
    tables = convert(model, device=device, mode=mode, lr=0.1)
    assert list(model.state_dict()) == keys
    assert [name for name, each in model.named_parameters() if each.numel()] == [
        "top.weight", "top.bias"]
    steps = [(torch.optim.SGD(model.parameters(), 0.1), tables.optimizer),
             (torch.optim.SGD(other.parameters(), 0.1),)]
    for _ in range(5):
        batch = torch.randint(0, 50, (12,)), torch.arange(0, 13, 3), torch.randint(0, 70, (4, 5))
        for each, optimizers in zip((model, other), steps, strict=True):
            for optimizer in optimizers:
                optimizer.zero_grad()
            each(*batch).square().sum().backward()
            parameters = [*each.parameters(), *(tables.gradients() if each is model else [])]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer in optimizers:
                optimizer.step()
    for value, expected in zip(model.state_dict().values(), other.state_dict().values(),
                               strict=True):
        torch.testing.assert_close(value, expected)
    fresh = Model()
    model.load_state_dict(fresh.state_dict())
    model.eval(), fresh.eval()
    torch.testing.assert_close(model(*batch), fresh(*batch))
    tables.close()


@pytest.mark.parametrize("bag, message", [
    (nn.EmbeddingBag(5, 4, max_norm=1.0), "0: an EmbeddingBag with max_norm cannot be converted"),
    (nn.EmbeddingBag(5, 4, mode="max"), "an EmbeddingBag with mode='max' cannot"),
    (nn.Linear(2, 2), "Sequential has no nn.EmbeddingBag to convert"),
])
def test_what_cannot_be_converted(bag, message):
    with pytest.raises(hotrow.Error, match=message):
        convert(nn.Sequential(bag), mode="resident")
