"""PLAN, MARK and retirement against the contract, on the model and on the RTL."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import (
    NO_BATCH,
    NO_SLOT,
    AllFlag,
    BatchFlag,
    Opcode,
    PlanFlag,
    Status,
)
from hotrow_sim.model import open_transport as open_model

from tests.sim.device.conftest import ROWS
from tests.sim.device.planning_host import (
    Watch,
    mark,
    one,
    operands,
    plan,
    policy,
    same_sets,
    served,
)
from tests.support.fuzz.planning import STARVED

TINY = preset("tiny")
WINDOW = STARVED.sweep_batches
FAULT_RETIRED = 8
ALL = {"opcode": Opcode.REMOVE, "flags": AllFlag.ALL}


@pytest.fixture
def card(make_planner):
    return make_planner(STARVED)


def drawn(rng):
    """A batch with repeated and some invalid rows: ids, flags, the other arguments, and the row of
    each lookup, None if invalid."""
    flags = BatchFlag(int(rng.integers(8)))
    samples, tables = int(rng.integers(1, 50)), int(rng.integers(1, 4))
    lengths = np.ones(samples * tables, np.uint16)
    if flags & BatchFlag.JAGGED:
        lengths = rng.choice(np.array([0, 1, 1, 2, 3], np.uint16), samples * tables)
        lengths[rng.integers(len(lengths))] = 3  # not an empty batch
    bag = np.repeat(np.arange(len(lengths)), lengths)
    table = bag // samples if flags & BatchFlag.FEATURE_MAJOR else bag % tables
    ids = (np.array(ROWS)[table] * rng.random(len(bag)) ** 3).astype(np.int64)
    ids = np.where(rng.random(len(ids)) < 0.02, ids + 1000, ids)
    rows = [None if row >= ROWS[number] else (number, row)
            for number, row in zip(table.tolist(), ids.tolist(), strict=True)]
    more = {"samples": samples, "tables": tables,
            "lengths": lengths if flags & BatchFlag.JAGGED else None}
    return ids, flags, more, rows


@pytest.mark.parametrize("which", ["lru", "rrip", "lfu", "freq"])
@pytest.mark.parametrize("config", [TINY, STARVED], ids=lambda config: config.name)
@pytest.mark.parametrize("future", [pytest.param(0, marks=pytest.mark.long), 1])
def test_every_plan_keeps_the_contract(make_planner, config, which, future):
    rng = np.random.default_rng([future, len(which), config.slots])
    card, watch = make_planner(config), Watch(config)
    batches = [drawn(rng) for _ in range(24)]
    relisted = waited = evicted = 0
    for number, (ids, flags, more, rows) in enumerate(batches):
        for coming in range(number, min(number + future + 1, len(batches))):
            ids_then, flags_then, more_then, rows_then = batches[coming]
            done = mark(card, coming, ids_then, flags=flags_then, **more_then)
            assert served(done["status"])
            watch.mark(coming, rows_then, done)
        if number >= 2:
            watch.retire(card, number - 2)
        writes, counts, admits = rng.random(3) < (0.7, 0.5, 0.3)
        more_flags = policy(which) | PlanFlag.READ_ONLY * (not writes)
        more_flags |= PlanFlag.COUNT if counts else PlanFlag.ADMIT * bool(admits)
        found = plan(card, number, ids, flags=flags | more_flags, **more)
        assert served(found.done["status"]), found.done
        if counts or not admits:  # rows are bypassed only without a free slot
            relisted += found.done["refused"]
        watch.plan(number, rows, found, writes)
        waited += found.done["wait_for"] != NO_BATCH
        evicted += found.done["evictions"]
    assert card.read("PLAN_RETIRED") == len(batches) - 3
    if config is STARVED:
        assert evicted and ((waited and relisted) or future == 0)


def test_slots_are_kept_and_found(card):
    first = plan(card, 0, [3, 9, 3, 4], tables=1)
    assert first.done["status"] == Status.OK
    assert [row for row, _ in first.fills] == [(0, 3), (0, 9), (0, 4)]
    assert [slot for _, slot in first.fills] == [first.slots[0], first.slots[1], first.slots[3]]
    assert (first.slots[0] == first.slots[2], first.done["hits"], first.done["misses"]) == (
        True, 0, 4)
    again = plan(card, 1, [4, 3, 100, 8])
    assert again.slots[:2] == [first.slots[3], first.slots[0]]
    assert again.slots[2] == NO_SLOT
    done = again.done
    assert (done["status"], done["error_index"]) == (Status.ROW_OUT_OF_RANGE, 2)
    assert (done["lookups"], done["hits"], done["misses"], done["unique"]) == (3, 2, 1, 3)
    split = card.run("lookup", **operands(card, Opcode.SPLIT, 0, [3, 4, 8, 5], 4))
    assert (split["hits"], split["misses"]) == (3, 1)
    assert card.result(3).tolist() == [first.slots[0], first.slots[3], again.slots[3]]


def test_hits_of_a_row_that_the_batch_fills(card):
    """Lookups that join the first one are misses; later ones are hits."""
    found = plan(card, 0, [7] + [8] * 40 + [7])
    joined = STARVED.lanes * (STARVED.window_beats + 1)
    assert found.done["hits"] == 1 + 41 - joined
    assert (found.done["unique"], found.done["entries"]) == (2, 2)


def test_the_order_of_batches(card):
    def refused(done):
        assert not any(done[name] for name in ("lookups", "hits", "misses", "entries", "unique"))
        return done["status"], done["error_index"]

    assert refused(plan(card, 2, [1]).done) == (Status.BATCH_ORDER, 0)
    assert mark(card, 2, [1])["status"] == Status.OK, "a batch to come"
    assert refused(mark(card, -1, [1])) == (Status.BATCH_ORDER, 0)
    assert plan(card, 0, [1]).done["status"] == Status.OK
    assert refused(plan(card, 0, [2]).done) == (Status.BATCH_ORDER, 1)
    assert refused(plan(card, 2, [2]).done) == (Status.BATCH_ORDER, 1)
    assert refused(mark(card, 0, [2])) == (Status.BATCH_ORDER, 1)
    assert card.read("PLAN_WINDOW") == WINDOW == 4
    assert refused(mark(card, WINDOW, [1])) == (Status.WINDOW, NO_BATCH)
    assert mark(card, WINDOW - 1, [1])["status"] == Status.OK
    for number in range(1, WINDOW):
        assert plan(card, number, [1]).done["status"] == Status.OK
    card.results[:] = 0xEE
    assert refused(plan(card, WINDOW, [1]).done) == (Status.WINDOW, NO_BATCH)
    assert (card.results == 0xEE).all(), "something was written"
    card.write("PLAN_RETIRED", 0)
    assert plan(card, WINDOW, [1]).done["status"] == Status.OK
    assert refused(mark(card, WINDOW + 1, [1])) == (Status.WINDOW, 0)
    assert card.read("FAULT") == 0


def test_retirement_goes_forward_up_to_the_batch_planned_last(card):
    assert card.read("PLAN_RETIRED") == NO_BATCH
    card.write("PLAN_RETIRED", 0)
    assert (card.read("FAULT"), card.read("PLAN_RETIRED")) == (FAULT_RETIRED, NO_BATCH)
    card.write("FAULT", FAULT_RETIRED)
    for number in range(3):
        plan(card, number, [1])
    for number, accepted in ((3, False), (1, True), (1, True), (0, False), (NO_BATCH, False),
                             (1 << 31, False), (2, True)):
        before = card.read("PLAN_RETIRED")
        card.write("PLAN_RETIRED", number)
        assert card.read("PLAN_RETIRED") == (number if accepted else before)
        assert card.read("FAULT") == (0 if accepted else FAULT_RETIRED), number
        card.write("FAULT", FAULT_RETIRED)


def test_remove_all_frees_every_slot(card):
    for number in range(3):
        plan(card, number, range(number, number + 5))
    card.write("PLAN_RETIRED", 1)
    assert card.run("lookup", **ALL)["status"] == Status.OK
    assert card.read("PLAN_RETIRED") == NO_BATCH
    assert plan(card, 3, [1]).done["status"] == Status.BATCH_ORDER
    found = plan(card, 0, range(8))
    assert (found.done["entries"], found.done["evictions"]) == (8, 0)


def test_a_soft_reset_keeps_slots_and_batches(card):
    slots = plan(card, 0, [1, 2, 3]).slots
    card.write("CONTROL", 1)
    card.await_ready()
    card.enable("lookup")
    assert plan(card, 0, [1]).done["error_index"] == 1
    assert plan(card, 1, [3, 2, 1]).slots == slots[::-1]


def test_lengths_that_do_not_add_up_plan_nothing(card):
    wrong = plan(card, 0, [1, 2, 3], samples=2, flags=BatchFlag.JAGGED, lengths=[1, 1])
    assert (wrong.done["status"], wrong.done["error_index"]) == (Status.LOOKUPS, 2)
    assert (wrong.done["entries"], wrong.done["wait_for"]) == (0, 0)
    right = plan(card, 0, [1, 2, 3], samples=2, flags=BatchFlag.JAGGED, lengths=[1, 2])
    assert (right.done["status"], right.done["entries"]) == (Status.OK, 3)


def fill_the_sets(card, numbers, counts=None):
    """Plan rows of the same sets one by one, then retire them; a fifth row must evict one."""
    rows = same_sets(5)
    for place, count in enumerate(counts or ()):
        ids = np.full(count, rows[place], np.uint32)
        card.run("lookup", opcode=Opcode.OBSERVE, source=card.put(ids), count=count, samples=count,
                 first_table=1, table_count=1)
    for number, place in enumerate(numbers):
        one(card, number, [rows[place]], policy("freq" if counts else "lru"))
    card.write("PLAN_RETIRED", len(numbers) - 1)
    return rows


def test_a_held_row_stays(card):
    rows = fill_the_sets(card, range(4))
    given = operands(card, Opcode.MARK, 6, [rows[0]], 1, 1) | {"first_table": 1}
    assert card.run("lookup", **given)["hits"] == 1
    assert one(card, 4, [rows[4]], policy("lru"))[1] == rows[1]


def test_no_slot_while_all_are_held(card):
    rows = same_sets(5)
    for number, planned in enumerate((rows[:1], rows[1:2], rows[2:4])):
        one(card, number, planned, 0)
    done, _ = one(card, 3, rows[4:], 0)
    assert (done["bypasses"], done["evictions"], done["wait_for"]) == (1, 0, NO_BATCH)
    assert card.result(1).tolist() == [STARVED.slots]
    card.write("PLAN_RETIRED", 0)
    done, victim = one(card, 4, rows[4:], 0)
    assert (done["bypasses"], victim, done["wait_for"]) == (0, rows[0], 3)


def test_admission_by_frequency(card):
    rows = fill_the_sets(card, range(4), counts=(5, 3, 2, 4, 1))
    flags = policy("freq") | PlanFlag.ADMIT
    done, _ = one(card, 4, [rows[4]], flags)
    assert (done["bypasses"], done["evictions"]) == (1, 0)
    card.run("lookup", opcode=Opcode.OBSERVE, source=card.put(np.full(1, rows[4], np.uint32)),
             count=1, samples=1, first_table=1, table_count=1)
    card.write("PLAN_RETIRED", 4)
    assert one(card, 5, [rows[4]], flags)[1] == rows[2], "as often as the least"


def test_a_plan_counts_on_demand(card):
    """The policy uses the count before the batch."""
    rows = fill_the_sets(card, range(4), counts=(2, 1, 2, 2))
    flags = policy("lfu") | PlanFlag.COUNT
    one(card, 4, [rows[1]], flags)  # number 1, count 2
    card.write("PLAN_RETIRED", 4)
    one(card, 5, [rows[1]], flags)  # number 2, count 3
    card.write("PLAN_RETIRED", 5)
    assert one(card, 6, [rows[4]], flags)[1] == rows[0]
    done = card.run("lookup", opcode=Opcode.HARVEST, destination=card.address("results"), count=9,
                    threshold=1)
    found = card.result(4 * done["entries"]).reshape(-1, 4)
    assert {row: count for row, table, count, _ in found.tolist()} == {
        rows[0]: 2, rows[1]: 3, rows[2]: 2, rows[3]: 2, rows[4]: 1}


def test_installed_rows_are_numbered_by_their_policy(card):
    rows = same_sets(5)
    for row, count in zip(rows, (5, 3, 2, 4, 6), strict=True):
        card.run("lookup", opcode=Opcode.OBSERVE, source=card.put(np.full(count, row, np.uint32)),
                 count=count, samples=count, first_table=1, table_count=1)
    done = card.run("lookup", opcode=Opcode.INSTALL, flags=int(policy("freq")), count=4,
                    source=card.put_rows([(1, row) for row in rows[:4]]),
                    slots=card.address("results"))
    assert (done["status"], done["entries"]) == (Status.OK, 4)
    done, victim = one(card, 0, [rows[4]], policy("freq") | PlanFlag.ADMIT)
    assert (done["evictions"], done["entries"], victim) == (0, 1, None), "it was clean"
    split = card.run("lookup", **operands(card, Opcode.SPLIT, 0, rows, 5) | {"first_table": 1})
    assert (split["hits"], card.result(5).tolist().index(0x8000_0000)) == (4, 2)


def test_flags(make_planner):
    card = make_planner(TINY)
    both = PlanFlag.COUNT | PlanFlag.ADMIT
    done = plan(card, 0, [1], flags=both).done
    assert (done["status"], done["error_index"]) == (Status.BAD_FLAGS, both)
    assert mark(card, 0, [1], flags=PlanFlag.COUNT)["status"] == Status.BAD_FLAGS


def test_a_card_without_a_planner(make_card):
    plain = make_card(open_model(config=replace(TINY, planner=False)))
    assert plan(plain, 0, [1]).done["status"] == Status.BAD_OPCODE
    assert mark(plain, 0, [1])["status"] == Status.BAD_OPCODE
    plain.write("PLAN_RETIRED", 0)
    assert plain.read("FAULT") == 4, "no such register"


def test_results_that_cannot_be_written(card):
    """A PLAN with a read-only result list is refused without effect."""
    for name in ("slots", "fill_slots", "victim_slots", "fills", "victims"):
        given = operands(card, Opcode.PLAN, 0, [1, 2], 2) | {name: card.address("lists")}
        done = card.run("lookup", **given)
        assert (done["status"], done["error_address"]) == (Status.READ_ONLY, given[name])
    assert plan(card, 0, [1, 2]).done["status"] == Status.OK
