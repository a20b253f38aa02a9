"""POOL and UPDATE that are refused, in whole or in part, on the model and on the RTL."""

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Opcode, PoolFlag, Status, UpdateFlag, packed_address
from hotrow_sim.golden.region_check import Table

NOWHERE = packed_address(60, 0)
BEYOND = 20  # a region that exceeds its memory, the list buffer
LENGTHS, TARGETS, WEIGHTS, GRADIENTS = 4096, 8192, 12288, 16384  # in the list buffer
UNTOUCHED = 0xEEEEEEEE


@pytest.fixture
def numbers(card):
    """Table 0 as float32[100, 16] of small integers; tables 3 and 4 are of fp16 and bf16, 5 of any
    type."""
    table = card.weights[:6400].view(np.float32).reshape(100, 16)
    table[:] = np.random.default_rng(1).integers(-8, 8, table.shape)
    for number, kind in ((3, 1), (4, 2), (5, 3)):
        card.table(number, Table(**{**vars(card.tables[1]), "type": kind}))
    card.region(BEYOND, card.addresses[10], 1 << 16, writable=False)
    return table


def put(card, rows, lengths, targets=None, weights=None):
    """Write lists and return their operands."""
    operands = {"source": card.put_rows(rows), "count": len(rows),
                "lengths": card.put(np.array(lengths, np.uint16), LENGTHS)}
    if targets is not None:
        operands["targets"] = card.put(np.array(targets, np.uint32), TARGETS)
    if weights is not None:
        operands["weights"] = card.put(np.array(weights, np.float32), WEIGHTS)
    return operands


def pool(card, rows, counts, flags=0, **more):
    """POOL to slots of 64 bytes: (completion, float32[slots, 16])."""
    flags |= PoolFlag.LISTED * ("targets" in more) | PoolFlag.WEIGHTED * ("weights" in more)
    lists = {name: more.pop(name) for name in ("targets", "weights")
             if not isinstance(more.get(name, 0), int)}
    card.results[:] = 0xEE
    done = card.run("move", **{
        "opcode": Opcode.POOL, "flags": flags, "bags": len(counts), "stride": 64,
        "destination": card.address("results")} | put(card, rows, counts, **lists) | more)
    return done, card.results[:64 * 16].view(np.float32).reshape(16, 16)


def untouched(slots):
    return (np.ascontiguousarray(slots).view(np.uint32) == UNTOUCHED).all()


def said(done):
    return done["status"], done["error_index"], done["error_address"], done["entries"]


def of(table, rows):
    return [(table, row) for row in rows]


@pytest.mark.parametrize("lengths, index, bags", [
    ([2, 2], 4, 2), ([2, 4], 6, 1), ([6, 1], 6, 0), ([2, 3, 1], 6, 2), ([2, 3, 0], 0, 3),
    ([0, 0], 0, 2), ([65535, 65535], 65535, 0)])
def test_lengths_that_do_not_add_up(card, numbers, lengths, index, bags):
    done, slots = pool(card, of(0, range(5)), lengths)
    status = Status.OK if sum(lengths) == 5 else Status.LOOKUPS
    assert said(done) == (status, index, 0, bags)
    ends = np.cumsum(lengths)
    for bag in range(bags):
        assert (slots[bag] == numbers[ends[bag] - lengths[bag]:ends[bag]].sum(0)).all()
    assert untouched(slots[bags:])


def test_bags_of_a_batch(card, numbers):
    """Column after column; a bad id skips its bag, and a missing table refuses the batch."""
    for number in (6, 7):
        card.table(number, Table(**{**vars(card.tables[0]), "last_row": 49 + number}))

    def run(ids, counts, **more):
        return pool(card, of(0, ids), counts, PoolFlag.BATCH, source=card.put(
            np.array(ids, np.uint32), WEIGHTS), **{
                "bags": 2, "first_table": 6, "table_count": 2} | more)

    ids, bags = [1, 55, 3, 4, 56], ([1, 55], [], [3], [4, 56])
    done, slots = run(ids, [2, 0, 1, 2])
    assert said(done) == (Status.OK, 0, 0, 4)
    for bag, rows in enumerate(bags):
        assert (slots[bag] == numbers[rows].sum(0)).all()
    ids[1] = 56
    done, slots = run(ids, [2, 0, 1, 2])
    assert said(done) == (Status.ROW_OUT_OF_RANGE, 1, 0, 3)
    assert untouched(slots[0])
    assert (slots[3] == numbers[[4, 56]].sum(0)).all()
    assert said(run(ids, [0, 0, 2, 4])[0]) == (Status.LOOKUPS, 6, 0, 3)
    assert said(run(ids, [2, 0, 1, 2], table_count=3)[0]) == (Status.TABLE_UNKNOWN, 8, 0, 0)
    assert said(run(ids, [2, 0, 1, 2], table_count=0)[0]) == (Status.EMPTY, 0, 0, 0)
    assert said(run(ids, [2, 0, 1, 2], bags=0)[0]) == (Status.EMPTY, 0, 0, 0)
    assert said(run(ids, [2, 0, 1, 2], bags=1025)[0]) == (Status.TOO_LARGE, 1025, 0, 0)


