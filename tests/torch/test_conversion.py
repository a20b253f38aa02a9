"""`convert`: a model's EmbeddingBags replaced in place."""

import copy

import hotrow
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import TrainPipeline, convert
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["resident", "scratchpipe", "hotline"])
def test_everything_else_stays(mode):
    torch.manual_seed(1)
    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    keys = list(model.state_dict())
    device = None if mode == "resident" else hotrow.open("model", config=PLANNING)
    tables = convert(model, device=device, mode=mode, lr=0.1)
    assert list(model.state_dict()) == keys
    shapes = [[(name, each.shape) for name, each in net.named_parameters()]
              for net in (model, other)]
    assert shapes[0] == shapes[1]
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


@pytest.mark.parametrize("options", [
    {"min_rows": 70}, {"choose": lambda name, bag: name == "more.0" and bag.padding_idx == 3}])
def test_bags_that_are_not_chosen_stay(options):
    """One that cannot be converted, too; all train as before."""
    torch.manual_seed(1)
    model = Model()
    model.one.max_norm = 1.0
    other = copy.deepcopy(model)
    with pytest.raises(Error, match=r"one: .*max_norm.*choose"):
        convert(model)
    before, keys = model.one, list(model.state_dict())
    with convert(model, optimizer="sgd", lr=0.1, **options) as tables:
        assert model.one is before and model.again is before
        assert [config.name for config in tables.tables] == ["more/0"]
        assert list(model.state_dict()) == keys
        steps = [(torch.optim.SGD(model.parameters(), 0.1), tables.optimizer),
                 (torch.optim.SGD(other.parameters(), 0.1),)]
        batch = torch.randint(0, 50, (12,)), torch.arange(0, 13, 3), torch.randint(0, 70, (4, 5))
        for each, optimizers in zip((model, other), steps, strict=True):
            each(*batch).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
        for value, expected in zip(model.state_dict().values(), other.state_dict().values(),
                                   strict=True):
            torch.testing.assert_close(value, expected)


def test_no_bag_is_chosen():
    with pytest.raises(Error, match=r"no bag of Model was chosen: .* leave out module 'again', "
                       r"module 'more.0', module 'one'"):
        convert(Model(), min_rows=71)


