"""The rings of a pipeline: no command waits for a later one of its ring, and all complete."""

import itertools
from dataclasses import replace

import pytest
from hotrow_sim.golden.lookup.planner import NEVER
from hotrow_sim.golden.training_pipeline import StageOffsets

from tests.support.ring_deadlock import HOST, against_the_ring_rule, scheduled, stuck

OFFSETS = [StageOffsets(collect, insert, train) for collect, insert, train in itertools.product(
    range(1, 4), range(1, 5), range(1, 5)) if collect <= insert <= train]
ORDERS = ("cit", "tic", "itc")
ANY_OFFSETS = pytest.mark.parametrize(
    "offsets", OFFSETS, ids=[f"{each.collect}-{each.insert}-{each.train}" for each in OFFSETS])


def sound(order, offsets):
    """Whether COLLECT precedes INSERT and INSERT precedes TRAIN for each batch."""
    steps = {"c": offsets.collect, "i": offsets.insert, "t": offsets.train}
    return all(steps[first] != steps[then] or order.index(first) < order.index(then)
               for first, then in ("ci", "it", "ct"))


def words(offsets, count):
    """Every `wait_for` of plans: no batch, or one that is not retired."""
    return itertools.product(*(
        (NEVER, *range(max(0, batch - offsets.past), batch)) for batch in range(count)))


@ANY_OFFSETS
def test_every_schedule_ends(offsets):
    """All `wait_for` of five batches, in every order of the stages of a step."""
    for order in ORDERS:
        if not sound(order, offsets):
            continue
        for wait_for in words(offsets, 5):
            actions = scheduled(5, wait_for, offsets, order)
            assert not against_the_ring_rule(actions), (order, wait_for)
            assert not stuck(actions), (order, wait_for)
            assert sum(each.what == "train" for each in actions) == 5


@ANY_OFFSETS
def test_wait_for_is_bounded(offsets):
    """The actions of all batches have one pattern, so a few batches suffice."""
    shifted = [[(action.party, action.what, action.batch - number,
                 tuple((what, batch - number) for what, batch in action.after))
                for action in scheduled(40, [NEVER] * 40, offsets) if action.batch == number]
               for number in range(12, 24)]
    assert all(each == shifted[0] for each in shifted)


def test_a_collect_queued_too_early_blocks():
    """Its write-back follows it in its ring."""
    early = scheduled(4, [NEVER, 0, NEVER, NEVER], stalls=False)
    assert [(action.what, name) for action, name in against_the_ring_rule(early)] == [
        ("collect", ("write back", 0))]
    assert ("collect", 1) in [action.name for action in stuck(early)]


def test_a_plan_queued_before_its_training_would_block():
    """If the ring held PLAN until the previous batch has trained, instead of refusing it."""
    actions = [replace(action, after=(("train", action.batch - 1),))
               if action.what == "plan" and action.batch else action
               for action in scheduled(8, [NEVER] * 8)]
    assert not against_the_ring_rule(actions)
    assert {action.party for action in stuck(actions)} >= {HOST}
