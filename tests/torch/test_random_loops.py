"""Random KeyedJaggedTensors and loops over a pipeline, held to plain PyTorch and mode resident."""

from dataclasses import dataclass

import hotrow
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, TrainPipeline
from hotrow.torch.features import bags as forms
from hotrow.torch.features.inputs import keyed_parts
from hotrow.torch.store.cached import CachedStore
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.nn.functional import embedding_bag

SETTINGS = settings(max_examples=60, derandomize=True, database=None, deadline=None,
                    print_blob=True, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Keyed:
    """What a KeyedJaggedTensor offers; `order` are its keys."""

    order: list
    sizes: list
    weighted: bool
    wide: bool
    seed: int

    def keys(self):
        return self.order

    def lengths(self):
        generator = torch.Generator().manual_seed(self.seed)
        lengths = torch.randint(0, 4, (sum(self.sizes),), generator=generator)
        return lengths if self.wide else lengths.int()

    def values(self):
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randint(0, 30, (int(self.lengths().sum()),), generator=generator)

    def weights_or_none(self):
        return torch.linspace(0.5, 2, len(self.values())) if self.weighted else None

    def stride_per_key(self):
        return self.sizes

    def of(self, key):
        """Ids, offsets and weights of a key."""
        at, lengths = self.order.index(key), self.lengths().split(self.sizes)
        counts = [int(each.sum()) for each in lengths]
        weights = None if not self.weighted else self.weights_or_none().split(counts)[at]
        return (self.values().split(counts)[at], lengths[at].long().cumsum(0) - lengths[at],
                weights)


@st.composite
def keyed_cases(draw):
    """(poolings of tables a, b and c, whether the collection is weighted, Keyed)."""
    poolings = draw(st.lists(st.sampled_from(("sum", "sum", "mean")), min_size=1, max_size=3))
    order = draw(st.permutations([*"abc"[:len(poolings)], "unused"]))
    samples = draw(st.integers(1, 4))
    vary = draw(st.integers(0, 4)) == 4
    sizes = [draw(st.integers(1, 4)) if vary else samples for _ in order]
    return poolings, draw(st.booleans()), Keyed(order, sizes, draw(st.booleans()),
                                                draw(st.booleans()), draw(st.integers(0, 999)))


def check_keyed(case):
    poolings, is_weighted, keyed = case
    configs = [TableConfig(name, 30, 4, pooling)
               for name, pooling in zip("abc", poolings, strict=False)]
    tables = HotEmbeddingBagCollection(configs, mode="resident",
                                       options=Options(seed=3, is_weighted=is_weighted))
    refused = {
        "batch size per key": len(set(keyed.sizes)) > 1,
        "has no weights": is_weighted and not keyed.weighted,
        "pooling 'sum' only": is_weighted and keyed.weighted and "mean" in poolings}
    try:
        found = tables(keyed)
    except Error as error:
        assert any(used and said in str(error) for said, used in refused.items()), error
        return
    found = found if isinstance(found, torch.Tensor) else found.values()
    assert not any(refused.values())
    for config, part in zip(configs, found.split(4, dim=1), strict=True):
        ids, offsets, weights = keyed.of(config.name)
        rows, _ = tables.contents.table(config.name)
        expected = embedding_bag(ids, rows, offsets, mode=config.pooling,
                                 per_sample_weights=weights if is_weighted else None)
        torch.testing.assert_close(part.detach(), expected)


@pytest.mark.slow
@SETTINGS
@given(keyed_cases())
def test_keyed_batches(case):
    check_keyed(case)


@dataclass(frozen=True)
class LoopCase:
    """An epoch over a pipeline, once or twice, and an evaluation between and afterwards."""

    mode: str
    optimizer: str
    batches: int
    skipped: frozenset
    twice: frozenset
    every: int
    epochs: int
    depth: int
    workers: int
    seed: int


@st.composite
def loop_cases(draw):
    batches = draw(st.integers(2, 7))
    some = st.frozensets(st.integers(0, batches - 1), max_size=batches)
    return LoopCase(
        draw(st.sampled_from(("scratchpipe", "freqcache", "hotline"))),
        draw(st.sampled_from(("sgd", "adagrad", "adam"))), batches, draw(some), draw(some),
        draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 4)),
        draw(st.integers(0, 1)), draw(st.integers(0, 999)))


