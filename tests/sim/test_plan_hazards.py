"""What a pipeline of plans trips over, one by one, on the model and on the RTL."""

import pytest
from hotrow_rtl.contract.encoding import NO_BATCH, Opcode
from hotrow_sim.testing.fuzz.planning import STARVED

from tests.sim.planning import one, operands, plan, same_sets


@pytest.fixture
def card(make_planner):
    return make_planner(STARVED)


def retire(card, number):
    card.write("PLAN_RETIRED", number)


def mark(card, number, rows):
    """Of table 1, whose rows `same_sets` and `one` mean."""
    return card.run("lookup", **operands(card, Opcode.MARK, number, rows, len(rows))
                    | {"first_table": 1})


def fill(card):
    """Plan four rows of the same sets, one a batch, and return them with a fifth."""
    rows = same_sets(5)
    for number in range(4):
        one(card, number, [rows[number]], 0)
    return rows


def test_a_victim_whose_last_update_is_in_flight(card):
    """Row 0 was used again by a batch that still trains: the next oldest leaves."""
    rows = fill(card)
    retire(card, 3)
    one(card, 4, [rows[0]], 0)
    assert one(card, 5, rows[4:], 0)[1] == rows[1]


def test_a_row_fetched_again_before_its_write_back_landed(card):
    """Marked before the plan that would evict it, it stays; unmarked, it leaves and is fetched."""
    rows = fill(card)
    retire(card, 3)
    assert mark(card, 5, [rows[0]])["hits"] == 1
    assert one(card, 4, rows[4:], 0)[1] == rows[1]
    done, victim = one(card, 5, [rows[0]], 0)
    assert (done["hits"], done["entries"], victim) == (1, 0, None)
    retire(card, 5)
    done, victim = one(card, 6, [rows[1]], 0)
    assert (done["entries"], victim) == (1, rows[2])


def test_a_row_filled_and_evicted_in_one_window(card):
    """Its victim is told with the slot that it was filled to, whose new row takes it over."""
    rows = fill(card)
    retire(card, 3)
    filled, _ = one(card, 4, [rows[4]], 0)
    (slot,) = card.result(1).tolist()
    for number, row in ((5, rows[1]), (6, rows[2]), (7, rows[3])):
        one(card, number, [row], 0)
    retire(card, 4)
    done, victim = one(card, 8, [rows[0]], 0)
    assert filled["entries"] == done["entries"] == 1
    assert (victim, card.result(1).tolist()) == (rows[4], [slot])


@pytest.mark.parametrize("apart", [1, 3, 60])
def test_a_duplicate_inside_a_batch(card, apart):
    """Near enough to be one lookup, or not: one slot and one fill."""
    ids = [7, *range(10, 10 + apart - 1), 7]
    found = plan(card, 0, ids)
    assert found.slots[0] == found.slots[-1]
    assert [row for row, _ in found.fills].count((0, 7)) == 1


def test_one_row_number_in_two_tables(card):
    found = plan(card, 0, [5, 5, 5, 5], tables=2)
    assert sorted(row for row, _ in found.fills) == [(0, 5), (1, 5)]
    assert found.slots[:2] == found.slots[2:] and found.slots[0] != found.slots[1]


def test_a_bypassed_row_that_the_next_batch_wants(card):
    """The next plan waits for the batch that bypassed it, until that is retired."""
    rows = same_sets(5)
    one(card, 0, rows[:4], 0)
    done, _ = one(card, 1, rows[4:], 0)
    assert (done["bypasses"], done["wait_for"]) == (1, NO_BATCH)
    done, _ = one(card, 2, rows[4:], 0)
    assert (done["bypasses"], done["wait_for"]) == (1, 1)
    retire(card, 2)
    assert one(card, 3, rows[4:], 0)[0]["wait_for"] == NO_BATCH
