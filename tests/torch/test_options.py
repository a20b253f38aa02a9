import pytest
from hotrow.contract.errors import Error
from hotrow.torch.training.options import HotBudget, TrainOptions

SLOTS, TABLE_ROWS, ROW_BYTES = 16384, 10_000, 64


@pytest.mark.parametrize("text, rows", [
    ("512KB", 8192), ("64", 1), ("0.5MB", 8192), ("1 mb", 10_000), ("20%", 2000), ("100%", 10_000),
    ("0.5 %", 50), ("128B", 2),
])
def test_hot_budget(text, rows):
    assert HotBudget.parse(text).resolve(TABLE_ROWS, ROW_BYTES, SLOTS) == rows


@pytest.mark.parametrize("text", ["", "MB", "-1", "12TB", "20%%", "1e9", "101%"])
def test_malformed_hot_budgets(text):
    with pytest.raises(ValueError, match=r"expected bytes|at most 100%"):
        HotBudget.parse(text)


@pytest.mark.parametrize("budget, asked", [
    (HotBudget.parse("512MB"), "--hot-budget 512MB is 8,388,608 rows of 64 bytes"),
    (HotBudget.parse("50%"), "--hot-budget 50% is 50,000,000 rows"),
    (HotBudget.parse("63"), "--hot-budget 63 is 0 rows"),
    (HotBudget("--slots 16385", rows=16385), "--slots 16385 is 16,385 rows"),
])
def test_budgets_that_the_directory_cannot_hold(budget, asked):
    with pytest.raises(Error, match=f"{asked}.* holds 1 to 16,384: ask for at most 1,048,576 byt"):
        budget.resolve(10**8, ROW_BYTES, SLOTS)


@pytest.mark.parametrize("rows, hot", [(3, 1), (8556, 2139), (10**8, SLOTS)])
def test_default_budget_is_a_share_within_the_directory(rows, hot):
    assert HotBudget().resolve(rows, ROW_BYTES, SLOTS) == hot


def test_batches_of_a_run(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("y\ta\n" + "0\t1\n" * 100)
    stored = TrainOptions(str(path), ids=("a",), label="y", batch_size=30)
    trace = stored.open_trace()
    for changes, epoch, total in (
            ({}, 4, 4), ({"batches": 3}, 3, 3), ({"batches": 9}, 4, 4), ({"epochs": 2}, 4, 8)):
        options = TrainOptions(**{**vars(stored), **changes})
        assert (options.epoch_batches(trace), options.total_batches(trace)) == (epoch, total)
    generated = TrainOptions("uniform:10", batches=7)
    assert generated.epoch_batches(generated.open_trace()) == 7
    assert TrainOptions("uniform:10").epoch_batches(generated.open_trace()) == 80
