"""UPDATE through the driver, against the golden steps and the trainer's own."""

import os
from pathlib import Path

import hotrow
import numpy as np
import pytest
from hotrow import BatchError, CommandError, PaddedCopyWarning, RegistrationError
from hotrow_sim.golden.arithmetic.optimizer import rowwise_adagrad, sgd
from hotrow_sim.golden.arithmetic.pooling import bag_sums
from hotrow_sim.golden.float import widen

from tests.driver.conftest import ROWS, usable
from tests.driver.test_driver_pool import KINDS, register
from tests.support.row_sums import summed, with_special_numbers

LR, EPS = 0.05, 1e-8
# The data lies beside the repository; a checkout elsewhere can say where with HOTROW_SHARED_DATA.
RETAIL = Path(os.environ.get("HOTROW_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data")
              ) / "online_retail" / "trace.tsv.gz"


def bits(values):
    values = np.ascontiguousarray(values)
    return values.view({4: np.uint32, 2: np.uint16}[values.itemsize])


def lookups(count, seed, rows=ROWS):
    """Skewed rows of tables, many of them more than once."""
    rng = np.random.default_rng(seed)
    table = rng.integers(len(rows), size=count).astype(np.uint32)
    return hotrow.RowList(
        table, (rng.random(count) ** 2 * np.array(rows)[table]).astype(np.uint32))


def drawn(shape, seed, dtype=np.float32):
    values = np.random.default_rng(seed).normal(scale=0.1, size=shape)
    if dtype == np.uint16:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype)


def stepped(weights, rows, gradients, kind="fp32", gradient_kind="fp32", states=None):
    """One table's weights and states after a step, by the golden model; `gradients` one per
    row."""
    order = np.argsort(rows, kind="stable")
    unique, counts = np.unique(rows, return_counts=True)
    sums = bag_sums(widen(bits(gradients[order]), gradient_kind), counts)
    after, lr = weights.copy(), bits(np.float32(LR))
    if states is None:
        bits(after)[unique] = sgd(bits(weights)[unique], sums, lr, kind)
        return after, None
    states = states.copy()
    bits(after)[unique], bits(states)[unique] = rowwise_adagrad(
        bits(weights)[unique], sums, bits(states)[unique], lr, bits(np.float32(EPS)), kind)
    return after, states


def expect(tables, rows, gradients, **kinds):
    """What every table holds after an SGD step."""
    return [stepped(np.array(table.weights), rows.row[rows.table == n],
                    gradients[rows.table == n], **kinds)[0] if (rows.table == n).any()
            else np.array(table.weights) for n, table in enumerate(tables)]


def equal(tables, expected):
    return all((bits(np.array(table.weights)) == bits(want)).all()
               for table, want in zip(tables, expected, strict=True))


@pytest.mark.parametrize("count", [1, 2, 17, 300])
@pytest.mark.parametrize("registered", [True, False])
def test_sgd_with_repeated_rows(device, count, registered):
    tables, rows = register(device, "fp32"), lookups(count, seed=count)
    gradients = hotrow.empty((count, 8), np.float32)
    gradients[:] = drawn(gradients.shape, count)
    expected = expect(tables, rows, gradients)
    done = device.update(rows, device.register(gradients) if registered else gradients, LR)
    assert equal(tables, expected) and done.cycles > 0
    assert device.statistics["UPDATE"].commands == 1


def test_a_rate_of_zero_keeps_the_sign_of_zeros(device):
    """Each pair of signs of a row's zero and its gradient."""
    weights, gradients = hotrow.empty((4, 8), np.float32), hotrow.empty((4, 8), np.float32)
    weights[:], gradients[:] = [[0.0], [0.0], [-0.0], [-0.0]], [[1.0], [-1.0], [1.0], [-1.0]]
    device.update((device.register_table(weights), np.arange(4)), gradients, 0.0)
    assert np.signbit(weights).all(1).tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("registered", [True, False])
def test_other_types(device, kind, typed, registered):
    tables, rows = register(device, kind), lookups(50, seed=5)
    gradients = hotrow.empty((50, 8), KINDS[kind] if typed else np.float32)
    gradients[:] = drawn(gradients.shape, 5, gradients.dtype)
    expected = expect(tables, rows, gradients, kind=kind, gradient_kind=kind if typed else "fp32")
    device.update(rows, device.register(gradients) if registered else gradients, LR)
    assert equal(tables, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [8, 16, 32, 64])