@pytest.mark.parametrize("at", [1, 3, 4])
@pytest.mark.parametrize("bad, status", [
    ((9, 0), Status.TABLE_UNKNOWN), ((0x1_0000, 0), Status.TABLE_UNKNOWN),
    ((0, 100), Status.ROW_OUT_OF_RANGE), ((2, 0), Status.ROW_SHAPE), ((3, 0), Status.STRIDE),
])
def test_a_refused_row_skips_its_bag(card, numbers, at, bad, status):
    rows = of(0, range(6))
    rows[at] = bad
    done, slots = pool(card, rows, [2, 0, 2, 1, 1])
    assert said(done) == (status, at, 0, 4)
    left_out = {1: 0, 3: 2, 4: 3}[at]
    assert untouched(slots[left_out])
    for bag, chosen in enumerate(([0, 1], [], [2, 3], [4], [5])):
        assert bag == left_out or (slots[bag] == numbers[chosen].sum(0)).all()


@pytest.mark.parametrize("first, status", [
    ((9, 0), Status.TABLE_UNKNOWN), ((3, 0), Status.STRIDE), ((5, 0), Status.ROW_SHAPE)])
def test_the_first_row_gives_the_shape(card, numbers, first, status):
    stride = 96 if first[0] == 5 else 64
    done, slots = pool(card, [first, *of(0, range(3))], [0, 1, 0, 1, 2], stride=stride)
    assert said(done) == (status, 0, 0, 0) and done["bytes"] == 0 and untouched(slots)
    done, slots = pool(card, [(0, 100), (0, 1)], [0, 1, 1])
    assert said(done) == (Status.ROW_OUT_OF_RANGE, 0, 0, 2)
    assert (slots[0] == 0).all() and untouched(slots[1]) and (slots[2] == numbers[1]).all()


def test_slots_that_cannot_be_written(card, numbers):
    far = (1 << 15) // 64
    at = packed_address(11, 64 * far)
    done, slots = pool(card, of(0, range(5)), [2, 1, 2], targets=[4, far, 2])
    assert said(done) == (Status.REGION, 2, at, 2)
    assert (slots[4] == numbers[:2].sum(0)).all() and (slots[2] == numbers[3:5].sum(0)).all()
    # The error of a row precedes that of its bag; a bag with a refused row has no error.
    done, _ = pool(card, [(0, 0), (0, 100), *of(0, range(3))], [1, 2, 2], targets=[far, far, far])
    assert said(done) == (Status.REGION, 0, at, 0)
    done, _ = pool(card, [(0, 0), (0, 100), *of(0, range(3))], [0, 2, 1, 2],
                   targets=[1, far, 2, far])
    assert said(done) == (Status.ROW_OUT_OF_RANGE, 1, 0, 2)
    for destination, status in (
            (NOWHERE, Status.REGION), (card.address("lists"), Status.READ_ONLY),
            (card.address("results", 8), Status.MISALIGNED)):
        done, _ = pool(card, of(0, range(3)), [0, 2, 1], destination=destination)
        assert said(done) == (status, 0, destination, 0)


def test_lists_without_responses(card, numbers):
    end = packed_address(BEYOND, (1 << 15) - 64)  # the last 64 bytes of memory
    offset = (1 << 15) - 64
    card.lists[offset:].view(np.uint16)[:] = 1
    done, slots = pool(card, of(0, [*range(32), 0, 1]), [1] * 34, lengths=end, stride=64)
    assert said(done) == (Status.DECERR, 32, 0, 32)
    assert (card.results[:2048].view(np.float32).reshape(32, 16) == numbers[:32]).all()
    card.lists[offset:].view(np.uint32)[:] = np.arange(16)
    done, slots = pool(card, of(0, range(20)), [2] * 3 + [1] * 14, targets=end)
    assert said(done) == (Status.DECERR, 19, 0, 16)
    card.lists[offset:].view(np.float32)[:] = 1
    done, slots = pool(card, of(0, range(20)), [14, 3, 1, 2], weights=end)
    assert said(done) == (Status.DECERR, 16, 0, 1)
    assert (slots[0] == numbers[:14].sum(0)).all() and untouched(slots[1:])


def test_rows_without_responses(card, numbers):
    card.table(6, Table(**{**vars(card.tables[0]), "last_row": 600,
                           "weights": packed_address(BEYOND, 0)}))
    gone = (1 << 15) // 64
    done, slots = pool(card, of(6, [1, 2, gone, 3, gone + 1]), [2, 1, 1, 1])
    assert said(done) == (Status.DECERR, 2, packed_address(BEYOND, 64 * gone), 2)
    assert untouched(slots[[1, 3]]) and not untouched(slots[[0]])


