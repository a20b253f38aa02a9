"""Plans through the driver: slots of coming batches, against dictionaries and plain training."""

from contextlib import ExitStack
from dataclasses import replace

import hotrow
import numpy as np
import pytest
from hotrow import NO_SLOT, BatchError, CommandError, DeviceError, Opcode, RowList, Status
from hotrow.memory.buffer import Held
from hotrow_rtl.config import preset

from tests.driver.conftest import (
    BOARDS,
    ROWS,
    cleared,
    counts_of,
    line_to,
    open_card,
    pairs,
    raw,
    register_tables,
)
from tests.support.fuzz.planning import STARVED

CARDS = "model", "cpu", "sim", "pcie", "network"  # of several presets each
TINY, ECP5 = preset("tiny"), preset("ecp5")
MANY = (400, 70, 230)  # rows of the tables
POLICIES = "lru", "rrip", "lfu", "freq"
SCARCE = pytest.mark.parametrize("config", [STARVED], ids=["starved"])
STARVED_BOARD = replace(ECP5, name="ecp5-starved", **{
    name: getattr(STARVED, name)
    for name in ("directory_sets", "directory_partitions", "miss_entries", "stamp_bits")})


@pytest.fixture(scope="module")
def planners(card_kind):
    """The cards of the module by name, opened when they are first used."""
    devices = {}
    with ExitStack() as stack:
        def opened(config):
            if config.name not in devices:
                devices[config.name] = stack.enter_context(
                    open_card(card_kind, config) if card_kind in BOARDS
                    else hotrow.open(stack.enter_context(line_to(card_kind)), config=config,
                                     timeout=60))
            return devices[config.name]
        yield opened


@pytest.fixture
def open_planner(card_kind, planners):
    def make(config=ECP5 if card_kind == "sim" else TINY, rows=ROWS):
        if card_kind in BOARDS:
            config = STARVED_BOARD if config is STARVED else ECP5
        device = cleared(planners(config))
        register_tables(device, rows)
        return device
    return make


@pytest.fixture
def device(open_planner):
    return open_planner()


def skewed(rng, samples, rows):
    return np.stack([(count * rng.random(samples) ** 2).astype(np.int64) for count in rows], 1)


def test_a_plan_in_full(device):
    plan = device.plan([[3, 1, 2], [3, 1, 5]])
    assert plan.number == 0 and device.next_batch == 1
    assert pairs(plan.fills) == [(0, 3), (1, 1), (2, 2), (2, 5)]
    assert plan.slots.tolist() == [*plan.fills.slots[:3].tolist(), *plan.fills.slots[[0, 1, 3]]]
    assert (plan.unique, plan.lookups, plan.hits, plan.bypasses) == (4, 6, 0, 0)
    assert len(plan.evictions) == 0 and plan.wait_for is None and plan.cycles > 0
    again = device.plan_async([[3, 6, 5]]).result()
    assert (again.number, again.hits, pairs(again.fills)) == (1, 2, [(1, 6)])
    assert again.slots[[0, 2]].tolist() == plan.slots[[0, 5]].tolist()
    marked = device.mark([[3, 0, 5]], 7)
    assert (marked.lookups, marked.hits, marked.misses) == (3, 2, 1)
    device.retire(0)
    assert device.retired_batch == 0
    split = device.split([[3, 6, 4]])
    assert split.slots[:2].tolist() == again.slots[:2].tolist() and len(split.misses) == 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", [TINY, STARVED, ECP5], ids=lambda config: config.name)
def test_rows_train_in_slots_as_in_their_tables(open_planner, card_kind, config, policy):
    """Batch after batch: evict, fill, train every lookup's row in place, bypassed ones written
    back; what the tables hold in the end is what training them in place gives."""
    if card_kind in BOARDS and (config is TINY or policy in ("lru", "lfu")):
        pytest.skip("a simulated board takes minutes: it is an ecp5, and runs two policies")
    rng = np.random.default_rng([len(policy), config.slots])
    device = open_planner(config, MANY)
    wanted = [table.weights.copy() for table in device.tables]
    most = 3 * 50
    buffer = hotrow.empty((device.geometry.slots + most, 8), np.float32)
    resident, bypasses, evictions = {}, 0, 0
    for number in range(25):
        ids = skewed(rng, int(rng.integers(1, 50)), MANY)
        if rng.random() < 0.5:
            device.mark(ids, number)
        plan = device.plan(ids, policy=policy, observe=bool(rng.integers(2)))
        assert len(set(pairs(plan.fills))) == len(plan.fills)
        assert np.count_nonzero(plan.fills.slots >= device.geometry.slots) == plan.bypasses
        assert plan.wait_for is None, "those of the batch before are back"
        device.scatter(plan.evictions, buffer, plan.evictions.slots)
        device.gather(plan.fills, buffer, plan.fills.slots)
        for row, slot in zip(pairs(plan.evictions), plan.evictions.slots.tolist(), strict=True):
            assert resident.pop(row) == slot
        resident |= dict(zip(pairs(plan.fills), plan.fills.slots.tolist(), strict=True))
        lookups = [(t, int(r)) for sample in ids for t, r in enumerate(sample)]
        for (table, row), slot in zip(lookups, plan.slots.tolist(), strict=True):
            assert resident[table, row] == slot
            buffer[slot] = 0.5 * buffer[slot] + number
            wanted[table][row] = 0.5 * wanted[table][row] + number
        bypassed = plan.fills.slots >= device.geometry.slots
        rows = hotrow.RowList(plan.fills.table[bypassed], plan.fills.row[bypassed])
        device.scatter(rows, buffer, plan.fills.slots[bypassed])
        for row in pairs(rows):
            del resident[row]
        device.retire(number)
        bypasses, evictions = bypasses + plan.bypasses, evictions + len(plan.evictions)
    for (table, row), slot in resident.items():
        device.tables[table].weights[row] = buffer[slot]
    for table, weights in zip(device.tables, wanted, strict=True):
        assert (table.weights == weights).all()
    if config is STARVED:
        assert bypasses and evictions


