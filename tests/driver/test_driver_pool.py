"""POOL through the driver, against the golden order of addition."""

from dataclasses import replace

import hotrow
import numpy as np
import pytest
from hotrow import BatchError, CommandError, DeviceError, PaddedCopyWarning, RegistrationError
from hotrow_rtl.config import preset
from hotrow_sim.golden.arithmetic.pooling import pool

from tests.driver.conftest import ROWS, picked, usable

LENGTHS = [0, 1, 2, 17, 1, 0, 40, 3]
KINDS = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}


def some_rows(count, seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(3, size=count).astype(np.uint32)
    return hotrow.RowList(table, (rng.random(count) * np.array(ROWS)[table]).astype(np.uint32))


def register(device, kind, dim=8, rows=ROWS):
    """Tables of random numbers of that element type."""
    rng = np.random.default_rng(dim)
    tables = []
    for count in rows:
        weights = hotrow.empty((count, dim), KINDS[kind])
        if kind == "bf16":
            weights[:] = rng.normal(size=weights.shape).astype(np.float32).view(np.uint32) >> 16
        else:
            weights[:] = rng.normal(size=weights.shape)
        tables.append(device.register_table(weights))
    return tables


def expected(tables, rows, lengths, kind="fp32", weights=None, mean=False):
    form = np.uint32 if kind == "fp32" else np.uint16
    listed = picked(tables, rows).view(form)
    weights = None if weights is None else weights.astype(np.float32).view(np.uint32)
    return pool(listed, np.array(lengths), kind, weights, mean)


def same(found, bits):
    return found.shape == bits.shape and (found.view(bits.dtype) == bits).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_in_the_order_of_addition(device, kind, mode, weighted):
    tables, rows = register(device, kind), some_rows(sum(LENGTHS), 1)
    weights = np.random.default_rng(2).normal(size=len(rows)) if weighted else None
    found = device.pool(rows, LENGTHS, weights=weights, mode=mode)
    assert found.dtype == KINDS[kind]
    assert same(found, expected(tables, rows, LENGTHS, kind, weights, mode == "mean"))
    assert device.statistics["POOL"].commands == 1


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_as_embedding_bag(device, mode):
    torch = pytest.importorskip("torch")
    table = register(device, "fp32", dim=16)[0]
    rows = torch.from_numpy(np.random.default_rng(3).integers(0, ROWS[0], 60))
    offsets = torch.tensor([0, 5, 5, 6, 31])
    ours = device.pool((table, rows), offsets=offsets, mode=mode)
    theirs = torch.nn.functional.embedding_bag(
        rows, torch.from_numpy(np.array(table.weights)), offsets, mode=mode)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [8, 5])
@pytest.mark.parametrize("registered", [True, False])
def test_bags_land_in_listed_slots_and_nowhere_else(device, dim, registered):
    if dim == 5:
        with pytest.warns(PaddedCopyWarning):
            tables = register(device, "fp32", dim)
    else:
        tables = register(device, "fp32", dim)
    rows, slots = some_rows(sum(LENGTHS), 4), np.random.default_rng(4).permutation(20)[:8]
    out = hotrow.empty((20, dim), np.float32)
    out[:] = -1
    target = device.register(out) if registered else out
    assert device.pool(rows, LENGTHS, out=target, slots=slots) is out
    assert same(out[slots], expected(tables, rows, LENGTHS))
    assert (np.delete(out, slots, axis=0) == -1).all()
    out[:] = -1
    device.pool(rows, LENGTHS, out=target)
    assert same(out[:8], expected(tables, rows, LENGTHS)) and (out[8:] == -1).all()


@pytest.mark.parametrize("out", [None, np.full((4, 8), 7, np.float32)])
def test_bags_that_are_all_empty_are_zeros(device, tables, out):
    found = device.pool((tables[0], []), [0, 0, 0], out=out)
    assert (found[:3] == 0).all() and len(found) == (3 if out is None else 4)
    assert out is None or (out[3] == 7).all()
    assert device.pool((tables[0], []), offsets=[]).shape == (0, 8)
    assert "POOL" not in device.statistics


@pytest.mark.parametrize("arguments, message", [
    ({}, "either lengths, .*or offsets"),
    ({"lengths": [3], "offsets": [0]}, "either lengths"),
    ({"lengths": [1, 1]}, "add up to 2, but 3 rows are listed"),
    ({"lengths": [4, -1]}, "bag 1 cannot have -1 rows"),
    ({"lengths": [1.0, 2.0]}, "lengths must be integers"),
    ({"offsets": [1, 2]}, "must begin with 0, .*not with 1"),
    ({"offsets": []}, "must begin with 0, .*not with nothing"),
    ({"offsets": [0, 2, 1]}, "must not decrease.*bag 1 would be rows 2 to 1"),
    ({"offsets": [0, 4]}, "exceed the 3 rows: bag 1 would be rows 4 to 3"),
    ({"lengths": [3], "mode": "max"}, "mode must be 'sum' or 'mean', not 'max'"),
    ({"lengths": [3], "weights": [1.0, 2.0]}, "one for each of 3 rows; got float64 of shape .2,"),
    ({"lengths": [3], "weights": [1, 2, 3]}, "floating-point numbers"),
    ({"lengths": [3], "slots": [0]}, "slots are places in an array, but no array was given"),
])
def test_errors_teach(device, tables, arguments, message):
    with pytest.raises(BatchError, match=message):
        device.pool((tables[0], [1, 2, 3]), **arguments)
    assert usable(device, tables)


def test_a_bag_may_not_be_too_long(device, tables):
    with pytest.raises(BatchError, match="bag 1 has 65536 rows: a bag has at most 65535"):
        device.pool((tables[0], np.zeros(65537, np.int64)), [1, 65536])