def epoch(tables, case, loader, trains):
    """Losses of an epoch."""
    losses, waiting = [], 0
    with TrainPipeline(loader, tables, lambda ids: ids) as pipeline:
        for number, ids in enumerate(pipeline):
            if trains and number in case.skipped:
                pipeline.skip()
                continue
            found = tables(ids)
            if number in case.twice:
                found = found * 0.5 + tables(ids)
            loss = found.square().sum()
            losses.append(loss.detach())
            if not trains:
                continue
            loss.backward()
            waiting += 1
            if waiting % case.every == 0:
                tables.optimizer.step()
                tables.optimizer.zero_grad()
    if trains:
        tables.optimizer.step()
        tables.optimizer.zero_grad()
    return losses


def run_loop(case, device=None):
    generator = torch.Generator().manual_seed(case.seed)
    loader = [(torch.rand(6, 1, generator=generator) ** 3 * 60).long()
              for _ in range(case.batches)]
    options = {"depth": case.depth, "workers": case.workers, "share": 4} if device else {}
    with HotEmbeddingBagCollection([TableConfig("a", 60, 8)], device,
                                   case.mode if device else "resident", case.optimizer, 0.1,
                                   seed=3, **options) as tables:
        losses = []
        for _ in range(case.epochs):
            losses += epoch(tables, case, loader, True)
            tables.eval()
            with torch.no_grad():
                losses += epoch(tables, case, loader[::-1], False)
            tables.train()
        tables.flush()
        return [float(each) for each in losses], tables.sha256()


def check_loop(case):
    with hotrow.open("cpu", preset="tiny") as device:
        found = run_loop(case, device)
    assert found == run_loop(case)


@pytest.mark.slow
@SETTINGS
@given(loop_cases())
def test_loops(case):
    check_loop(case)


# Faults, each of which some case must show.

def weights_always(monkeypatch):
    monkeypatch.setattr(forms, "keyed_parts", lambda each, names, _: keyed_parts(
        each, names, each.weighted))


def one_size_for_all(monkeypatch):
    monkeypatch.setattr(Keyed, "stride_per_key", lambda self: [])


def keys_in_order_of_tables(monkeypatch):
    monkeypatch.setattr(Keyed, "keys", lambda self: sorted(self.order))


def skipped_is_looked_up(monkeypatch):
    monkeypatch.setattr(TrainPipeline, "skip", lambda self: None)


def repeated_is_next(monkeypatch):
    monkeypatch.setattr(CachedStore, "open_batches", lambda self: iter(()))


def evaluation_reads_tables(monkeypatch):
    monkeypatch.setattr(CachedStore, "read", lambda self, group, flat: self.host.fetch(group, flat))


@pytest.mark.long
@pytest.mark.parametrize("fault, cases, check", [
    *((each, keyed_cases(), check_keyed)
      for each in (weights_always, one_size_for_all, keys_in_order_of_tables)),
    *((each, loop_cases(), check_loop)
      for each in (skipped_is_looked_up, repeated_is_next, evaluation_reads_tables)),
], ids=lambda each: getattr(each, "__name__", ""))
def test_a_fault_shows(monkeypatch, fault, cases, check):
    fault(monkeypatch)

    @settings(SETTINGS, phases=[Phase.generate], report_multiple_bugs=False)
    @given(cases)
    def search(case):
        check(case)

    with pytest.raises((Exception, BaseExceptionGroup)):
        search()