def history(device, seed):
    """Every answer to random batches, of which the last ones are not retired."""
    rng, answers = np.random.default_rng(seed), []
    for number in range(25):
        ids = skewed(rng, int(rng.integers(1, 50)), MANY)
        admission, policy = bool(rng.integers(2)), POLICIES[rng.integers(len(POLICIES))]
        if rng.random() < 0.5:
            answers.append(device.observe(ids).hits)
        if rng.random() < 0.5:
            answers.append(device.mark(ids, number).hits)
        plan = device.plan(ids, policy=policy, admission=admission, writes=bool(rng.integers(2)),
                           observe=not admission)
        answers.append((plan.slots.tolist(), pairs(plan.fills), pairs(plan.evictions), plan.hits,
                        plan.bypasses, plan.wait_for))
        if number > 1:
            device.retire(number - 2)
    return [*answers, counts_of(device.harvest(device.geometry.slots))]


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, STARVED, ECP5], ids=lambda config: config.name)
def test_a_cleared_card_answers_as_one_that_was_opened(open_planner, card_kind, config):
    """Slots, stamps, numbers and counts of the history before do not show."""
    if card_kind in BOARDS:
        pytest.skip("a simulated board takes minutes, and its card is an ecp5")
    with hotrow.open("model", config=config) as opened:
        register_tables(opened, MANY)
        expected = history(opened, 2)
    device = open_planner(config, MANY)
    history(device, 1)
    for before in (1, 2):
        device.clear_directory()
        device.clear_counters()
        for number, (answer, other) in enumerate(zip(history(device, 2), expected, strict=True)):
            assert answer == other, (before, number)


@SCARCE
def test_rows_bypassed_again_and_again_are_made_one(open_planner, config):
    device = open_planner(config, MANY)
    ids = np.stack([np.r_[0:400, 0:400], np.full(800, 3), np.tile(np.arange(200), 4)], 1)
    plan = device.plan(ids)
    assert plan.bypasses > 500
    rows = dict(zip(pairs(plan.fills), plan.fills.slots.tolist(), strict=True))
    assert len(rows) == len(plan.fills) == plan.unique == 601
    wanted = [rows[t, int(r)] for sample in ids for t, r in enumerate(sample)]
    assert plan.slots.tolist() == wanted
    bypassed = plan.fills.slots[plan.fills.slots >= device.geometry.slots]
    assert bypassed.tolist() == list(range(64, 64 + plan.bypasses))


@SCARCE
def test_a_row_that_waits(open_planner, config):
    device = open_planner(config, MANY)
    ids = [[row, row % 70, row % 230] for row in range(100)]
    first = device.plan(ids)
    assert first.bypasses and first.wait_for is None
    device.plan([[0, 0, 0]])
    assert device.plan(ids).wait_for in (0, 1)
    device.retire(1)
    device.plan([[0, 0, 0]])
    assert device.plan(ids).wait_for == 2


@SCARCE
def test_read_only_batches_leave_nothing_to_write_back(open_planner, config):
    device = open_planner(config, MANY)
    for number in range(5):
        ids = [[60 * number + row, number, number] for row in range(60)]
        plan = device.plan(ids, writes=False)
        device.retire(number)
        assert len(plan.fills) > 50 and len(plan.evictions) == 0


def test_admission_and_installed_rows(device):
    """Rows of one table, counted twice, installed by FREQ; all slots of a set are theirs."""
    rows = np.arange(40)
    device.observe(hotrow.Batch.dense(np.repeat(rows, 2)[:, None], [device.tables[0]]))
    installed = device.install((device.tables[0], rows), policy="freq")
    assert installed.entries == 40
    table = [device.tables[0]]
    found = device.plan(hotrow.Batch.dense(rows[:, None], table), policy="freq", admission=True)
    assert found.hits == 40 and len(found.fills) == 0