def test_ranks_that_would_train_rows_of_their_own(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(Error, match=r"convert\(\) in a process group of 2 ranks.*sharded=True"):
        convert(Model())


class Words(nn.Module):
    """Embeddings with ids of several shapes, beside a bag."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8, padding_idx=-1, sparse=True)
        self.kind = nn.Embedding(9, 8, dtype=torch.bfloat16)
        self.bag = nn.EmbeddingBag(20, 8, mode="sum")
        with torch.no_grad():
            self.words.weight[-1] = 3  # which nn.Embedding returns, and does not train

    @staticmethod
    def calls(words, kind, bag):
        return {"words": words, "kind": kind, "bag": bag}

    def forward(self, words, kind, bag):
        return (self.words(words).mean(1) * self.kind(kind).float() + self.bag(bag)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["resident", "scratchpipe", "freqcache", "hotline"])
@pytest.mark.parametrize("announced", [False, True])
def test_embeddings(mode, announced):
    torch.manual_seed(1)
    model, other = Words(), Words()
    other.load_state_dict(model.state_dict())
    inputs = Words.calls if announced else None
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    with convert(model, mode=mode, lr=0.1, inputs=inputs, **card) as tables:
        assert list(model.state_dict()) == list(other.state_dict())
        assert model.words(torch.tensor(3)).shape == (8,)
        assert model.kind(torch.tensor([[[3]]], dtype=torch.int32)).dtype == torch.bfloat16
        assert model.words(torch.empty(0, 3, dtype=torch.int64)).shape == (0, 3, 8)
        step = torch.optim.SGD(other.parameters(), 0.1)
        for _ in range(4):
            batch = (torch.randint(0, 50, (6, 1 if announced else 3)),
                     torch.randint(0, 9, (6,)), torch.randint(0, 20, (6, 2)))
            batch[0][::2, 0] = 49
            for each, optimizer in ((model, tables.optimizer), (other, step)):
                optimizer.zero_grad()
                each(*batch).backward()
                optimizer.step()
        for name, weight in other.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], weight, rtol=0.01, atol=0.01)
        with torch.no_grad():
            model(*batch)
        model.bag(batch[2]).sum().backward()  # the call without gradients announced nothing
        assert (model.words.weight[49] == 3).all()
        torch.testing.assert_close(model.eval()(*batch), other(*batch), rtol=0.01, atol=0.01)
    for options, said in (({"max_norm": 1.0}, "an Embedding with max_norm"),
                          ({"scale_grad_by_freq": True}, "scale_grad_by_freq")):
        with pytest.raises(hotrow.Error, match=said):
            convert(nn.Sequential(nn.Embedding(5, 4, **options)), mode="resident")


@pytest.mark.parametrize("bag, message", [
    (nn.EmbeddingBag(5, 4, max_norm=1.0), "0: an EmbeddingBag with max_norm cannot be converted"),
    (nn.EmbeddingBag(5, 4, mode="max"), "an EmbeddingBag with mode='max' cannot"),
    (nn.Linear(2, 2), "Sequential has no nn.EmbeddingBag or nn.Embedding to convert"),
])
def test_what_cannot_be_converted(bag, message):
    with pytest.raises(hotrow.Error, match=message):
        convert(nn.Sequential(bag), mode="resident")


def test_a_second_conversion_is_refused():
    model = nn.Sequential(nn.EmbeddingBag(10, 8), nn.Sequential(nn.EmbeddingBag(10, 8)))
    convert(model, mode="resident", choose=lambda name, _: name == "0")
    with pytest.raises(hotrow.Error, match=r"module '1\.0'; converted already: module '0'"):
        convert(model, mode="resident", choose=lambda name, _: name == "0")
    convert(model, mode="resident")  # what was left
    with pytest.raises(hotrow.Error, match=r"converted already: .* module '0', module '1\.0' are"):
        convert(model, mode="resident")


@pytest.mark.parametrize("kind", [nn.EmbeddingBag, nn.Embedding])
def test_a_bag_itself_is_made_anew(kind):
    name = kind.__name__
    with pytest.raises(hotrow.Error, match=f"an {name} itself: make a Hot{name} in"):
        convert(kind(5, 4), mode="resident")


class Bags(nn.Module):
    """A bag per column of ids, of several dims, one called twice and one perhaps unused."""

    def __init__(self, count, unused=False):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(50, (8, 4)[number % 2], mode=("sum", "mean")[
            number % 2]) for number in range(count))
        self.unused = unused

    def forward(self, ids):
        found = [bag(ids[:, number:number + 1]) for number, bag in enumerate(self.bags)]
        found.append(self.bags[0](ids[:, 1:]))
        if self.unused:
            found[1] = found[1].detach()
        return torch.cat(found, dim=1).square().mean()


def calls_of(ids):
    """The arguments of the bags of `Bags`, by name."""
    calls = {f"bags.{number}": ids[:, number:number + 1] for number in range(ids.shape[1])}
    return {**calls, "bags.0": [ids[:, :1], (ids[:, 1:],)]}


def trained(mode, count=3, every=1, inputs=None, pipeline=False, unused=False, **options):
    """Digests after 6 steps, and the commands of the card."""
    torch.manual_seed(5)
    model = Bags(count, unused)
    generator = torch.Generator().manual_seed(6)
    batches = [torch.randint(0, 50, (8, count), generator=generator) for _ in range(6 * every)]
    card = {} if mode == "resident" else {"device": hotrow.open("model", config=PLANNING)}
    with convert(model, inputs, mode=mode, lr=0.1, optimizer="rowwise_adagrad",
                 **card, **options) as tables:
        if pipeline:
            with TrainPipeline(batches, model, inputs=calls_of) as reader:
                reader.train(model)
        else:
            for number, ids in enumerate(batches, 1):
                model(ids).backward()
                if number % every == 0:
                    tables.optimizer.step()
                    tables.optimizer.zero_grad()
        commands = tables.store.device.statistics if card else {}
        tables.flush()
        return tables.sha256(), {name: each.commands for name, each in commands.items()}


@pytest.mark.slow
@pytest.mark.parametrize("mode, options", [
    ("scratchpipe", {"inputs": calls_of, "pipeline": True}), ("scratchpipe", {"pipeline": True}),
    ("scratchpipe", {"inputs": calls_of, "unused": True}), ("hotline", {"pipeline": True})])
def test_the_calls_of_a_forward_are_one_batch(mode, options):
    found, commands = trained(mode, **options)
    assert found == trained("resident", **options)[0]
    assert commands["PLAN" if mode == "scratchpipe" else "SPLIT"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("count, every, inputs", [
    pytest.param(30, 3, None, marks=pytest.mark.long),
    pytest.param(9, 8, None, marks=pytest.mark.long), (9, 8, calls_of)])
def test_a_step_has_any_number_of_calls(count, every, inputs):
    assert (trained("scratchpipe", count, every, inputs)[0]
            == trained("resident", count, every, inputs)[0])


@pytest.mark.parametrize("given, message", [
    ({"bags.7": torch.zeros(2, 1)}, "the model has no HotEmbeddingBag 'bags.7': expected inputs"),
    ({"bags.0": torch.zeros(2, 1).long(), "bags.1": torch.zeros(3, 1).long()},
     "have one number of samples, got \\[2, 3\\]"),
    ({"bags.0": (torch.zeros(2, 1).long(), None, torch.ones(2, 1)),
      "bags.1": torch.zeros(2, 1).long()}, "take no weights per sample: leave inputs out"),
    ({"bags.0": torch.ones(8, 1).long(), "bags.1": torch.ones(8, 1).long()},
     "is not the one that was announced"),
])
def test_inputs_that_do_not_fit_are_refused(given, message):
    with pytest.raises(hotrow.Error, match=message):
        trained("scratchpipe", 2, inputs=lambda ids: given)


@pytest.mark.parametrize("change", [
    lambda ids: ids.flip(0), lambda ids: ids.int(), lambda ids: ids[:3], torch.clone])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_call_with_other_ids_than_were_announced_has_its_own_rows(mode, change):
    torch.manual_seed(0)
    model = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(2))
    rows = [bag.weight.detach().clone() for bag in model]
    ids = torch.randint(0, 50, (8, 2))
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    with convert(model, lambda: {"0": ids[:, :1], "1": ids[:, 1:]}, mode=mode, lr=0.1,
                 **card):
        model.forward = lambda: (model[0](ids[:, :1]), model[1](change(ids[:, 1:])))
        for found, table, column in zip(model(), rows, (ids[:, 0], change(ids[:, 1])),
                                        strict=True):
            assert torch.equal(found, table[column.long()])


def test_a_handle_of_a_hook_removes_it_after_the_conversion():
    model = nn.Sequential(nn.Embedding(10, 4))
    handles = [model[0].register_forward_hook(lambda module, given, result: result * 0 + 7),
               model[0].register_forward_pre_hook(lambda module, given: (given[0] * 0,))]
    ids, rows = torch.tensor([[1, 2]]), model[0].weight.detach().clone()
    with convert(model, mode="resident"):
        assert (model(ids) == 7).all()
        handles[0].remove()
        assert (model(ids) == rows[0]).all()
        handles[1].remove()
        assert torch.equal(model(ids), rows[ids])


def test_a_module_of_two_names_is_chosen_by_both_or_none():
    model = nn.ModuleDict({"one": nn.Embedding(10, 4), "other": nn.Embedding(10, 4)})
    model["again"] = model["one"]
    with pytest.raises(Error, match="again and one are one module, and choose takes one of them"):
        convert(model, choose=lambda name, bag: name != "again", mode="resident")
    convert(model, choose=lambda name, bag: name != "other", mode="resident").close()
    assert model["again"] is model["one"]
