"""The map of ids: full maps, threads, estimates, exports, initial rows, and what is refused."""

import json
import resource
import tracemalloc

import numpy as np
import pytest
import torch
from hotrow.contract.errors import BatchError, Error
from hotrow.ids import Expiry, IdMap, LeastCount, Probability, initial_rows
from hotrow.ids.log import ADMITTED, EVENT, EXPIRED, EventLog
from hotrow.ids.map import _checksum
from hotrow.ids.policies import check_policies

from tests.ids.followed_map import pairs


@pytest.mark.parametrize("load", [0.95, 1.0])
def test_a_full_map_loses_none(load):
    rows = 50_001
    ids = np.arange(rows - 1, dtype=np.uint64) << np.uint64(40)
    ids = np.random.default_rng(1).permutation(ids)[:int(load * (rows - 1))]
    tested = IdMap(rows)
    given = np.concatenate([tested.plan(part).rows for part in np.array_split(ids, 7)])
    assert sorted(given) == list(range(1, len(ids) + 1))
    assert (tested.find(ids) == given).all() and len(tested) == len(ids)
    one_more = tested.plan(np.array([12345], np.uint64))
    assert (one_more.rows[0] > 0, one_more.refused) == ((True, 0) if load < 1 else (False, 1))


def test_threads_give_equal_maps():
    draw = np.random.default_rng(3)
    maps = [IdMap(3000, LeastCount(2, 4096), Expiry(age=4, below=2, every=3), 9, threads)
            for threads in (1, 2, 7)]
    for _ in range(8):
        ids = draw.zipf(1.2, 5000).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for each in maps:
            each.done(each.batch)
        assert len({each.plan(ids).rows.tobytes() for each in maps}) == 1
    assert len({each.digest() for each in maps}) == 1
    states = [each.state() for each in maps]
    assert all((states[0][name] == state[name]).all() for state in states for name in state)


@pytest.mark.slow
def test_twenty_times_as_many_ids_as_rows(tmp_path):
    """The cap holds, batches in flight keep their rows, and a resumed run hits as often."""
    rows, in_flight, tested, resumed = 400, 4, [], []
    draw = np.random.default_rng(4)
    made = [(draw.zipf(1.4, 300) + 30 * number).astype(np.uint64) for number in range(400)]
    assert len(np.unique(np.concatenate(made))) > 20 * rows
    for hits, stop in ((tested, None), (resumed, 200)):
        waiting, refused = [], 0
        ids = IdMap(rows, expiry=Expiry(age=30, floor=100, cap=300))
        for number, batch in enumerate(made):
            planned = ids.plan(batch)
            hits.append(planned.rows.size - planned.default_lookups - planned.admitted_ids.size)
            waiting = [*waiting[-in_flight:], (batch, planned.rows)]
            refused += planned.refused
            assert len(ids) <= 300 and all(
                (ids.find(each)[given > 0] == given[given > 0]).all() for each, given in waiting)
            ids.done(max(0, planned.number - in_flight))
            if number == stop:
                completed = ids.completed
                ids.save(tmp_path / "map.npz")
                ids = IdMap.load(tmp_path / "map.npz")
                ids.completed = completed  # the batches after it are still in flight
    assert tested == resumed and min(tested[50:]) > 0 and refused


def test_an_id_takes_the_row_of_a_lower_count_only(tmp_path):
    """Of 128 rows a scan frees two: the second is not for less than the count that it had."""
    ids = IdMap(129, LeastCount(1, 1 << 16), Expiry(below=1, every=1000))
    for count in range(3, 131):
        ids.plan(np.full(count, 1000 + count))
    ids.done(128)
    assert ids.plan([1, 1, 1]).rows.max() == 0 and len(ids) == 128
    batch = ids.plan([1, 1])  # now a count of 5, and not above those of others
    assert batch.expired_ids.tolist() == [1003, 1004] and ids.counts([batch.rows[0]]) == 5
    ids.save(tmp_path / "map.npz")
    for each in (ids, IdMap.load(tmp_path / "map.npz")):
        assert each.plan([2] * 4).rows.max() == 0
        batch = each.plan([2])
        assert batch.rows[0] and not len(batch.expired_ids) and len(each) == 128


