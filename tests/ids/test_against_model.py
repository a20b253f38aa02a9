"""The map of ids against a model in plain Python: random policies, threads, restarts and growth."""

import sys
from importlib import util
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.ids import Expiry, LeastCount, Probability, index, turnover
from hotrow.ids import map as map_module
from hotrow.kernels import compiler, library

from tests.ids import followed_map
from tests.ids.followed_map import FollowedMap

KERNELS = Path(library.__file__).parent
THREADS = (1, 2, 7)
# By the source that has it, a change and what it breaks.
FAULTS = {
    KERNELS / "id_map.cpp": {
        "entries stay when one before them leaves": (
            "            index[hole] = index[at];\n            hole = at;\n", ""),
        "an id is recognised by its hash alone": ("state[index[bucket].row].id != id", "false"),
        "a row of a batch in flight expires": ("state.last <= done &&", ""),
        "a freed row leaves the order of the free rows": (
            "map->free[map->free_count++] = found[i];", ""),
        "a lookup does not renew its row": ("                    found.last = batch;\n", ""),
        "a lookup is not counted": ("found.count += found.count < MOST", "(void)0"),
        "threads count one lookup for several": (
            "__atomic_fetch_add(&found.count, 1, __ATOMIC_RELAXED)", "found.count = 1"),
        "rows expire in any order": ("return one != other ? one < other : a < b;",
                                     "return a < b;"),
        "an estimate is too low": ("least = std::min<uint64_t>(least + counts[i], UINT16_MAX);",
                                   "least = std::min<uint64_t>(least + 1, UINT16_MAX);"),
        "a row is given twice": (": static_cast<int32_t>(map->fresh);",
                                 ": static_cast<int32_t>(map->fresh & ~4);"),
        "a rebuilt index misses a row": ("row = 1; row < map->fresh; ++row)\n        if",
                                         "row = 2; row < map->fresh; ++row)\n        if"),
    },
    Path(index.__file__): {
        "growth forgets free rows": ("state[:len(self.state)], free[:len(self.free)] = self.state, "
                                     "self.free", "state[:len(self.state)] = self.state"),
        "a restart forgets counts": ('("count", counts), ', ""),
        "a restart forgets ages": (
            "self.state[name][:fresh] = part",
            'self.state[name][:fresh] = np.minimum(part, 1) if name == "last" else part'),
        "a restart sorts the free rows": ("self.free[:len(free)] = free",
                                          "self.free[:len(free)] = np.sort(free)"),
    },
    Path(turnover.__file__): {
        "a batch that is not done is swept": ("self._freed(batch, done, before",
                                              "self._freed(batch, batch, before"),
        "a batch that is not done makes room": ("self._freed(batch, done, _ALL",
                                                "self._freed(batch, batch, _ALL"),
        "a batch that is not done gives way": ("self._freed(batch, done, 0, int(high[0])",
                                               "self._freed(batch, batch, 0, int(high[0])"),
        "an id of a lower count takes a row": ("done, 0, int(high[0])", "done, 0, _ALL"),
        "ids of lower counts come first": ("np.argsort(-counts", "np.argsort(counts"),
        "all ids take the rows that were freed": ("others[high > self.bar]", "others"),
        "a bar outlasts its sweep": ("0 if len(swept[1]) else self.bar >> 1", "self.bar"),
        "a sweep goes below the floor": ("max(0, self._index.used - rule.floor)",
                                         "self._index.used"),
        "the cap is exceeded": ("min(cap, rule.cap)", "cap"),
        "an age is too long": ("batch - rule.age + 1", "batch - rule.age"),
        "draws do not follow from the batch": ("mixed(np.array([batch], np.uint64))",
                                               "np.uint64(0)"),
        "estimates are not halved": ("self.sketch >>= 1", "pass"),
        "the log lacks ids that expired": ("self._log.append(batch, EXPIRED, ids, rows)", "pass"),
    },
    Path(map_module.__file__): {
        "a bar outlasts growth": ("                self._turnover.bar = 0\n", ""),
        "an earlier batch takes a later one back": (
            "self.completed = max(self.completed, batch)", "self.completed = batch"),
        "the log names another row": (
            "ADMITTED, distinct[chosen], given)", "ADMITTED, distinct[chosen], given + 1)"),
        "a restart forgets estimates": ('made._turnover.sketch[:] = state["sketch"]', "pass"),
        "a restart cuts the log": ('np.asarray(state["events"])',
                                   'np.asarray(state["events"])[1:]'),
    },
}
REPLACED = {Path(index.__file__): "Index", Path(turnover.__file__): "Turnover"}  # in the map