def test_many_gradients_of_a_row(device, kind, dim):
    """Sums of any number of gradients, also of -0, of infinite ones and of those not a number."""
    counts, rng = np.array([1, 2, 3, 4, 17, 100, 2000]), np.random.default_rng(dim)
    weights, = register(device, kind, dim, (len(counts),))
    before = np.array(weights.weights)
    given, ends = with_special_numbers(drawn((sum(counts), dim), dim), rng), np.cumsum(counts)
    # What is added to a large number is rounded, and its bits show once that number is taken off.
    large = 2.0 ** (20 if kind == "bf16" else 15)
    given[ends[3:] - counts[3:], ::2], given[ends[3:] - 1, ::2] = large, -large
    gradients = given.astype(KINDS[kind]) if kind != "bf16" else (
        given.view(np.uint32) >> 16).astype(np.uint16)
    wide = widen(bits(gradients), kind).view(np.float32)
    sums = np.stack([summed(each) for each in np.split(wide, ends[:-1])])
    device.update((weights, np.arange(len(counts))), gradients, 1.0, lengths=counts)
    after = sgd(bits(before), bits(sums), bits(np.float32(1)), kind)
    assert (bits(np.array(weights.weights)) == after).all(), f"seed {dim}"


@pytest.mark.parametrize("registered", [True, False])
def test_gradients_of_bags(device, registered):
    """Every row of a bag takes the bag's gradient."""
    tables, rows = register(device, "fp32"), lookups(60, seed=6)
    gradients = hotrow.empty((9, 8), np.float32)
    gradients[:] = drawn(gradients.shape, 6)
    bag = np.sort(np.random.default_rng(6).integers(0, 9, 60))
    expected = expect(tables, rows, gradients[bag])
    device.update(rows, device.register(gradients) if registered else gradients, LR, slots=bag)
    assert equal(tables, expected)


def with_state(device, dim=8, rows=40, dtype=np.float32):
    weights, states = hotrow.empty((rows, dim), dtype), hotrow.empty(rows, np.float32)
    weights[:], states[:] = drawn(weights.shape, 7), 0.01
    return device.register_table(weights, name="adagrad", state=states), weights, states


@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_rowwise_adagrad(device, kind):
    table, weights, states = with_state(device, dtype=KINDS[kind])
    rows, gradients = lookups(100, 8, rows=(40,)).row, drawn((100, 8), 8)
    for _ in range(3):
        expected = stepped(weights, rows, gradients, kind, states=states)
        device.update((table, rows), gradients, LR, optimizer="rowwise_adagrad", eps=EPS)
        assert (bits(weights) == bits(expected[0])).all()
        assert (bits(states) == bits(expected[1])).all()


def test_padded_rows(device):
    weights = np.ones((4, 5), np.float32)
    with pytest.warns(PaddedCopyWarning):
        table = device.register_table(weights, state=np.ones(4, np.float32))
    device.update((table, [2, 2]), np.full((2, 5), 2, np.float32), 0.25)
    assert (table.source[2] == [0, 0, 0, 0, 0, 0, 0, 0]).all()
    assert (table.weights[[0, 1, 3]] == 1).all()
    with pytest.raises(RegistrationError, match="padded to 32 bytes: choose a dim whose rows"):
        device.update((table, [2]), np.full((1, 5), 2, np.float32), 0.25,
                      optimizer="rowwise_adagrad")


def test_nothing_to_update(device, tables):
    assert device.update((tables[0], []), np.ones((3, 8), np.float32), LR).cycles == 0


