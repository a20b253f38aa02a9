import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.updating import first_not_finite, update_rows
from hotrow.torch.optim.rules import (
    SGD,
    Adagrad,
    Adam,
    PartialRowwiseAdam,
    RowwiseAdagrad,
    Rule,
)

from tests.kernels.draws import DTYPES, draw_rows, same_bits

RULES = [SGD(0.1), RowwiseAdagrad(0.03, eps=0.1), Adagrad(0.03, eps=0.1, initial=0.1),
         Adam(0.03, (0.8, 0.97), eps=0.1), PartialRowwiseAdam(0.03, eps=0.1)]
ROWS, TRAINED = 60, 40


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("dim", [1, 2, 3, 13, 16, 24, 32, 64, 100, 128])
def test_updates_as_the_trainer_does(dim, rule, dtype):
    generator, rule.steps = torch.Generator().manual_seed(dim), 3
    rows = draw_rows(generator, ROWS, dim + 5, dtype)[:, :dim]
    state = None
    if rule.state:
        wide = torch.rand(ROWS, dim + max(1, rule.columns(dim)), generator=generator)
        state = wide[:, dim:]
        state = state[:, 0].contiguous() if rule.state == "row" else state
    slots = torch.randperm(ROWS, generator=generator)[:TRAINED]
    slots = slots.int() if dim % 3 else slots
    gradients = draw_rows(generator, TRAINED, dim)
    at = slots.long()
    after, state_after = rule.update(
        rows[at].float(), gradients, None if state is None else state[at])
    expected, state_expected = rows.clone(), None if state is None else state.clone()
    expected[at] = after.to(dtype)
    if state is not None:
        state_expected[at] = state_after
    update_rows(rows, slots, gradients, rule, state)
    assert same_bits(rows, expected)
    assert state is None or same_bits(state, state_expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [SGD, RowwiseAdagrad, Adagrad])
def test_a_rate_of_zero_keeps_the_sign_of_zeros(kind, dtype):
    """As a warm-up begins: each pair of signs of a row's zero and its gradient."""
    rule, rows = kind(0.0), torch.tensor([0.0, -0.0]).repeat_interleave(16)[None].to(dtype)
    gradients = torch.tensor([1.0, -1.0] * 16)[None]
    state = {"row": torch.ones(1), "element": torch.ones(1, 32)}.get(rule.state)
    after, _ = rule.update(rows.float(), gradients, state)
    assert 0 < after.signbit().sum() < 32
    update_rows(rows, torch.tensor([0]), gradients, rule, state)
    assert same_bits(rows, after.to(dtype))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_threads_change_no_bit(monkeypatch, rule):
    monkeypatch.setattr("hotrow.kernels.updating.threads_for", lambda _: 3)
    test_updates_as_the_trainer_does(16, rule, torch.float32)


def test_a_rate_may_be_a_tensor():
    rows, rule = torch.ones(4, 3), SGD(torch.tensor(0.5))
    update_rows(rows, torch.tensor([2]), torch.ones(1, 3), rule)
    assert rows.tolist() == [[1.0] * 3, [1.0] * 3, [0.5] * 3, [1.0] * 3]


def test_narrow_rows_round_to_nearest_even():
    """Each bf16 and fp16 value, stepped by all that ties or almost ties."""
    for dtype in DTYPES[1:]:
        bits = torch.arange(-1 << 15, 1 << 15).to(torch.int16)
        rows = bits.view(dtype)[:, None]
        rows = rows[torch.isfinite(rows).squeeze(1)].clone()
        next_up = rows.view(torch.int16).roll(-1, 0).view(dtype).float()
        gradients = (rows.float() - next_up).nan_to_num(0, 0, 0) / 2
        for factor in (1.0, 1 - 2**-20, 1 + 2**-20):
            found, expected = rows.clone(), SGD(factor).update(rows.float(), gradients)[0]
            update_rows(found, torch.arange(len(rows)), gradients, SGD(factor))
            assert same_bits(found, expected.to(dtype))


class Halving(Rule):
    """A rule of a user's own."""

    name = "halving"

    def step(self, weights, gradients, state):
        return weights / 2, None


def test_other_rules_work():
    rows = torch.ones(3, 2)
    update_rows(rows, torch.tensor([1]), torch.ones(1, 2), Halving(1.0))
    assert rows.tolist() == [[1, 1], [0.5, 0.5], [1, 1]]


@pytest.mark.parametrize("rule", [SGD(1.0), Halving(1.0)], ids=["sgd", "other"])
def test_updated_slots_are_marked(rule):
    rows, dirty = torch.ones(6, 2), torch.zeros(4, dtype=torch.bool)
    update_rows(rows, torch.tensor([1, 5, 3], dtype=torch.int32), torch.ones(3, 2), rule,
                dirty=dirty)
    assert dirty.tolist() == [False, True, False, True]


def test_nothing_changes_where_a_slot_is_no_row():
    for wrong in (10, -1, 1 << 40):
        rows, dirty = torch.ones(10, 4), torch.zeros(10, dtype=torch.bool)
        with pytest.raises(Error, match=f"row 1 to be updated has slot {wrong}: expected 0 to 9"):
            update_rows(rows, torch.tensor([3, wrong]), torch.ones(2, 4), SGD(1.0), dirty=dirty)
        assert torch.equal(rows, torch.ones(10, 4)) and not dirty.any()


def test_what_does_not_fit_is_refused():
    rows, slots = torch.ones(10, 4), torch.arange(2)
    with pytest.raises(Error, match=r"expected gradients float32\[2, 4\]"):
        update_rows(rows, slots, torch.ones(2, 3), SGD(1.0))
    with pytest.raises(Error, match=r"rowwise_adagrad needs state float32\[10\]"):
        update_rows(rows, slots, torch.ones(2, 4), RowwiseAdagrad(1.0), torch.ones(9))
    with pytest.raises(Error, match=r"adagrad needs state float32\[10, 4\]"):
        update_rows(rows, slots, torch.ones(2, 4), Adagrad(1.0), torch.ones(10, 3))


@pytest.mark.parametrize("dim", [1, 16, 19])
def test_first_row_that_is_not_finite(dim):
    gradients = torch.full((50, dim), 3e38)
    assert first_not_finite(gradients) == -1
    for row, value in ((40, torch.nan), (30, -torch.inf), (3, torch.inf)):
        gradients[row, row % dim] = value
        assert first_not_finite(gradients) == row
    assert first_not_finite(torch.empty(0, dim)) == -1
    assert first_not_finite(gradients.repeat(1, 2)[:, dim:]) == 3
