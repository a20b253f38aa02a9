"""Hazards of pipelined plans, one by one, on the model and on the RTL."""

import pytest
from hotrow_rtl.contract.encoding import NO_BATCH, Opcode

from tests.sim.device.planning_host import one, operands, plan, same_sets
from tests.support.fuzz.planning import STARVED


@pytest.fixture
def card(make_planner):
    return make_planner(STARVED)


def retire(card, number):
    card.write("PLAN_RETIRED", number)


def mark(card, number, rows):
    """MARK of rows of table 1, like `same_sets` and `one`."""
    return card.run("lookup", **operands(card, Opcode.MARK, number, rows, len(rows))
                    | {"first_table": 1})


def fill(card):
    """Plan four rows of the same sets, one per batch; return them and a fifth one."""
    rows = same_sets(5)
    for number in range(4):
        one(card, number, [rows[number]], 0)
    return rows


def test_a_victim_whose_last_update_is_in_flight(card):
    """A batch in training uses row 0 again, so the next oldest row is evicted."""
    rows = fill(card)
    retire(card, 3)
    one(card, 4, [rows[0]], 0)
    assert one(card, 5, rows[4:], 0)[1] == rows[1]


def test_a_row_fetched_again_before_its_write_back(card):
    """A row that is marked before the plan stays; an unmarked one is evicted and fetched."""
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
    """The victim has the slot that it filled, which its successor fills next."""
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
    """Combined or not, two lookups of a row have one slot and one fill."""
    ids = [7, *range(10, 10 + apart - 1), 7]
    found = plan(card, 0, ids)
    assert found.slots[0] == found.slots[-1]
    assert [row for row, _ in found.fills].count((0, 7)) == 1


def test_one_row_number_in_two_tables(card):
    found = plan(card, 0, [5, 5, 5, 5], tables=2)
    assert sorted(row for row, _ in found.fills) == [(0, 5), (1, 5)]
    assert found.slots[:2] == found.slots[2:] and found.slots[0] != found.slots[1]


def test_a_bypassed_row_that_the_next_batch_wants(card):
    """The next plan waits for the batch that bypassed the row, until it is retired."""
    rows = same_sets(5)
    one(card, 0, rows[:4], 0)
    done, _ = one(card, 1, rows[4:], 0)
    assert (done["bypasses"], done["wait_for"]) == (1, NO_BATCH)
    done, _ = one(card, 2, rows[4:], 0)
    assert (done["bypasses"], done["wait_for"]) == (1, 1)
    retire(card, 2)
    assert one(card, 3, rows[4:], 0)[0]["wait_for"] == NO_BATCH