def random_policies(draw):
    rows = int(draw.integers(2, 200))
    admission = [None, LeastCount(int(draw.integers(1, 5)), int(draw.integers(1, 300)),
                                  int(draw.integers(0, 6))),
                 Probability(float(draw.uniform(0.05, 1)))][draw.integers(3)]
    cap = int(draw.integers(1, rows)) if draw.random() < 0.4 else None
    expiry = Expiry(age=int(draw.integers(1, 9)) if draw.random() < 0.6 else None,
                    below=int(draw.integers(1, 6)) if draw.random() < 0.6 else None,
                    every=int(draw.integers(1, 5)),
                    floor=int(draw.integers(0, (cap or rows) // 2 + 1)),
                    cap=cap) if draw.random() < 0.8 else None
    if draw.random() < 0.3:  # ids and rows compete by their counts
        admission = LeastCount(1, int(draw.integers(1, 300)), int(draw.integers(0, 30)))
        expiry = Expiry(below=1, every=int(draw.integers(8, 30)), cap=cap)
    return rows, admission, expiry, int(draw.integers(0, 1 << 63))


def run(draw, followed, batches, most, growth=True):
    """Random batches of up to `most` ids, which are done in any order, restarts and growth."""
    for _ in range(batches):
        where = draw.random(int(draw.integers(0, most))) ** 2 * len(followed.pool)
        followed.plan(followed.pool[where.astype(int)])
        if draw.random() < 0.6:
            followed.done(int(draw.integers(0, followed.planned + 1)))
        if draw.random() < 0.1:
            followed.restart(in_flight=draw.random() < 0.5)
        if growth and draw.random() < 0.05:
            followed.grow()
    followed.check_log()


def small(seed, path):
    """A run of random policies."""
    draw = np.random.default_rng(seed)
    policies = random_policies(draw)
    pool = draw.integers(0, 1 << 64, int(draw.integers(1, 3 * policies[0])), np.uint64)
    pool[:3] = (0, (1 << 64) - 1, 1 << 63)[:len(pool)]
    expiry = policies[2]
    run(draw, FollowedMap(policies, THREADS, pool, path), 40, 120,
        growth=expiry is None or expiry.cap is None)


def use_source(path, source, tmp_path, monkeypatch):
    """Maps of this test use a source in the place of that of a path."""
    if path.suffix == ".py":
        module = util.module_from_spec(util.spec_from_loader("hotrow.ids.changed", None))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, path, "exec"), module.__dict__)
        if path in REPLACED:
            name = REPLACED[path]
            monkeypatch.setattr(map_module, name, getattr(module, name))
        else:
            monkeypatch.setattr(followed_map, "IdMap", module.IdMap)
        return
    if compiler.find_compiler() is None:
        pytest.skip("no C++ compiler is installed")
    library.library()  # before the cache is another folder
    for name in ("mixed.hpp", "rows.hpp"):
        (tmp_path / name).write_text((KERNELS / name).read_text())
    (tmp_path / path.name).write_text(source)
    monkeypatch.setenv("HOTROW_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "FLAGS", ("-O1", *compiler.FLAGS[1:]))
    made = index.declared(compiler.load("changed", [tmp_path / path.name]), index.ARGUMENTS)
    monkeypatch.setattr(index, "library", lambda: made)


@pytest.mark.slow
def test_maps_are_the_model(tmp_path):
    for seed in range(10):
        try:
            small(seed, tmp_path / "map.npz")
        except (AssertionError, Error) as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.long
@pytest.mark.parametrize("fault", [fault for path in FAULTS for fault in FAULTS[path]])
def test_a_planted_fault_is_found(fault, tmp_path, monkeypatch):
    path = next(path for path in FAULTS if fault in FAULTS[path])
    written, planted = FAULTS[path][fault]
    source = path.read_text()
    assert source.count(written) == 1
    source = source.replace(written, planted)
    if "hash alone" in fault:  # few hashes, so that several ids share one
        source = source.replace("mixed(id ^ seed) >> 32)", "mixed(id ^ seed) >> 60)")
    use_source(path, source, tmp_path, monkeypatch)
    with pytest.raises((AssertionError, Error)):
        for seed in range(40):
            small(seed, tmp_path / "map.npz")


@pytest.mark.slow
def test_ids_that_share_hashes_keep_their_rows(tmp_path, monkeypatch):
    """Every id has the same home: the index is one chain."""
    path = KERNELS / "id_map.cpp"
    use_source(path, path.read_text().replace("mixed(id ^ seed) >> 32)", "mixed(id ^ seed) >> 62)"),
               tmp_path, monkeypatch)
    for seed in range(3):
        small(seed, tmp_path / "map.npz")


@pytest.mark.long
@pytest.mark.nightly
def test_ten_million_ids(tmp_path):
    """Every admission with every expiry, at load 0.95 and 1.0 of 20,000 rows."""
    rows, looked_up = 20_001, 0
    admissions = (None, LeastCount(2, 1 << 14), LeastCount(3, 1 << 12, 4), Probability(0.6))
    expiries = ({}, {"age": 5}, {"below": 2, "every": 10}, {"below": 3, "every": 2, "floor": 9_000},
                {"age": 6, "below": 2, "every": 4, "floor": 9_000}, None)
    draw = np.random.default_rng(0)
    for load, admission, expiry in product((0.95, 1.0), admissions, expiries):
        most = int(load * (rows - 1))
        policies = (rows, admission, expiry if expiry is None else Expiry(cap=most, **expiry),
                    int(draw.integers(1 << 63)))
        pool = draw.integers(0, 1 << 64, most if expiry is None else 5 * rows, np.uint64)
        followed = FollowedMap(policies, THREADS, pool, tmp_path / "map.npz")
        try:
            run(draw, followed, 22, 20_000, growth=False)
            while expiry is None and len(followed.maps[0]) < most:
                followed.plan(pool)  # until every id has its row
            assert followed.peak == most
        except (AssertionError, Error) as error:
            raise AssertionError(f"{policies}") from error
        looked_up += followed.looked_up
    assert looked_up >= 10_000_000