def test_a_row_is_freed_once_one_lacks():
    """A scan frees two of 128 rows, and no scan is made while every id finds a row."""
    ids = IdMap(129, expiry=Expiry())
    for part in np.split(np.arange(128), 4):
        assert not len(ids.plan(part).expired_ids)
    ids.done(4)
    assert not len(ids.plan([5, 6]).expired_ids) and len(ids) == 128
    batch = ids.plan([500])
    assert len(batch.expired_ids) == 2 and batch.rows[0] and len(ids) == 127
    assert not len(ids.plan([501]).expired_ids) and len(ids) == 128


def test_memory_of_a_row_and_of_an_event():
    """24 bytes an event, until the log forgets it."""
    rows = 200_001
    keys = np.arange(rows - 1, dtype=np.uint64) << np.uint64(20)
    tracemalloc.start()
    try:
        ids = IdMap(rows)
        for part in np.split(keys, 20):
            ids.done(ids.plan(part).number)
        filled = tracemalloc.get_traced_memory()[0]
        ids.log.forget(ids.batch)
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(ids) == rows - 1 and abs(left / rows - IdMap.ROW_BYTES) < 0.2
    assert 23.9 < (filled - left) / rows < 24.2, (filled - left) / rows


@pytest.mark.slow
def test_events_are_objects_a_part_at_a_time():
    ids = IdMap(200_001)
    ids.plan(np.arange(200_000))
    events = ids.log.events()
    tracemalloc.start()
    try:
        replayed = EventLog.replay(events)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - now < 120 * len(replayed)


def test_an_id_is_estimated_too_high_only():
    draw = np.random.default_rng(0)
    ids = draw.zipf(1.3, 20_000).astype(np.uint64)
    tested, seen = IdMap(60_000, LeastCount(5, 1024)), {}
    early = 0
    for part in np.array_split(ids, 40):
        batch = tested.plan(part)
        for key in part.tolist():
            seen[key] = seen.get(key, 0) + 1
        early += sum(seen[key] < 5 for key in batch.admitted_ids.tolist())
        assert all(row for key, row in pairs(part, batch.rows) if seen[key] >= 5)
    assert early <= 0.018 * len(seen)


def test_changes_are_what_an_export_lacks():
    tested, exported, at = IdMap(60, None, Expiry(age=3)), {}, 0
    draw = np.random.default_rng(5)
    for step in range(60):
        tested.done(tested.plan(draw.integers(0, 300, 12)).number)
        if step % 7 == 6:
            changes = tested.changes(at)
            for key in changes.removed.tolist():
                exported.pop(key, None)
            exported.update(pairs(changes.ids, changes.rows))
            assert exported == dict(pairs(*tested.items()))
            at = changes.until
    tested.log.forget(40)
    with pytest.raises(Error, match="begins after batch 40"):
        tested.changes(39)
    with pytest.raises(Error, match=r"since batch 61 .* the last batch is 60"):
        tested.changes(61)
    whole = tested.changes(0)
    assert dict(pairs(whole.ids, whole.rows)) == dict(pairs(*tested.items()))


def test_an_initial_row_follows_from_seed_and_id():
    ids = np.array([5, 1 << 63, 0, 77], np.uint64)
    rows = initial_rows(ids, 6, seed=3)
    for order in ([3, 1, 0, 2], [2], []):
        assert (initial_rows(ids[order], 6, seed=3) == rows[order]).all()
    assert (initial_rows(ids, 6, seed=4) != rows).any()
    many = initial_rows(np.arange(20_000), 4, seed=0, bound=2.0)
    assert many.min() >= -2 and many.max() < 2 and abs(many.mean()) < 0.02
    assert abs(many.std() - 2 / 3 ** 0.5) < 0.01 and len(np.unique(many, axis=0)) == 20_000


@pytest.mark.parametrize("ids", [[1.5], ["a"], [True], None, 7, [None], [1 << 64],
                                 [-1 - (1 << 63)], [1 << 63, 0.5]])
def test_what_is_no_id_is_refused(ids):
    tested = IdMap(5)
    with pytest.raises(BatchError, match="integers"):
        tested.plan(ids)
    assert tested.batch == 0


@pytest.mark.parametrize("ids", [[], np.zeros((0, 3), np.int32),
                                 torch.zeros(2, 0, dtype=torch.int64)])
def test_a_batch_without_ids_is_a_batch(ids):
    tested = IdMap(5)
    assert tested.plan(ids).rows.shape == np.shape(ids) and tested.batch == 1


