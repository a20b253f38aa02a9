"""The examples run unchanged, and are short."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example with arguments; return its output."""
    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out
    return run


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """Generated clicks in Criteo's format."""
    rng, path = np.random.default_rng(3), tmp_path_factory.mktemp("criteo") / "clicks.tsv"
    with path.open("w") as file:
        for _ in range(150):
            numbers = [str(each) for each in rng.integers(0, 50, 13)]
            values = [f"{each:08x}" for each in (200 * rng.random(26) ** 3).astype(int)]
            file.write("\t".join([str(rng.integers(0, 2)), *numbers, *values]) + "\n")
    return path


def digest(out):
    return re.search(r"tables (\w{64})", out)[1]


@pytest.mark.slow
def test_dlrm_criteo(run, clicks, tmp_path):
    small = [clicks, "--batch-size", 32, "--dim", 4, "--epochs", 2]
    resident = run("dlrm_criteo.py", *small, "--mode", "resident")
    path = tmp_path / "run.pt"
    saving = [*small, "--checkpoint", path, "--preset", "ecp5"]
    run("dlrm_criteo.py", *saving, "--epochs", 1)
    resumed = run("dlrm_criteo.py", *saving, "--resume", "--mode", "freqcache")
    assert digest(resumed) == digest(resident)
    assert "of lookups found their row in a slot" in resumed
    assert "epoch 2" in run("dlrm_criteo.py", *saving, "--mode", "hotline")


def losses(out):
    return [float(each) for each in re.findall(r"loss (\d\.\d+)", out)]


@pytest.mark.slow
def test_own_model_learns(run):
    out = run("own_model.py")
    assert re.search(r"\d\d\.\d% of lookups hit", out)
    assert losses(out) == sorted(losses(out), reverse=True) and losses(out)[-1] < 0.5


@pytest.mark.slow
def test_ngram_tables_lower_the_loss(run):
    out = run("ngram_memory.py", "--characters", 60_000, "--epochs", 1, "--rows", 2000)
    without, with_tables = (float(each) for each in re.findall(r"(\d\.\d+) bits", out))
    assert with_tables < without - 0.1 and re.search(r"\d\.\d% of lookups hit", out)


def test_several_processes_explains_itself(run, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit, match="torchrun --standalone --nproc-per-node=2"):
        run("several_processes.py")


@pytest.mark.parametrize("name, lines", [("dlrm_criteo.py", 120), ("own_model.py", 60),
                                         ("ngram_memory.py", 120)])
def test_they_are_short(name, lines):
    assert len((EXAMPLES / name).read_text().splitlines()) < lines


@pytest.mark.slow
def test_larger_than_memory_goes_on_at_its_last_commit(run, tmp_path):
    small = ["--folder", tmp_path / "t", "--rows", 4000, "--samples", 16, "--memory", "3GB"]
    assert "begins" in (first := run("larger_than_memory.py", *small, "--steps", 60))
    assert "step 50:" in first and "MB of trained rows" in first
    assert "goes on after step 60" in run("larger_than_memory.py", *small, "--steps", 3)
