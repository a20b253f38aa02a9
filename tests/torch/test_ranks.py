"""Several processes on loopback train as one process."""

import pickle
import re
import runpy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hotrow.contract.errors import Error
from hotrow.torch import Options, ShardedEmbeddingBagCollection, TableConfig

from tests.torch import rank_training
from tests.torch.launching import torchrun
from tests.torch.rank_training import CASES, SEED, SHORT, alone


@pytest.fixture(scope="module")
def runs(launched):
    """(ranks, outcome of each case)."""
    world, folder = launched
    return world, torch.load(folder / "found.pt")["trainings"]


def test_bits_are_those_of_one_rank_that_takes_the_parts_in_turn(runs):
    world, found = runs
    compared = [name for name in CASES if name in found and name != "accumulated"]
    assert {*compared, "accumulated"} in ({*SHORT}, {*CASES})
    for case in compared:
        agrees(world, found, case)


def agrees(world, found, case):
    one = alone(world, **CASES[case])
    assert [loss for step in zip(*found[case]["losses"], strict=True) for loss in step] \
        == one["losses"], f"seed {SEED}"
    assert found[case]["sha256"] == one["sha256"], f"seed {SEED}"
    for here, there in zip(found[case]["dense"], one["dense"], strict=True):
        assert torch.equal(here, there), f"seed {SEED}"
    if CASES[case]["mode"] != "resident":
        assert found[case]["hits"]


def test_gradients_that_one_rank_keeps_show(runs):
    world, found = runs
    assert found["planted"]["sha256"] != alone(world, **CASES["scratchpipe"])["sha256"]


@pytest.mark.parametrize("case", ["resident", "accumulated", "wrapped"])
def test_agrees_with_the_union_batch(runs, case):
    """And with DistributedDataParallel, which adds in another order."""
    world, found = runs
    options = CASES.get(case, {})
    one = alone(world, **options, union=options.get("every", 1) == 1)
    for name, parts in one["tables"].items():
        for here, there in zip(found[case]["tables"][name], parts, strict=True):
            if there is not None:
                limit = 1e-2 if there.dtype == torch.float16 else 1e-5
                torch.testing.assert_close(here, there, rtol=limit, atol=limit / 10)
    for here, there in zip(found[case]["dense"], one["dense"], strict=True):
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_what_fails_in_a_rank_is_shown(tmp_path):
    script = tmp_path / "failing.py"
    script.write_text("import os\nrank = int(os.environ['RANK'])\n"
                      "print('rank', rank, 'of', os.environ['WORLD_SIZE'])\n"
                      "assert rank != 1, 'rank one has had enough'\n")
    with pytest.raises(AssertionError, match=r"(?s)2 ranks .*exit status 1\n.*1\]:.*had enough"):
        torchrun(2, tmp_path, str(script))


@pytest.mark.long
def test_ranks_that_do_not_end_are_ended(tmp_path):
    script = tmp_path / "waiting.py"
    script.write_text("import os, time\n"
                      f"open({str(tmp_path / 'pid')!r} + os.environ['RANK'], 'w').write("
                      "str(os.getpid()))\ntime.sleep(1e6)\n")
    with pytest.raises(AssertionError, match=r"no end after 9 seconds"):
        torchrun(1, tmp_path, str(script), seconds=9)
    begun = tmp_path / "pid0"
    assert not begun.exists() or not Path(f"/proc/{begun.read_text()}").exists()


@pytest.fixture
def one_rank():
    """A process group with this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("case", ["resident", "scratchpipe", "accumulated"])
def test_bits_of_a_single_rank(one_rank, case):
    """The exchange of rows and gradients changes no bit."""
    found, one = rank_training.together(**CASES[case]), alone(1, **CASES[case])
    assert found["losses"] == one["losses"] and found["sha256"] == one["sha256"]


@pytest.mark.parametrize("check", ["saved_and_read", "misled", "counted", "converted",
                                   "interrupted"])
def test_a_single_rank(one_rank, check):
    """`runs` has the same checks by several ranks."""
    getattr(rank_training, check)()


def test_only_rows_that_are_looked_up_travel(one_rank, monkeypatch):
    """Row 0 of a table is beside the last row of the group before."""
    with ShardedEmbeddingBagCollection(
            [TableConfig("user", 10, 4), TableConfig("item", 10, 8)], None, "resident") as shared:
        ranks, travelled = shared.store.ranks, []
        answer = ranks.answer
        monkeypatch.setattr(ranks, "answer", lambda rows, *counts: (
            travelled.append(rows.shape), answer(rows, *counts))[1])
        start = torch.zeros(1, dtype=torch.int64)
        shared([(torch.tensor([3, 3]), start), (torch.tensor([0, 0]), start)])
    assert [shape for shape in travelled if len(shape) == 2] == [(1, 4), (1, 8)]


def test_needs_ranks():
    with pytest.raises(Error, match="torchrun"):
        ShardedEmbeddingBagCollection([TableConfig("user", 10, 4)], None, "resident")


def test_pooled_rows_are_refused(one_rank):
    with pytest.raises(Error, match="are gathered: leave cold out"):
        ShardedEmbeddingBagCollection([TableConfig("user", 10, 4)], "model", mode="hotline",
                                      options=Options(cold="pooled"))


def test_what_ranks_do_together_is_not_copied_or_split(one_rank):
    with ShardedEmbeddingBagCollection([TableConfig("user", 10, 4)], "model") as shared:
        for call in (shared.batches.parts().__next__, lambda: pickle.dumps(shared)):
            with pytest.raises(Error, match=r"of several processes: parts|cannot be copied"):
                call()


@pytest.mark.slow
def test_example_runs_as_one_of_one(monkeypatch, capsys):
    """torchrun starts it with several ranks; only their number differs."""
    path = Path(__file__).parents[2] / "examples" / "several_processes.py"
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": 0}.items():
        monkeypatch.setenv(name, str(value))
    runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    assert re.search(r"epoch 1, rank 0: loss 0\.\d+, \d+% of lookups here hit", out)
    assert "400,033 numbers to save" in out
    assert len(path.read_text().splitlines()) < 70
