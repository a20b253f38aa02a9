"""Where rows are while they train changes no bit: resident, scratchpipe, freqcache, hotline."""

import random
from dataclasses import replace

import pytest
import torch
from hotrow.torch.cached import CachedStore
from hotrow.torch.placing import POLICIES, LookAhead
from hotrow_sim.golden.slots import Slots

from .training import TABLES, draw, train

OPTIMIZERS = ("sgd", "rowwise_adagrad", "adagrad")
FEW = 8  # of this many parts of the directory one is used: fewer slots than a batch has rows


@pytest.fixture(scope="module", params=OPTIMIZERS)
def trained(request):
    """(optimizer, batches, what training them resident ends with)."""
    batches = draw(1, 40)
    return request.param, batches, train(batches, optimizer=request.param)


@pytest.mark.parametrize("options", [
    {"mode": "scratchpipe"},
    {"mode": "scratchpipe", "share": 4, "ahead": 6, "policy": "rrip"},
    {"mode": "scratchpipe", "share": 4, "ahead": 5, "workers": 4, "depth": 3, "look_ahead": 3},
    {"mode": "freqcache", "share": 4, "policy": "freq", "admission": True},
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


def test_accumulated_gradients():
    """Gradients of several batches, applied at once: their rows are held so long."""
    batches = draw(2, 30)
    resident = train(batches, optimizer="rowwise_adagrad", every=3)
    assert resident.sha256 != train(batches, optimizer="rowwise_adagrad").sha256
    for options in ({"share": 4}, {"share": 4, "ahead": 4, "workers": 3},
                    {"ahead": 2, "depth": 2, "mode": "freqcache"}):
        found = train(batches, **{"mode": "scratchpipe", **options}, every=3,
                      optimizer="rowwise_adagrad")
        assert (found.sha256, found.losses) == (resident.sha256, resident.losses), options


def most_recent(store):
    """Evict what was used last: the row that is needed soonest."""
    class MostRecent(Slots):
        def goes_before(self, slot):
            return -self.used[slot]

    unit = planner_of(store.device)
    unit.state.__class__ = MostRecent


def planner_of(device):
    """The golden planner behind the model transport."""
    return device.transport.device.planning.planner


def fuzz(seed, batches, optimizer, **options):
    """Train with stages in any order that they admit, and every victim the worst one."""
    drawn = random.Random(seed)
    chosen = {"ahead": drawn.randint(1, 8), "depth": drawn.randint(1, 6),
              "look_ahead": drawn.randint(0, 4), "share": drawn.choice((1, 2, 4)),
              "policy": drawn.choice(POLICIES), "every": drawn.choice((1, 1, 2))}
    chosen |= options
    return chosen, train(batches, "scratchpipe", optimizer=optimizer,
                         choose=lambda ready: drawn.choice(ready), **chosen)


def eager(spoil=None):
    """Make stages run on before the batch that is waited for: what hazards need."""
    def change(store):
        most_recent(store)
        if spoil is not None:
            spoil(store)
    return change


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 60), marks=pytest.mark.long)],
                         ids=["few", "many"])
def test_any_order_of_stages(seeds):
    for seed in seeds:
        batches = draw(seed, 30, samples=16)
        for optimizer in OPTIMIZERS[:2]:
            resident = train(batches, optimizer=optimizer, every=1)
            chosen, found = fuzz(seed, batches, optimizer, every=1, store=eager())
            assert found.sha256 == resident.sha256, (seed, chosen)
