"""`hotrow train --tables`: the bits of tables in memory, commits, and runs that continue."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import hotrow.tables
import pytest
from hotrow.torch.training.collection_trainer import CollectionTrainer

from tests.torch.test_train_cached import GENERATED, OF_IDS, TINY, raw, train  # noqa: F401

SAMPLE = ["--trace", "sample", "--ids", "item,user", "--dense", "price", "--label", "clicked",
          "--json"]
FEW = [*GENERATED, *TINY, "--slots", 64, "--depth", 2]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tables"


@pytest.fixture
def dies(monkeypatch):
    """Let the step of a number of calls from now on fail."""
    def after(steps):
        taken, step = [], CollectionTrainer.step

        def dying(trainer, samples):
            taken.append(samples)
            if len(taken) > steps:
                raise RuntimeError("died")
            return step(trainer, samples)
        monkeypatch.setattr(CollectionTrainer, "step", dying)
    yield after


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def apart(*arguments):
        """Run in a process of its own, as `--memory` limits all that a process holds."""
        ran = subprocess.run([sys.executable, "-m", "hotrow.command.cli", "train", *arguments],
                             capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout, ran.stderr

    page = Path(__file__).parents[2] / "docs" / "larger_than_memory.md"
    begins, continues = (shlex.split(line)[2:] for line in page.read_text().splitlines()
                         if line.startswith("hotrow train"))
    out, err = apart(*begins, "--json")
    found = json.loads(out)
    assert "of 2,000 MB: process" in err and "16,384 slots" in err
    assert found["memory_plan"] in err and found["disk"]["rows_fetched"] > 0
    assert (found["mode"], found["check_held"], found["slots"]) == ("scratchpipe", None, 1 << 14)
    more = json.loads(apart(*continues, "--json")[0])
    assert more["first_batch"] == found["batches"] == more["batches"] // 2
    in_memory = begins[:begins.index("--tables")]
    resident = json.loads(apart(*in_memory, "--mode", "resident", "--epochs", "2", "--json")[0])
    assert more["table_sha256"] == resident["table_sha256"] != found["table_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["scratchpipe", pytest.param("freqcache", marks=pytest.mark.long)])
def test_a_run_that_died_continues_at_its_last_commit(train, folder, dies, monkeypatch,  # noqa: F811
                                                      mode):
    run = [*FEW, "--mode", mode, "--checkpoint-every", 6]
    dies(15)
    with pytest.raises(RuntimeError, match="died"):
        train(*run, "--tables", folder)
    monkeypatch.undo()
    code, _, err = train(*run, "--tables", folder)
    assert code == 2 and "are those of another run: continue it with --resume" in err
    code, _, err = train(*run, "--tables", folder, "--resume", "--lr", 0.5)
    assert code == 2 and "was trained with --lr 0.3, not 0.5" in err
    code, found, err = train(*run, "--tables", folder, "--resume", folder)
    assert code == 0 and found["first_batch"] == 12 and found["evictions"] > 0, err
    code, whole, _ = train(*run)
    assert code == 0 and found["table_sha256"] == whole["table_sha256"]
    code, _, err = train(*run, "--tables", folder, "--resume")
    assert code == 2 and "has trained 28 batches, and this run is to end with 28" in err


@pytest.mark.slow
def test_raw_ids_continue(train, raw, folder, dies, monkeypatch):  # noqa: F811
    run = [*raw, *TINY, "--checkpoint-every", 31]
    _, whole, _ = train(*run, "--mode", "scratchpipe")
    dies(40)
    with pytest.raises(RuntimeError, match="died"):
        train(*run, "--tables", folder)
    monkeypatch.undo()
    code, found, err = train(*run, "--tables", folder, "--resume")
    assert code == 0 and found["first_batch"] == 31, err
    assert [found[name] for name in OF_IDS] == [whole[name] for name in OF_IDS]


def test_a_folder_of_another_program(train, folder):  # noqa: F811
    with hotrow.tables.Store(folder, [hotrow.tables.Table(f"table {at}", 300, 16, 0, 0.1)
                                      for at in range(8)]) as store:
        store.commit(b"")
    code, _, err = train(*FEW, "--tables", folder, "--resume")
    assert code == 2 and str(folder) in err


@pytest.mark.parametrize("options, message", [
    (["--mode", "hotline"], "--tables is for modes scratchpipe and freqcache, not hotline"),
    (["--checkpoint", "x"], "are the checkpoints of the run: leave --checkpoint out"),
    (["--resume", "elsewhere"], "--resume names elsewhere, and the run would continue in"),
    (["--memory", "2GB", "--slots", 64], "--memory chooses the slots of a card in software"),
    (["--memory", "2GB", "--transport", "model"], "--memory chooses the slots of a card in soft"),
    (["--memory", "much"], "expected a size of memory in bytes, or such as '640MB'"),
    (["--memory", "1MB"], "memory of 1 MB is too little for tables of"),
    (["--resume"], "have no run of hotrow train to continue: leave --resume out"),
    (["--tables", ""], "--tables needs the name of a folder"),
    (["--tables", "/proc/none"], "/proc/none"),
])
def test_options_that_do_not_go_together(train, folder, options, message):  # noqa: F811
    code, out, err = train(*SAMPLE, "--tables", folder, *options)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


@pytest.mark.parametrize("options, message", [
    (["--memory", "2GB"], "--memory limits a process whose tables are on disk"),
    (["--mode", "scratchpipe", "--resume"], "--resume needs the FILE of a checkpoint"),
])
def test_options_of_tables_without_them(train, options, message):  # noqa: F811
    code, _, err = train(*SAMPLE, *options)
    assert code == 2 and message in err