@pytest.mark.parametrize("gradients, arguments, wrong, message", [
    (np.ones((2, 8), np.float32), {}, BatchError, "3 rows do not fit gradients, which has 2"),
    (np.ones((3, 4), np.float32), {}, RegistrationError,
     r"must be \[n, 8\] of float32; got float32 of shape \(3, 4\)"),
    (np.ones((3, 8), np.float64), {}, RegistrationError, "of float32; got float64"),
    (np.ones(24, np.float32), {}, RegistrationError, "must be .n, 8. of float32"),
    (np.ones((3, 8), np.float32), {"slots": [0, 3, 1]}, BatchError, "slot 3 is out of range"),
    (np.ones((3, 8), np.float32), {"optimizer": "adam"}, BatchError,
     "optimizer must be 'sgd' or 'rowwise_adagrad', not 'adam'"),
    (np.ones((3, 8), np.float32), {"optimizer": "rowwise_adagrad"}, BatchError, "has no state"),
    (np.ones((3, 8), np.float32), {"eps": 1e39}, BatchError, "eps must be a finite number"),
])
def test_errors_teach(device, tables, gradients, arguments, wrong, message):
    before = [table.weights.copy() for table in tables]
    with pytest.raises(wrong, match=message):
        device.update((tables[0], [1, 2, 3]), gradients, LR, **arguments)
    assert equal(tables, before) and usable(device, tables)


def test_lr_must_be_finite(device, tables):
    with pytest.raises(BatchError, match="lr must be a finite number in float32, not nan"):
        device.update((tables[0], [1]), np.ones((1, 8), np.float32), float("nan"))


def test_state_must_be_one_float32(device):
    for state in (np.ones((6, 2), np.float32), np.ones(6, np.int32)):
        table = device.register_table(hotrow.empty((6, 8), np.float32), state=state)
        with pytest.raises(RegistrationError, match=r"keeps one float32 per row.*has state of"):
            device.update((table, [1]), np.ones((1, 8), np.float32), LR,
                          optimizer="rowwise_adagrad")


def test_tables_from_read_only_arrays_are_refused(device):
    weights = hotrow.empty((6, 8), np.float32)
    weights[:] = 1
    weights.flags.writeable = False
    table = device.register_table(weights, name="frozen")
    with pytest.raises(RegistrationError, match=r"weights of 'frozen' cannot be written"):
        device.update((table, [5, 2]), np.ones((2, 8), np.float32), LR)


def test_too_many_gradients_of_a_row(device, tables):
    rows = np.r_[3, np.full(65536, 5)]
    with pytest.raises(BatchError, match=r"row 5 of table 0 is listed 65536 times .first at posi"):
        device.update((tables[0], rows), np.ones((1, 8), np.float32), LR,
                      slots=np.zeros(len(rows), np.int64))


def test_a_gradient_must_fit_the_card(device):
    most = device.geometry.row_bytes
    elements = most // 2
    table = device.register_table(np.ones((4, elements), np.float16))
    device.update((table, [1]), np.ones((1, elements), np.float16), 1)
    assert (table.weights[1] == 0).all()
    with pytest.raises(RegistrationError, match=(
            rf"of {2 * most} bytes is longer than the {most}.*float16")):
        device.update((table, [1]), np.ones((1, elements), np.float32), LR)


@pytest.mark.parametrize("check", [True, False])
def test_rows_that_do_not_exist(device, tables, check):
    device.check_ids = check
    gradients = drawn((5, 8), 9)
    expected = expect(tables, hotrow.RowList(np.zeros(3, np.uint32), np.array([2, 1, 2])),
                      gradients[[0, 2, 4]])
    with pytest.raises(BatchError, match=r"row 44 is out of range: table 0.*position 1 of"):
        device.update((tables[0], [2, 44, 1, 44, 2]), gradients, LR)
    if not check:
        assert equal(tables, expected), "the card serves the others"
    assert usable(device, tables)


def test_the_card_reports_a_table_out_of_its_region(device, tables):
    device.registers.write("TABLE_NUMBER", 0)
    device.registers.write("TABLE_LAST_ROW", 99)
    device.registers.write_wide("TABLE_WEIGHTS", tables[0].buffers[0].packed())
    device.registers.write("TABLE_ROW", 32 << 16 | 32)
    device.registers.write("TABLE_COMMIT", 1)
    device.check_ids = False
    with pytest.raises(CommandError, match=r"UPDATE ended with REGION.*index 3, .*weights of 't0'"):
        device.update((tables[0], [1, 2, 1, 40]), drawn((4, 8), 1), LR)


@pytest.mark.slow
@pytest.mark.skipif(not RETAIL.is_file(), reason="real data online_retail/trace.tsv.gz is not "
                    "beside this checkout")