def update(card, rows, lengths, gradients, flags=0, targets=None, lr=0.5, eps=0.0, **more):
    """UPDATE by gradients [n, ...] of 64 bytes each."""
    flags |= UpdateFlag.LISTED * (targets is not None)
    operands = put(card, rows, lengths, targets=targets)
    card.put(gradients, GRADIENTS)
    bits = {name: int(np.float32(value).view(np.uint32)) for name, value in
            (("lr", lr), ("eps", eps))}
    return card.run("move", **{
        "opcode": Opcode.UPDATE, "flags": flags, "gradient_count": sum(lengths),
        "gradients": card.address("lists", GRADIENTS),
        "stride": gradients.strides[0]} | bits | operands | more)


def integers(shape, seed=3):
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(np.float32)


def test_state_of_more_than_a_number(card, numbers):
    done = update(card, of(0, [1, 2]), [1, 1], integers((2, 16)), UpdateFlag.ADAGRAD)
    assert said(done) == (Status.ROW_SHAPE, 0, 0, 0), "it has 8 bytes of state"


@pytest.mark.parametrize("counts, total, index, rows", [
    ([2, 1, 2], 6, 5, 3), ([2, 1, 2], 4, 5, 2), ([2, 0, 3], 5, 2, 1), ([0, 2, 3], 5, 0, 0),
    ([2, 3, 65535], 5, 65540, 2), ([2, 1, 2], 0xFFFF_FFFF, 5, 3)])
def test_gradients_that_do_not_add_up(card, numbers, counts, total, index, rows):
    gradients, expected = integers((6, 16)), numbers.copy()
    done = update(card, of(0, [4, 5, 6]), counts, gradients, gradient_count=total)
    assert said(done) == (Status.LOOKUPS, index, 0, rows)
    ends = np.cumsum(counts)
    for number in range(rows):
        expected[4 + number] -= gradients[ends[number] - counts[number]:ends[number]].sum(0) / 2
    assert (numbers == expected).all()


@pytest.mark.parametrize("bad, status", [
    ((9, 0), Status.TABLE_UNKNOWN), ((0, 100), Status.ROW_OUT_OF_RANGE),
    ((2, 0), Status.ROW_SHAPE), ((3, 0), Status.STRIDE)])
def test_refused_rows_are_skipped(card, numbers, bad, status):
    gradients, expected = integers((4, 16)), numbers.copy()
    done = update(card, [(0, 1), bad, (0, 2)], [1, 2, 1], gradients)
    assert said(done) == (status, 1, 0, 2)
    expected[1] -= gradients[0] / 2
    expected[2] -= gradients[3] / 2
    assert (numbers == expected).all()


def test_gradients_that_cannot_be_read(card, numbers):
    gradients, expected = integers((4, 16)), numbers.copy()
    far = ((1 << 15) - GRADIENTS) // 64
    at = card.address("lists", 1 << 15)
    done = update(card, of(0, [1, 2, 3]), [1, 2, 1], gradients, targets=[0, 1, far, 3])
    assert said(done) == (Status.REGION, 1, at, 2)
    expected[1] -= gradients[0] / 2
    expected[3] -= gradients[3] / 2
    assert (numbers == expected).all()
    # The error of a row precedes those of its gradients; they precede that of its address.
    done = update(card, of(0, [1, 100]), [1, 1], gradients, targets=[0, far], lr=0)
    assert said(done) == (Status.ROW_OUT_OF_RANGE, 1, 0, 1)
    for address, status in ((NOWHERE, Status.REGION),
                            (card.address("lists", GRADIENTS + 8), Status.MISALIGNED)):
        done = card.run("move", **{
            "opcode": Opcode.UPDATE, "gradient_count": 1, "gradients": address, "stride": 64}
            | put(card, of(0, [1]), [1]))
        assert said(done) == (status, 0, address, 0)
    assert (numbers == expected).all()


def test_tables_that_cannot_be_written(card, numbers):
    card.region(21, card.addresses[8], 6400, writable=False)
    card.table(6, Table(**{**vars(card.tables[0]), "weights": packed_address(21, 0)}))
    before = numbers.copy()
    done = update(card, of(6, [3, 4]), [1, 1], integers((2, 16)))
    assert said(done) == (Status.READ_ONLY, 0, packed_address(21, 3 * 64), 0)
    assert (numbers == before).all()
    state = packed_address(9, 4096 - 8)
    card.table(6, Table(**{**vars(card.tables[2]), "state": state}))
    done = update(card, of(6, [1, 2]), [1, 1], integers((2, 4)), UpdateFlag.ADAGRAD)
    assert said(done) == (Status.REGION, 1, packed_address(9, 4096), 1)
