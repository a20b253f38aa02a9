"""The place of rows changes no bit: resident, scratchpipe, freqcache, hotline."""

import random
from dataclasses import replace

import pytest
import torch
from hotrow import Error
from hotrow.torch import SGD, Adam, RowwiseAdagrad
from hotrow_sim.golden.lookup.slot_table import Slots

from tests.torch.training import TABLES, draw, train

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad")
RULES = (SGD(0.2, weight_decay=0.1), "partial_rowwise_adam",
         RowwiseAdagrad(0.2, weight_decay=0.1, decoupled_weight_decay=True))
NARROW = tuple(replace(config, dtype=dtype) for config, dtype in zip(
    TABLES, (torch.bfloat16, torch.bfloat16, torch.float16), strict=True))


@pytest.fixture(scope="module", params=[
    pytest.param(each, marks=pytest.mark.long) if each != "rowwise_adagrad" else each
    for each in OPTIMIZERS])
def trained(request):
    """(optimizer, batches, outcome of training them in mode resident)."""
    batches = draw(1, 30)
    return request.param, batches, train(batches, optimizer=request.param)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"mode": "scratchpipe"},
    {"mode": "scratchpipe", "share": 4, "ahead": 6, "policy": "rrip"},
    {"mode": "scratchpipe", "share": 4, "ahead": 5, "workers": 4, "depth": 3, "look_ahead": 3},
    {"mode": "freqcache", "share": 4, "policy": "freq"},
    {"mode": "freqcache", "ahead": 4, "workers": 2, "depth": 1},
    {"mode": "hotline", "ahead": 2, "workers": 1},
], ids=str)
def test_tables_state_and_losses_are_residents(trained, options):
    optimizer, batches, resident = trained
    found = train(batches, optimizer=optimizer, **options)
    assert found.losses == resident.losses
    assert found.sha256 == resident.sha256
    if "share" in options:
        assert found.figures["bypasses"] and found.figures["evictions"]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer, tables", [
    (Adam(0.2, weight_decay=0.1), TABLES), (SGD(0.2, rounding_seed=7), NARROW),
    *(pytest.param(rule, TABLES, marks=pytest.mark.long) for rule in RULES),
    pytest.param(RowwiseAdagrad(0.2, weight_decay=0.1, rounding_seed=7), NARROW,
                 marks=pytest.mark.long)],
    ids=lambda each: getattr(each, "name", "tables" if isinstance(each, tuple) else each))
def test_other_rules(optimizer, tables):
    """Adam, weight decay and stochastic rounding, whose random bits the place of rows leaves alone.
    """
    batches = draw(5, 24, tables)
    resident = train(batches, optimizer=optimizer, tables=tables, every=2)
    for options in ({"share": 4, "ahead": 5, "workers": 2}, {"mode": "freqcache", "share": 2},
                    {"mode": "hotline", "ahead": 1}):
        found = train(batches, **{"mode": "scratchpipe", **options}, optimizer=optimizer,
                      tables=tables, every=2)
        assert (found.sha256, found.losses) == (resident.sha256, resident.losses), options


@pytest.mark.slow
def test_on_the_hardware():
    """Over the Verilated card the bits are the model's, and so are the plans."""
    batches = draw(4, 14)
    options = {"optimizer": "rowwise_adagrad", "mode": "scratchpipe", "share": 4, "ahead": 5}
    modelled = train(batches, transport="model", **options)
    found = train(batches, transport="sim", workers=2, **options)
    assert found.sha256 == modelled.sha256 == train(batches, optimizer="rowwise_adagrad").sha256
    assert found.losses == modelled.losses and found.figures["bypasses"]


@pytest.mark.slow
def test_accumulated_gradients():
    """One step applies the gradients of several batches, whose rows are held until then."""
    batches = draw(2, 18)
    resident = train(batches, optimizer="rowwise_adagrad", every=3)
    assert resident.sha256 != train(batches, optimizer="rowwise_adagrad").sha256
    for options in ({"share": 4}, {"share": 4, "ahead": 4, "workers": 3},
                    {"ahead": 2, "depth": 2, "mode": "freqcache"}):
        found = train(batches, **{"mode": "scratchpipe", **options}, every=3,
                      optimizer="rowwise_adagrad")
        assert (found.sha256, found.losses) == (resident.sha256, resident.losses), options


def most_recent(store):
    """Evict the most recently used row, which is needed soonest."""
    class MostRecent(Slots):
        def eviction_rank(self, slot):
            return -self.last_used[slot]

    store.device.transport.planning.planner.state.__class__ = MostRecent


def fuzzed(seed, batches, optimizer="sgd", spoil=None, direct=False, **options):
    """Train with stages in any order that they admit, and victims that are needed soonest; rows
    move `direct`, or with a copy between tables and slots.

    The options that were drawn, and the outcome.
    """
    drawn = random.Random(seed)
    chosen = {"ahead": drawn.randint(1, 8), "depth": drawn.randint(1, 6),
              "look_ahead": drawn.randint(0, 4), "share": drawn.choice((1, 2, 4))} | options

    def change(store):
        most_recent(store)
        assert all(store.moves.direct)
        store.moves.direct[:] = [direct] * len(store.groups)
        if spoil is not None:
            spoil(store)

    return chosen, train(batches, "scratchpipe", optimizer=optimizer, choose=drawn.choice,
                         transport="model", store=change, **chosen)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 80), marks=pytest.mark.long)],
                         ids=["few", "many"])
