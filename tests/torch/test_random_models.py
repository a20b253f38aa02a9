"""`convert` holds random models to the plain ones, or refuses them by a property's name.

    python -m tests.torch.test_random_models --models 2600 --seed 1
"""

import argparse
from collections import Counter

import hotrow
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBag, conversion, convert
from hotrow.torch import HotEmbeddingBagCollection as Collection
from hotrow.torch.collection.lifecycle import Lifecycle
from hotrow.torch.collection.lookups import Lookups
from hotrow.torch.collection.row_optimizer import RowOptimizer
from hotrow.torch.collection.saved_state import SavedState
from hotrow.torch.optim.gradients import StagedGradients
from hotrow.torch.store.cached import CachedStore
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.torch import random_models
from tests.torch.random_models import HARD_EVENTS, Run, model_cases

# Derandomized: the same models in every run. A failure prints its model, shrunk.
SETTINGS = settings(max_examples=60, derandomize=True, database=None, deadline=None,
                    print_blob=True, suppress_health_check=list(HealthCheck))
TOLERANCES = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}


def run(case, mode, device=None):
    """Outcome of a converted model, or None if it was refused by name."""
    held = None
    try:
        held = Run(case, mode, device)
        return held.train()
    except Error as error:
        said = [word for word in case.words if word in str(error)]
        assert said, f"refused, and none of {case.words} is named: {error}"
        return None
    finally:
        if held is not None:
            held.close()


def check(case, transport="cpu"):
    """Hold a model in mode resident to the plain one, and in its mode to resident; what it was
    compared with."""
    resident = run(case, "resident")
    with hotrow.open(transport, preset="tiny") as device:
        found = run(case, case.mode, device)
    assert (found is None) == (resident is None)
    if resident is None:
        return "refused by name"
    for one, other in zip(flat(found), flat(resident), strict=True):
        same = torch.equal(one, other) if torch.is_tensor(one) else one == other
        assert same, f"{case.mode} and resident differ: {one} and {other}"
    if not case.has_peer:
        return "in two modes"
    plain = Run(case).train()
    bound = max(TOLERANCES[bag.dtype] for bag in case.bags)
    for one, other in zip(flat(resident), flat(plain), strict=True):
        if torch.is_tensor(one):
            torch.testing.assert_close(one, other, rtol=bound, atol=bound)
        else:
            assert one == other
    return "in two modes and beside plain PyTorch"


def flat(outcome):
    outputs, weights = outcome
    return [*outputs, *weights]


@pytest.mark.slow
@SETTINGS
@given(model_cases())
def test_random_models(case):
    check(case)


@pytest.mark.long
@settings(SETTINGS, max_examples=1000)
@given(model_cases())
def test_many_random_models(case):
    check(case)


@pytest.mark.long
@settings(SETTINGS, max_examples=300)
@given(model_cases(events=HARD_EVENTS))
def test_random_models_with_errors_threads_and_functions_of_pytorch(case):
    check(case)


# Faults, each of which some model must show.

def no_refusals(monkeypatch):
    monkeypatch.setattr(conversion, "check_convertible", lambda *_: None)


def tied_weights_taken(monkeypatch):
    monkeypatch.setattr(conversion, "_check_untied", lambda *_: None)


def frozen_rows_train(monkeypatch):
    lookup = Lookups.by_feature
    monkeypatch.setattr(Lookups, "by_feature", lambda self, bags, training, trains: lookup(
        self, bags, training, True))


def results_in_fp32(monkeypatch):
    forward = HotEmbeddingBag.forward
    monkeypatch.setattr(HotEmbeddingBag, "forward", lambda *given: forward(*given).float())


def hooks_dropped(monkeypatch):
    def converted(model, **options):
        tables = convert(model, **options)
        for each in model.bags:
            each._forward_hooks.clear()
            each._forward_pre_hooks.clear()
        return tables

    monkeypatch.setattr(random_models, "convert", converted)


def padding_looked_up(monkeypatch):
    bags = HotEmbeddingBag.bags

    def padded(self, *given):
        self.padding_idx = None
        return bags(self, *given)

    monkeypatch.setattr(HotEmbeddingBag, "bags", padded)


def writes_unnoticed(monkeypatch):
    monkeypatch.setattr(Lifecycle, "adopt_writes", lambda self: None)


def eval_trains_nothing(monkeypatch):
    apply = RowOptimizer._apply
    monkeypatch.setattr(RowOptimizer, "_apply", lambda self: (
        self._staging.missed.clear(), apply(self)))


def weights_of_lookups_ignored(monkeypatch):
    bags = HotEmbeddingBag.bags
    monkeypatch.setattr(HotEmbeddingBag, "bags", lambda self, input, offsets=None, weights=None: (
        bags(self, input, offsets)))


def state_not_loaded(monkeypatch):
    monkeypatch.setattr(SavedState, "load_row_states", lambda *_: None)


def rate_not_loaded(monkeypatch):
    monkeypatch.setattr(RowOptimizer, "load_state_dict", lambda *_: None)


def saved_before_flush(monkeypatch):
    monkeypatch.setattr(Lifecycle, "flush", lambda self: None)


def copies_share_rows(monkeypatch):
    monkeypatch.setattr(Collection, "__deepcopy__", lambda self, _: self, raising=False)


def evaluation_reads_tables(monkeypatch):
    monkeypatch.setattr(CachedStore, "read", lambda self, group, flat: self.host.fetch(group, flat))


def one_batch_of_a_step(monkeypatch):
    add = StagedGradients.add_groups
    monkeypatch.setattr(StagedGradients, "add_groups", lambda self, *given: (
        self.clear(), add(self, *given)))


SOON = (frozen_rows_train, results_in_fp32, hooks_dropped, padding_looked_up, writes_unnoticed,
        weights_of_lookups_ignored, saved_before_flush, one_batch_of_a_step)
LATE = (no_refusals, tied_weights_taken, eval_trains_nothing, state_not_loaded,
        rate_not_loaded, copies_share_rows, evaluation_reads_tables)


@pytest.mark.long
@pytest.mark.parametrize("fault", [*SOON, *LATE], ids=lambda fault: fault.__name__)
def test_a_fault_shows(monkeypatch, fault):
    fault(monkeypatch)

    @settings(SETTINGS, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    @given(model_cases())
    def search(case):
        check(case)

    with pytest.raises((Exception, BaseExceptionGroup)):
        search()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=2600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transport", default="cpu")
    options, ends = parser.parse_args(), Counter()
    torch.set_num_threads(1)

    @seed(options.seed)
    @settings(SETTINGS, derandomize=False, max_examples=options.models)
    @given(model_cases())
    def trained(case):
        ends[check(case, options.transport)] += 1
    trained()
    print(f"seed {options.seed}, {ends.total()} models, none wrong: {dict(ends)}")


if __name__ == "__main__":
    main()