def test_out_must_fit(device, tables):
    with pytest.raises(RegistrationError, match="out must be of float32, 32 bytes a row"):
        device.pool((tables[0], [1]), [1], out=hotrow.empty((4, 4), np.float32))
    with pytest.raises(BatchError, match="two rows cannot go to one slot"):
        device.pool((tables[0], [1, 2]), [1, 1], out=hotrow.empty((4, 8), np.float32), slots=[1, 1])


def test_unlike_tables(device, tables):
    other = device.register_table(hotrow.empty((5, 8), np.float16), name="half")
    with pytest.raises(BatchError, match=r"rows of one kind.*'t0'.*'half'"):
        device.pool(([0, other.number], [0, 0]), [2])


@pytest.mark.parametrize("check", [True, False])
def test_rows_that_do_not_exist(device, tables, check):
    device.check_ids = check
    out = hotrow.empty((3, 8), np.float32)
    out[:] = -1
    with pytest.raises(BatchError, match=r"row 40 is out of range: table 0.*position 2"):
        device.pool((tables[0], [1, 2, 40, 3]), [1, 2, 1], out=out)
    if not check:
        assert (out[0] == tables[0].weights[1]).all() and (out[2] == tables[0].weights[3]).all()
        assert (out[1] == -1).all(), "the card serves the other bags"
    assert usable(device, tables)


def test_the_card_reports_a_table_out_of_its_region(device, tables):
    device.registers.write("TABLE_NUMBER", 0)
    device.registers.write("TABLE_LAST_ROW", 99)
    device.registers.write_wide("TABLE_WEIGHTS", tables[0].buffers[0].packed())
    device.registers.write("TABLE_ROW", 32 << 16 | 32)
    device.registers.write("TABLE_COMMIT", 1)
    device.check_ids = False
    with pytest.raises(CommandError, match=r"POOL ended with REGION.*index 1, .*weights of 't0'"):
        device.pool((tables[0], [1, 40, 2]), [2, 1])


def test_a_card_without_arithmetic():
    config = replace(preset("tiny"), arithmetic=0)
    with hotrow.open("model", config=config) as device:
        table = device.register_table(hotrow.empty((4, 8), np.float32))
        assert not device.geometry.arithmetic
        with pytest.raises(DeviceError, match=r"no arithmetic, which POOL needs.*arithmetic=1"):
            device.pool((table, [1]), [1])
        with pytest.raises(DeviceError, match="no arithmetic, which UPDATE needs"):
            device.update((table, [1]), hotrow.empty((1, 8), np.float32), 0.1)


def test_a_batch(device):
    """The card reads its ids, given at once or staged; a bad one is named."""
    if not device.geometry.pools_batches:
        pytest.skip("the card pools no batch")
    tables, rng = register(device, "fp32"), np.random.default_rng(5)
    lengths = rng.integers(0, 5, 3 * len(tables))
    ids = rng.integers(0, min(table.rows for table in tables), lengths.sum()).astype(np.int32)
    column = np.repeat(np.arange(len(lengths)) // 3, lengths)
    rows = hotrow.RowList(np.array([table.number for table in tables])[column], ids)
    batch = hotrow.Batch.jagged(ids, lengths, 3, feature_major=True)
    staged, weights = device.stage(batch), rng.normal(size=len(ids))
    wanted = expected(tables, rows, lengths, weights=weights)
    for given in (batch, staged):
        assert same(device.pool(given, weights=weights), wanted)
    staged.release()
    with pytest.raises(BatchError, match="batches have their bags"):
        device.pool(batch, lengths)
    for wrong in (hotrow.Batch.jagged(ids, lengths, 3),
                  hotrow.Batch.dense(ids[:, None], tables[:1]),
                  hotrow.Batch.jagged(ids.astype(np.int64), lengths, 3, feature_major=True)):
        with pytest.raises(BatchError, match="pool takes a batch of 32-bit ids"):
            device.pool(wrong)
    ids[2] = 99999
    device.check_ids = False
    with pytest.raises(BatchError, match="id 99999 is out of range") as caught:
        device.pool(hotrow.Batch.jagged(ids, lengths, 3, feature_major=True))
    assert caught.value.position == 2


def test_a_card_that_pools_no_batch():
    with hotrow.open("model", config=replace(preset("tiny"), arithmetic=1)) as device:
        device.register_table(hotrow.empty((4, 8), np.float32))
        with pytest.raises(DeviceError, match=r"pools no batch: .*arithmetic=2"):
            device.pool(hotrow.Batch.jagged(np.zeros(1, np.int32), [1], 1, feature_major=True))


def test_bags_that_were_staged(device):
    """Once for several commands, of which each has weights of its own."""
    tables, rows = register(device, "fp32"), some_rows(sum(LENGTHS), 1)
    staged = device.stage_rows(rows, offsets=np.cumsum([0, *LENGTHS[:-1]]))
    weights = np.random.default_rng(2).normal(size=len(rows))
    device.pool(some_rows(8, 3), [8])  # which would take memory that was given back
    for factors in (None, weights):
        found = device.pool(staged, weights=factors)
        assert same(found, expected(tables, rows, LENGTHS, weights=factors))
    with pytest.raises(BatchError, match=r"staged rows .*have their bags"):
        device.pool(staged, LENGTHS)
    staged.release()
    with pytest.raises(BatchError, match="staged list of rows was released: stage it again"):
        device.pool(staged)
    with pytest.raises(BatchError, match="row 99999 is out of range"):
        device.stage_rows((tables[0], [99999]), [1])
    device.unregister_table(tables[0])