def test_any_order_of_stages(seeds):
    for seed in seeds:
        batches, optimizer = draw(seed, 30, samples=16), OPTIMIZERS[seed % 3]
        every = 1 + seed % 2
        resident = train(batches, optimizer=optimizer, every=every)
        chosen, found = fuzzed(seed, batches, optimizer, direct=bool(seed % 2), every=every)
        assert found.sha256 == resident.sha256, (seed, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 30), marks=pytest.mark.long)],
                         ids=["few", "many"])
def test_caches_that_are_reset_between_batches_that_bypass(seeds):
    """The planner numbers batches from 0 again; a batch waits for those that it means."""
    for seed in seeds:
        batches = draw(seed, 24, samples=16)
        chosen, found = fuzzed(seed, batches, "rowwise_adagrad", direct=bool(seed % 2),
                               reset_every=8, depth=4, look_ahead=2, share=4, ahead=6)
        assert found.figures["bypasses"]
        assert found.sha256 == train(batches, optimizer="rowwise_adagrad").sha256, (seed, chosen)


# Faults, each of which must change the tables.

def unmarked(store):
    """The window of coming batches is one shorter: the farthest is not marked."""
    place = store.policy.place
    store.policy.place = lambda batch, number, retired, coming, *others: place(
        batch, number, retired,
        [each for each in coming if each[0] < store.device.next_batch + store.look_ahead], *others)


def retired_early(store):
    """The window of past batches is one shorter: a batch retires before it has trained."""
    place = store.policy.place
    store.policy.place = lambda batch, number, retired, *others: place(
        batch, number, min(retired + 1, store.device.next_batch - 1), *others)


def bypasses_forgotten(store):
    """Bypassed rows are read before an earlier batch has written them back."""
    place = store.policy.place
    store.policy.place = lambda *batch: replace(place(*batch), wait_for=-1)


def impatient(store):
    """Collect waits for no insert."""
    plan, collect, *others = store.stages.stages
    store.stages.stages = (
        plan, collect._replace(can_run=lambda number: number < store.stages.done[0]), *others)


def one_update_in_a_hundred(store):
    """One victim in a hundred is not written back."""
    write = store.host.write

    def lossy(group, flat, rows, listed=None):
        kept = torch.arange(len(flat)) % 100 != 37 % max(1, len(flat))
        write(group, flat[kept], rows.take(store.groups[group].kind, kept))

    store.host.write = lossy


def one_victim_in_a_hundred(store):
    """One victim in a hundred is not written from its slot."""
    scatter = store.moves.scatter

    def lossy(group, flat, slots, listed=None):
        kept = torch.arange(len(flat)) % 100 != 37 % max(1, len(flat))
        scatter(group, flat[kept], slots[kept])

    store.moves.scatter = lossy


def state_left_behind(store):
    """A row that is fetched again has another row's state."""
    fetch = store.host.fetch

    def fetched(group, flat, listed=None, ticket=None):
        rows = fetch(group, flat)
        rows.side.fill_(0.01)
        return rows

    store.host.fetch = fetched


FAULTS = {
    unmarked: {"depth": 6, "look_ahead": 3, "share": 4, "ahead": 8},
    retired_early: {"depth": 4, "look_ahead": 1, "share": 4, "ahead": 6},
    bypasses_forgotten: {"depth": 4, "look_ahead": 2, "share": 4, "ahead": 6},
    impatient: {"depth": 4, "look_ahead": 0, "share": 4, "ahead": 6},
    one_update_in_a_hundred: {"share": 2, "ahead": 4},
    one_victim_in_a_hundred: {"share": 2, "ahead": 4, "direct": True},
    state_left_behind: {"share": 2, "ahead": 4},
}


@pytest.mark.long
@pytest.mark.parametrize("fault, options", FAULTS.items(),
                         ids=[fault.__name__ for fault in FAULTS])
def test_a_fault_shows(fault, options):
    def changes(seed):
        batches = draw(seed, 24, samples=16)
        try:
            _, spoiled = fuzzed(seed, batches, "rowwise_adagrad", fault, **options)
        except Error:  # it read memory that was never written, and that is no number
            return True
        return spoiled.sha256 != train(batches, optimizer="rowwise_adagrad").sha256

    assert any(map(changes, range(2))), f"{fault.__name__} changed nothing in two runs"


@pytest.mark.long
@pytest.mark.parametrize("options", FAULTS.values(), ids=[fault.__name__ for fault in FAULTS])
def test_without_the_fault_nothing_shows(options):
    for seed in range(4):
        batches = draw(seed, 24, samples=16)
        _, sound = fuzzed(seed, batches, "rowwise_adagrad", **options)
        assert sound.sha256 == train(batches, optimizer="rowwise_adagrad").sha256, seed