def test_batches_out_of_turn(device):
    with pytest.raises(BatchError, match="batch 1 cannot be planned: expected 0, the next"):
        device.plan([[0, 0, 0]], number=1)
    with pytest.raises(BatchError, match="batch 0 cannot be retired: expected one from -1, "
                                         "retired last, to -1, planned last"):
        device.retire(0)
    device.plan([[0, 0, 0]], number=0)
    with pytest.raises(BatchError, match="batch 0 cannot be marked: expected at least 1"):
        device.mark([[0, 0, 0]], 0)
    with pytest.raises(BatchError, match="batch 64 is 65 batches ahead of the one retired last, "
                                         "-1: this card follows 64 at a time"):
        device.mark([[0, 0, 0]], 64)
    for _ in range(63):
        device.plan_async([[0, 0, 0]])
    with pytest.raises(BatchError, match="batch 64 is 65 batches ahead"):
        device.plan([[0, 0, 0]])
    with pytest.raises(BatchError, match="batch 64 cannot be retired"):
        device.retire(64)
    device.fence(queue="lookup")
    device.retire(63)
    with pytest.raises(BatchError, match="batch 62 cannot be retired: expected one from 63"):
        device.retire(62)
    assert device.plan([[0, 0, 0]]).number == 64
    device.clear_directory()
    assert (device.next_batch, device.retired_batch) == (0, -1)
    assert device.plan([[0, 0, 0]]).unique == 3


def test_arguments(device):
    with pytest.raises(BatchError, match="policy must be 'lru', 'rrip', 'lfu', 'freq', not 'mru'"):
        device.plan([[0, 0, 0]], policy="mru")
    with pytest.raises(BatchError, match=r"cannot observe.*call observe"):
        device.plan([[0, 0, 0]], admission=True, observe=True)
    with pytest.raises(BatchError, match=r"id 40 is out of range: table 0 .* \(sample 1, column 0"):
        device.plan([[0, 0, 0], [40, 0, 0]])
    assert device.next_batch == 0 and device.plan([[0, 0, 0]]).number == 0


def test_ids_that_the_card_finds_wrong(device):
    device.check_ids = False
    with pytest.raises(BatchError, match="id 40 is out of range") as caught:
        device.plan([[0, 0, 0], [40, 0, 0]])
    plan = caught.value.plan
    assert pairs(plan.fills) == [(0, 0), (1, 0), (2, 0)] and plan.slots[3] == NO_SLOT
    assert device.plan([[0, 0, 0]]).hits == 3


def test_a_refused_plan_keeps_its_number(device):
    operands = {"source": 63 << 48, "count": 3, "samples": 1, "table_count": 3, "value": 0}
    assert raw(device, Opcode.PLAN, **operands) is Status.REGION
    assert device.plan([[0, 0, 0]]).number == 0
    assert raw(device, Opcode.PLAN, **operands) is Status.REGION
    device._planner.numbers.known_next = 3
    with pytest.raises(CommandError, match=r"BATCH_ORDER .*index 1"):
        device.plan([[0, 0, 0]])
    assert device.plan([[0, 0, 0]]).number == 1


def test_a_plan_lost_in_a_reset(device):
    device.wait_event_async(0, 1, queue="lookup")  # the plan waits after it
    future = device.plan_async([[0, 0, 0]])
    device.reset()
    with pytest.raises(DeviceError, match="reset"):
        future.result()
    with pytest.raises(DeviceError, match=r"never gathered: free them with clear_directory\(\)"):
        device.plan([[0, 0, 0]])
    device.clear_directory()
    assert device.plan([[0, 0, 0]]).number == 0
    device.reset()
    assert device.plan([[0, 0, 0]]).hits == 3


def test_a_card_without_a_planner():
    with hotrow.open("model", config=replace(TINY, planner=False), timeout=60) as device:
        register_tables(device)
        for call, what in ((lambda: device.plan([[0, 0, 0]]), "PLAN"),
                           (lambda: device.mark([[0, 0, 0]], 0), "MARK"),
                           (lambda: device.retire(0), "batches"),
                           (lambda: device.install((0, [1]), policy="lru"), "a policy")):
            with pytest.raises(DeviceError, match=f"no planner, which {what} needs.*planner=True"):
                call()
        assert raw(device, Opcode.PLAN) is Status.BAD_OPCODE


def test_lists_that_stay_where_the_card_wrote_them(open_planner):
    """Views of the card's lists are those of copies, and GATHER finds its rows by their address."""
    device = open_planner()
    tables, lists = device.tables, Held()
    ids = np.arange(len(tables) * 3, dtype=np.int64).reshape(3, -1) % 5
    kept = device.plan(ids, 0, lists=lists)
    assert kept.fills.address is not None
    rows = device.gather(kept.fills)
    copied = RowList(kept.fills.table.copy(), kept.fills.row.copy())
    assert np.array_equal(rows, device.gather(copied))
    slots = np.random.default_rng(3).permutation(len(copied)).astype(np.uint32)
    into = hotrow.empty(rows.shape, rows.dtype)
    device.gather(kept.fills, out=into, slots=slots)
    assert np.array_equal(into[slots], rows)
    before = kept.slots.copy()
    lists.release()
    device.retire(0)
    again = device.plan(ids, 1)
    assert np.array_equal(again.slots, before) and again.fills.address is None