def test_a_mixed_run_on_a_real_log(device, transport):
    """SGD and row-wise Adagrad alternately: golden bit for bit; the trainer's SGD bit for bit, its
    Adagrad within the limit of the per-step check, a millionth."""
    torch = pytest.importorskip("torch")
    from hotrow.torch.optim import arithmetic, rules
    from hotrow.torch.training.check import excess

    steps, samples = (6, 1024) if transport == "model" else (4, 256)
    ids = np.loadtxt(RETAIL, np.int64, skiprows=1, usecols=(4, 5, 6, 7), max_rows=steps * samples)
    tables = []
    for column in range(ids.shape[1]):
        rows = int(ids[:, column].max()) + 1
        weights, states = hotrow.empty((rows, 16), np.float32), hotrow.empty(rows, np.float32)
        weights[:], states[:] = drawn(weights.shape, column), 0.01
        tables.append((device.register_table(weights, state=states), weights, states))
    repeated = 0
    for step in range(steps):
        batch = ids[step * samples:(step + 1) * samples]
        gradients = drawn((batch.size, 16), 100 + step)
        adagrad = step % 2 == 1
        ours = rules.RowwiseAdagrad(LR, EPS) if adagrad else rules.SGD(LR)
        before = [(weights.copy(), states.copy()) for _, weights, states in tables]
        device.update((np.tile(np.arange(len(tables)), len(batch)), batch.ravel()), gradients, LR,
                      optimizer=ours.name, eps=EPS)
        for column, (_, weights, states) in enumerate(tables):
            of_table = batch[:, column], gradients[column::len(tables)]
            golden = stepped(before[column][0], *of_table, states=before[column][1]
                             if adagrad else None)
            assert (bits(weights) == bits(golden[0])).all(), (step, column)
            assert not adagrad or (bits(states) == bits(golden[1])).all(), (step, column)
            unique, sums = arithmetic.sum_duplicates(
                torch.from_numpy(of_table[0].copy()), torch.arange(len(batch)),
                torch.from_numpy(of_table[1].copy()))
            unique = unique.numpy()
            theirs, their_states = ours.update(
                torch.from_numpy(before[column][0][unique]), sums,
                torch.from_numpy(before[column][1][unique]))
            repeated += len(batch) - len(unique)
            if adagrad:
                assert excess(torch.from_numpy(weights[unique]), theirs) <= 1, (step, column)
                assert excess(torch.from_numpy(states[unique]), their_states) <= 1, (step, column)
            else:
                assert (bits(weights[unique]) == bits(theirs.numpy())).all(), (step, column)
    assert repeated > ids.size // 2


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_distinct_rows_with_their_gradients(device, registered, listed):
    """Rows with lengths, in place of a row for each gradient."""
    tables, given = register(device, "fp32"), lookups(90, seed=5)
    keys, first, numbers, lengths = np.unique(given.keys, return_index=True, return_inverse=True,
                                              return_counts=True)
    order = np.argsort(numbers, kind="stable")
    gradients = hotrow.empty((90, 8), np.float32)
    gradients[:] = drawn(gradients.shape, 5)
    want = expect(tables, given, gradients)
    if not listed:
        gradients[:] = gradients[order]
    device.update(hotrow.RowList(given.table[first], given.row[first]),
                  device.register(gradients) if registered else gradients, LR,
                  slots=order if listed else None, lengths=lengths)
    assert equal(tables, want) and len(keys) < 90


@pytest.mark.parametrize("rows, lengths, message", [
    ([3, 4], [1], "1 lengths for 2 rows"), ([3, 4], [1, 0], "row 1 of the list cannot have 0"),
    ([3, 4], [1, 65536], "cannot have 65536 gradients"), ([3, 3], [1, 1], "row 3 .*listed twice"),
    ([3, 4], [1, 2], "3 rows do not fit gradients")])
def test_lengths_that_are_refused(device, rows, lengths, message):
    tables = register(device, "fp32")
    before = np.array(tables[0].weights)
    with pytest.raises(BatchError, match=message):
        device.update((tables[0], rows), np.ones((2, 8), np.float32), LR, lengths=lengths)
    assert equal(tables[:1], [before])
