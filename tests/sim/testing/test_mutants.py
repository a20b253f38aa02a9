"""Faults that are planted compile, are of every kind, and are noticed or not as they should."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from hotrow_sim.testing import mutants
from hotrow_sim.testing.mutations import mutations

ROOT = Path(__file__).resolve().parents[3]
HARDWARE = '''
def elaborate(m, self):
    count, full = Signal(4), Signal(range(9))
    with m.If(self.i.valid & self.i.ready):
        m.d.sync += [count.eq(count + 1), full.eq(Mux(a, b, c))]
    m.d.comb += bad.eq(refused | fault)
    with m.If(self.restart):
        m.d.sync += count.eq(0)
'''
SOFTWARE = '''
def check(rows, limit):
    if rows > limit:
        raise ValueError(f"{rows if rows else 'no'} rows")
    return limit if limit or rows else rows - 1
'''


def test_faults_of_hardware():
    found = Counter(each.kind for each in mutations(Path("a.py"), HARDWARE, True))
    assert found == {"a bit less": 2, "inverted condition": 2, "dropped handshake term": 2,
                     "stale register": 2, "off by one": 1, "wrong branch": 1, "lost cause": 2,
                     "missing restart": 1}


def test_faults_of_software():
    found = {each.kind: each.apply(SOFTWARE) for each in mutations(Path("a.py"), SOFTWARE, False)}
    assert sorted(found) == ["lost cause", "off by one", "rule left out", "wrong branch"]
    assert "if False:" in found["rule left out"]


@pytest.fixture(scope="module")
def found():
    return mutants.collect(ROOT)


def test_every_fault_of_the_tree_compiles(found):
    assert len({each.kind for each in found}) == 9
    for each in mutants.draw(found, 100, seed=4):
        ast.parse(each.apply((ROOT / each.path).read_text()))
        assert list(mutants.stages(ROOT, each.path)), each.path


def test_equivalent_faults_exist_and_are_not_planted(found):
    """An entry whose line has changed must be argued again."""
    lines = (ROOT / mutants.EQUIVALENT).read_text().splitlines()
    listed = {line.split(" | ")[0] for line in lines}
    assert all(len(line.split(" | ")) == 2 for line in lines)
    assert not listed & {each.key for each in found}
    every = {each.key for path in {Path(key.split(":")[0]) for key in listed}
             for each in mutations(path, (ROOT / path).read_text(), path.parts[0] == "rtl")}
    assert listed <= every


def test_draws_repeat_and_reach_every_engine(found):
    assert mutants.draw(found, 50, 1) == mutants.draw(found, 50, 1) != mutants.draw(found, 50, 2)
    units = {mutants.unit_of(each.path) for each in mutants.draw(found, 400, 1)}
    assert units == {mutants.unit_of(each.path) for each in found}


@pytest.mark.slow
def test_a_fault_is_noticed_and_the_file_restored(tmp_path):
    mutants.copy_of(ROOT, tmp_path)
    path = Path("rtl/hotrow_rtl/host/doorbell.py")
    before = (tmp_path / path).read_text()
    fault = next(each for each in mutations(path, before, True)
                 if each.kind == "inverted condition")
    assert mutants.plant(tmp_path, fault, set()) == "tests/rtl/host/test_doorbell.py"
    assert (tmp_path / path).read_text() == before
