"""The rings of a planned schedule: none waits for a command behind it, and all of them end."""

import itertools
from dataclasses import replace

import pytest
from hotrow_sim.golden.lookup.planner import NEVER
from hotrow_sim.golden.training_pipeline import StageOffsets
from hotrow_sim.testing.ring_deadlock import HOST, against_the_ring_rule, scheduled, stuck

OFFSETS = [StageOffsets(collect, insert, train) for collect, insert, train in itertools.product(
    range(1, 4), range(1, 5), range(1, 5)) if collect <= insert <= train]
ORDERS = ("cit", "tic", "itc")
ANY_OFFSETS = pytest.mark.parametrize(
    "offsets", OFFSETS, ids=[f"{each.collect}-{each.insert}-{each.train}" for each in OFFSETS])


def sound(order, offsets):
    """Of one batch COLLECT comes before INSERT, and that before TRAIN."""
    steps = {"c": offsets.collect, "i": offsets.insert, "t": offsets.train}
    return all(steps[first] != steps[then] or order.index(first) < order.index(then)
               for first, then in ("ci", "it", "ct"))


def words(offsets, count):
    """Every `wait_for` that plans may name: no batch, or one that was not retired before."""
    return itertools.product(*(
        (NEVER, *range(max(0, batch - offsets.past), batch)) for batch in range(count)))


@ANY_OFFSETS
def test_every_schedule_ends(offsets):
    """All that plans may say of up to five batches, in every order of the stages of a step."""
    for order in ORDERS:
        if not sound(order, offsets):
            continue
        for told in words(offsets, 5):
            actions = scheduled(5, told, offsets, order)
            assert not against_the_ring_rule(actions), (order, told)
            assert not stuck(actions), (order, told)
            assert sum(each.what == "train" for each in actions) == 5


@ANY_OFFSETS
def test_what_a_batch_waits_for_lies_a_bounded_way_back(offsets):
    """The same actions follow for every batch: what holds for a few holds for all."""
    shifted = [[(action.party, action.what, action.batch - number,
                 tuple((what, batch - number) for what, batch in action.after))
                for action in scheduled(40, [NEVER] * 40, offsets) if action.batch == number]
               for number in range(12, 24)]
    assert all(each == shifted[0] for each in shifted)


def test_a_collect_queued_too_early_stands_still():
    """The write-back that it waits for is behind it in its ring."""
    told = [NEVER, 0, NEVER, NEVER]
    early = scheduled(4, told, stalls=False)
    assert [(action.what, name) for action, name in against_the_ring_rule(early)] == [
        ("collect", ("write back", 0))]
    assert ("collect", 1) in [action.name for action in stuck(early)]


def test_a_plan_that_waited_in_its_ring_for_training_would_stand_still():
    """Were PLAN held in the ring until the batch before has trained, in place of being refused."""
    actions = [replace(action, after=(("train", action.batch - 1),))
               if action.what == "plan" and action.batch else action
               for action in scheduled(8, [NEVER] * 8)]
    assert not against_the_ring_rule(actions)
    assert {action.party for action in stuck(actions)} >= {HOST}
