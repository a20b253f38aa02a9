import numpy as np
import pytest

from benchmarks import auc


@pytest.fixture
def log(monkeypatch):
    """Labels of the first column's ids, most of which are rare; the second column has few."""
    monkeypatch.setattr(auc, "FEW", 20)
    draw = np.random.default_rng(0)
    ids = np.stack((300 * draw.random(4000) ** 3, draw.integers(0, 9, 4000)), axis=1).astype("u8")
    label = ((ids[:, 0] < 40) ^ (draw.random(4000) < 0.2)).astype(np.float32)
    return ids, np.zeros((4000, 0), np.float32), label


@pytest.mark.long
def test_methods_at_equal_memory(log):
    exact, modulo, *others = (auc.measure(log, auc.METHODS[name], 0.5, 16, 20, seed=1) for name in (
        "exact ids", "ids modulo rows", "any id", "any id, by count"))
    assert exact["auc"] > 0.7 and exact["map"] == exact["sharing"] == exact["without"] == 0
    assert modulo["sharing"] > modulo["without"] == 0
    for each in (modulo, *others):
        assert 0.45 < sum(each[part] for part in ("rows", "state", "map")) / (
            exact["rows"] + exact["state"]) <= 0.5
    assert all(each["sharing"] == 0 < each["without"] for each in others)


@pytest.mark.slow
def test_a_map_with_room_for_all_ids_is_exact(log):
    log = [part[:1000] for part in log]
    exact, mapped = (auc.measure(log, method, 3.0, 16, 20, seed=2)
                     for method in (auc.Exact, auc.AnyId))
    assert mapped["auc"] == exact["auc"] and mapped["without"] == 0


def test_an_item_that_was_not_bought_was_bought_before(tmp_path):
    path, draw = tmp_path / "trace.tsv", np.random.default_rng(1)
    lines = [(draw.integers(2) if at % 9 == 0 else 0, at // 2 + draw.integers(3), draw.integers(4))
             for at in range(200)]
    path.write_text("\n".join(["cancelled\tstock\tcustomer\tcountry\thour_of_week", *(
        f"{cancelled}\t{stock}\t{customer}\t0\t{at}"
        for at, (cancelled, stock, customer) in enumerate(lines))]))
    ids, _, label = auc.online_retail(path)
    hours, stock = ids[::2, 3], ids[:, 0].reshape(-1, 2)
    assert label.tolist() == [1, 0] * len(hours) and (ids[::2, 1:] == ids[1::2, 1:]).all()
    assert not any(lines[int(hour)][0] for hour in hours) and len(set(ids[:, 1])) == 3
    for at, other in enumerate(stock[:, 1]):
        assert other in stock[:at + 1, 0]


def test_logs_that_are_absent_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOTROW_SHARED_DATA", str(tmp_path))
    auc.main(["--seeds", "1"])
    assert capsys.readouterr().out.count("is not measured: it is not in the folder") == 2
