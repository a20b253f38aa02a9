"""Faults that are planted compile, are of every kind, and are noticed or not as they should."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support import mutant_tests, mutants
from tests.support.mutations import mutations

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
HARDWARE = '''
def elaborate(m, self):
    count, full = Signal(4), Signal(range(9))
    with m.If(self.i.valid & self.i.ready):
        m.d.sync += [count.eq(count + 1), full.eq(Mux(a, b, c))]
    m.d.comb += bad.eq(refused | fault)
    with m.If(self.restart):
        m.d.sync += count.eq(0)
    with m.If(self.clear):
        m.d.sync += [flag.eq(0) for flag in (one, two)]
    cleared = ResetInserter(clear)
    m.submodules.unit = cleared(unit)
'''
SOFTWARE = '''
def check(rows, limit):
    if rows > limit:
        raise ValueError(f"{rows if rows else 'no'} rows", "one" if rows == 1 else "many")
    assert rows < limit
    return limit if limit or rows else rows - 1
'''


def test_faults_of_hardware():
    found = Counter(each.kind for each in mutations(Path("a.py"), HARDWARE, True))
    assert found == {"a bit less": 2, "inverted condition": 3, "dropped handshake term": 2,
                     "stale register": 2, "off by one": 1, "wrong branch": 1, "lost cause": 2,
                     "missing restart": 5}


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
        compile(each.apply((ROOT / each.path).read_text()), each.path, "exec")


@pytest.mark.parametrize("path, first, among, not_among", [
    ("rtl/hotrow_rtl/host/command_queue.py", "rtl/host/test_command_queue.py",
     "rtl/test_top.py", "rtl/test_restart.py"),
    ("rtl/hotrow_rtl/lookup/planner/window.py", "rtl/lookup/planner/test_window.py",
     "rtl/test_restart.py", "rtl/host/test_doorbell.py"),
    ("sim/hotrow_sim/golden/lookup/planner.py", "sim/golden/test_planner.py",
     "rtl/lookup/test_plan_engine.py", "rtl/host/test_doorbell.py"),
    ("rtl/hotrow_rtl/mover/bags/read_issue.py", "rtl/mover/bags/test_bag_faults.py",
     "rtl/mover/test_engine.py", "rtl/host/test_doorbell.py"),
    ("sw_driver/hotrow/torch/store/cached.py", "torch/test_train_cached.py",
     "torch/test_random_models.py", "driver/test_spans.py"),
    # Names that a package loads on first use, and commands of the command line.
    ("sw_driver/hotrow/torch/conversion.py", "torch/test_conversion.py", "torch/test_pipeline.py",
     "torch/test_rules.py"),
    ("sw_driver/hotrow/torch/training/train.py", "torch/test_train_cached.py",
     "torch/test_train_cli.py", "rtl/host/test_doorbell.py"),
])
def test_the_tests_of_a_file(path, first, among, not_among):
    found = mutant_tests.tests_of(ROOT, Path(path))
    assert found[0] == f"tests/{first}" and f"tests/{among}" in found
    assert f"tests/{not_among}" not in found
    assert not any("sim/device" in each for each in found)


def test_lines_that_differ(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path]
    (tmp_path / "a.py").write_text("1\n2\n3\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "a.py").write_text("0\n1\n2\n4\n5\n")
    assert mutants.lines_since(tmp_path, "HEAD") == {"a.py": {1, 4, 5}}


def test_the_tests_near_what_differs(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path]
    for name, text in {"pyproject.toml": "[project]", "rtl/a.py": "", "rtl/b.py": "import a",
                       "tests/test_b.py": "import b", "tests/test_c.py": "import c"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    assert mutant_tests.tests_since(tmp_path, "HEAD") == ["tests/docs"]
    (tmp_path / "rtl/a.py").write_text("x = 1")
    assert mutant_tests.tests_since(tmp_path, "HEAD") == ["tests/test_b.py"]
    assert mutant_tests.tests_since(tmp_path, "HEAD", most=1) == ["tests/docs"]
    (tmp_path / "rtl/c.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    assert mutant_tests.tests_since(tmp_path, "HEAD") == ["tests"]


CASES = """
import os, time, pytest
def test_a():
    if {2}: os.kill(os.getpid(), 11)
def test_b():
    while time.process_time() < 0.1 or {0}: pass
def test_c(): assert not {1}
"""


@pytest.mark.parametrize("hangs, fails, crashes, noticed", [
    (0, 0, 0, None), (1, 0, 0, "test_b.py::test_b"), (0, 1, 0, "test_b.py::test_c"),
    (0, 0, 1, "test_b.py")])
def test_a_run_names_the_test_that_notices(tmp_path, monkeypatch, hangs, fails, crashes, noticed):
    monkeypatch.setattr(mutants, "PATIENCE", 1e6)
    monkeypatch.setattr(mutants, "TREES", (str(ROOT), str(ROOT / "sim"), str(ROOT / "rtl")))
    (tmp_path / "test_b.py").write_text(CASES.format(hangs, fails, crashes).replace("import os", (
        "from tests.support import mutant_plugin as plugin\n"
        "plugin.LEAST, plugin.UNKNOWN = 0.3, (0, 0)\nimport os")))
    runner = mutants.Runner(tmp_path, tmp_path / "cache")
    assert runner.noticed(["test_b.py"], 60) == noticed
    if not noticed:
        assert runner.noticed(["test_b.py"], 1e-4) is None, "no time: one test, and no failure"


def test_a_run_that_the_clock_ends_has_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "PATIENCE", 0.05)
    (tmp_path / "test_b.py").write_text("import time\ndef test_b(): time.sleep(600)\n")
    runner = mutants.Runner(tmp_path, tmp_path / "cache")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert runner.noticed(["test_b.py"], 60) == mutants.OUT_OF_TIME
    assert 0 < runner.seconds < 60


def test_equivalent_faults_exist_and_are_not_planted(found):
    """An entry whose line has changed must be argued again."""
    lines = (ROOT / mutants.EQUIVALENT).read_text().splitlines()
    listed = {line.rsplit(" | ", 1)[0] for line in lines}
    assert all(" | " in line for line in lines)
    assert not listed & {each.key for each in found}
    every = {each.key for path in {Path(key.split(":")[0]) for key in listed}
             for each in mutations(path, (ROOT / path).read_text(), path.parts[0] == "rtl")}
    assert listed <= every


def test_draws_repeat_and_reach_every_engine(found):
    assert mutants.draw(found, 50, 1) == mutants.draw(found, 50, 1) != mutants.draw(found, 50, 2)
    units = {mutants.unit_of(each.path) for each in mutants.draw(found, 1500, 1)}
    assert units == {mutants.unit_of(each.path) for each in found}


def test_a_fault_is_noticed_and_the_file_restored(tmp_path):
    mutants.copy_of(ROOT, tmp_path)
    path = Path("rtl/hotrow_rtl/host/command_queue.py")
    before = (tmp_path / path).read_text()
    fault = next(each for each in mutations(path, before, True)
                 if each.kind == "inverted condition")
    by = mutants.Runner(tmp_path, tmp_path / "cache").plant(
        fault, mutants.tests_for(ROOT, fault))
    assert by.startswith("tests/rtl/host/test_command_queue.py::")
    assert (tmp_path / path).read_text() == before