def test_integers_of_all_widths_are_the_same_ids():
    tested = IdMap(9)
    rows = tested.plan(np.array([[-1, 3]], np.int8)).rows
    for kind in (np.int16, np.int32, np.int64):
        assert (tested.find(np.array([[-1, 3]], kind)) == rows).all()
    assert (tested.find(torch.tensor([[-1, 3]])) == rows).all()
    assert tested.find(np.array([(1 << 64) - 1, 3], np.uint64)).tolist() == rows[0].tolist()
    assert tested.find(np.array([3, -1])[::-1]).tolist() == rows[0].tolist()
    assert tested.find([(1 << 64) - 1, 3]).tolist() == rows[0].tolist()
    assert tested.find([[(1 << 64) - 1, -1], [3, 3]]).tolist() == [[1, 1], [2, 2]]
    assert tested.find(np.array([(1 << 64) - 1, 3], object)).tolist() == rows[0].tolist()


def test_a_damaged_state_is_refused(tmp_path):
    tested = IdMap(9, expiry=Expiry(age=1))
    for ids in ([1, 2, 3], [4], [4]):
        tested.done(tested.plan(ids).number)
    good = tested.state()
    for name, value in (("ids", np.array([0, 4, 4, 4], np.uint64)), ("settings", np.zeros(3)),
                        ("free", np.array([1, 1], np.int32)), ("sketch", np.zeros((4, 5)))):
        with pytest.raises(Error):
            IdMap.from_state({**good, name: value}
                             if name != "ids" else {**good, name: value,
                                                    "last": np.array([0, 1, 1, 1], np.uint32)})
        with pytest.raises(Error):
            IdMap.from_state({key: part for key, part in good.items() if key != name})
    (tmp_path / "other").write_bytes(b"no map")
    tested.save(tmp_path / "cut")
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:-200])
    for path in (tmp_path / "other", tmp_path / "absent", tmp_path / "cut"):
        with pytest.raises(Error, match="no map of ids"):
            IdMap.load(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(Error, match="no map of ids"):
        IdMap.load(tmp_path / "array.npy")


@pytest.mark.parametrize("name, value", [
    ("batch", -1), ("batch", "3"), ("batch", 2.5), ("first", "0"), ("first", 9), ("bar", None),
    ("default_lookups", -1), ("first_rows", True), ("batch", 1 << 40)])
def test_a_number_of_a_state_that_cannot_be_is_refused(name, value):
    tested = IdMap(9)
    tested.plan([1, 2])
    good = tested.state()
    settings = json.loads(bytes(good["settings"])) | {name: value}
    changed = good | {"settings": np.frombuffer(json.dumps(settings).encode(), "u1")}
    with pytest.raises(Error, match="checksum"):
        IdMap.from_state(changed)
    with pytest.raises(Error, match="state of a map of ids"):
        IdMap.from_state(changed | {"crc": _checksum(changed)})


def test_a_map_takes_memory_for_its_ids_and_not_for_its_rows():
    """A small file cannot ask for much."""
    ids = IdMap(1 << 24, LeastCount(1, width=8))
    ids.plan([1, 2, 3])
    state = ids.state()
    settings = json.loads(bytes(state["settings"]))
    for change in ({"rows": (1 << 31) - 1},
                   {"admission": ["LeastCount", {"least": 1, "width": 1 << 40}]}):
        changed = state | {"settings": np.frombuffer(
            json.dumps(settings | change).encode(), np.uint8)}
        with pytest.raises(Error, match="checksum"):
            IdMap.from_state(changed)
        if "admission" in change:
            with pytest.raises(Error, match="a sketch of shape"):
                IdMap.from_state(changed | {"crc": _checksum(changed)})
    before = _resident()
    found = IdMap.from_state(state)
    assert found.digest() == ids.digest() and found.plan([1, 2, 9]).rows.tolist() == [1, 2, 4]
    assert _resident() - before < 128 << 20 < found.table_rows * IdMap.ROW_BYTES


def _resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("rows", [[9], [-1], [1.5], ["a"], 3])
def test_counts_of_what_is_no_row_are_refused(rows):
    with pytest.raises(BatchError):
        IdMap(9).counts(rows)


def test_a_block_in_which_a_map_grows_may_look_ids_up():
    tested = IdMap(3)
    rows = tested.plan([5, 6]).rows
    with tested.growing() as after:
        assert after == 6 and (tested.find([5, 6]) == rows).all()


@pytest.mark.parametrize("ids, dim, seed", [([1], 0, 0), ([1], -4, 0), ([0.5], 4, 0),
                                            ([1 << 63, -1], 4, 0), (["a"], 4, 0)])
def test_initial_rows_of_what_has_none(ids, dim, seed):
    with pytest.raises(BatchError):
        initial_rows(ids, dim, seed)


@pytest.mark.parametrize("make", [
    lambda: IdMap(1), lambda: IdMap(1 << 31), lambda: LeastCount(0), lambda: LeastCount(65536),
    lambda: Probability(0), lambda: Probability(1.1), lambda: Expiry(age=0),
    lambda: Expiry(floor=5, cap=4), lambda: IdMap(5, expiry=Expiry(cap=5)),
    lambda: IdMap(5).done(1), lambda: Expiry(every=0), lambda: LeastCount(1, 0),
    lambda: LeastCount(1, 1, -1), lambda: Expiry(below=0), lambda: Expiry(cap=0),
    lambda: IdMap(5, 2),
    lambda: IdMap(5, Expiry()), lambda: IdMap(5, None, 50), lambda: Expiry(age=1.5),
    lambda: Expiry(cap=True), lambda: LeastCount("2"), lambda: LeastCount(2, 10.5),
    lambda: Probability("x"), lambda: Probability(float("nan")),
    lambda: Probability(True), lambda: Expiry(below=(1 << 31) + 1), lambda: IdMap(5.5),
    lambda: IdMap(torch.tensor([2.5])), lambda: LeastCount(np.ones(2, int)),
    lambda: IdMap(5, threads=0), lambda: IdMap(5, threads="2"), lambda: IdMap(5).done(0.5),
    lambda: IdMap(5).changes(None), lambda: IdMap(5).changes(True),
    lambda: IdMap(5, expiry=Expiry(floor=5)), lambda: Expiry(floor=-1)])
def test_settings_without_sense_are_refused(make):
    with pytest.raises(Error):
        make()


@pytest.mark.parametrize("rows, admission, expiry", [
    (2, LeastCount(1, 1, 0), Expiry(age=1, below=1, every=1, floor=0, cap=1)),
    (3, LeastCount(65535, 1, 1), Expiry(floor=2, cap=2)), (2, Probability(1), Expiry(cap=1)),
    (3, None, Expiry(below=1 << 31))])
def test_settings_at_their_limits(rows, admission, expiry):
    tested = IdMap(rows, admission, expiry)
    for batch in range(3):
        found = tested.plan([batch, -1])
        assert found.rows.max() < rows
        tested.done(found.number)


def test_the_largest_map():
    """Its memory is not there to be had, so that only the check runs."""
    most = (1 << 31) - 1
    check_policies(most, None, Expiry(cap=most - 1, floor=most - 1))
    with pytest.raises(Error, match=f"2 to {most} rows"):
        check_policies(most + 1, None, None)


def test_numbers_of_numpy_are_settings(tmp_path):
    policies = LeastCount(np.int64(2), np.uint32(9)), Expiry(np.int8(3), cap=np.int64(4))
    for admission in (policies[0], Probability(np.float32(0.5))):
        tested = IdMap(np.int64(9), admission, policies[1], seed=np.int64(-3))
        tested.plan([1])
        tested.save(tmp_path / "map.npz")
        loaded = IdMap.load(tmp_path / "map.npz")
        assert (loaded.admission, loaded.expiry) == (admission, policies[1])


def test_a_log_that_forgot_replays_from_the_rows_of_then():
    tested = IdMap(4, expiry=Expiry())
    for ids in ([1, 2], [3, 4]):
        tested.done(tested.plan(ids).number)
    begin = dict(pairs(*tested.items()))
    tested.log.forget(2)
    tested.plan([5, 6])
    events = tested.log.events(2)
    assert EventLog.replay(events, begin) == dict(pairs(*tested.items()))
    with pytest.raises(Error, match="has forgotten events, and `begin` must be"):
        EventLog.replay(events)


@pytest.mark.parametrize("field, values", [
    ("row", [1, 1, 1]), ("row", [0, 2, 0]), ("row", [-1, 2, -1]), ("row", [1, 2, 2]),
    ("id", [7, 7, 7]), ("id", [7, 8, 8]), ("kind", [ADMITTED] * 3), ("kind", [EXPIRED] * 3)],
    ids=str)
def test_a_log_that_contradicts_itself_is_refused(field, values):
    events = np.array([(1, 7, 1, ADMITTED), (1, 8, 2, ADMITTED), (2, 7, 1, EXPIRED)], EVENT)
    assert EventLog.replay(events) == {8: 2}
    events[field] = values
    with pytest.raises(Error, match=r"of the log, id .* contradicts the"):
        EventLog.replay(events)
