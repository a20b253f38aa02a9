"""`hotrow train` in modes scratchpipe and freqcache: the report, and resumed runs."""

import json
import random
import signal
import subprocess
import sys

import pytest
import torch
from hotrow import Error
from hotrow.command.cli import main
from hotrow.torch import Checkpoint
from hotrow.torch.store.host_tables import HostTables

from tests.torch.test_train_cli import CRITEO, FIELDS, MODEL, RETAIL, RETAIL_COLUMNS, SMALL, needs

TINY = [*MODEL, *SMALL, "--preset", "tiny", "--json"]
FAST = ["--transport", "cpu", *TINY[2:]]
GENERATED = ["--trace", "zipf:1.05:300", "--batch-size", "8", "--batches", "14", "--epochs", "2"]


@pytest.fixture
def train(capsys):
    """Run: (exit code, JSON or text, standard error)."""
    def run(*arguments):
        code = main(["train", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if not code and "--json" in arguments else out, err
    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode, options", [
    pytest.param("scratchpipe", [], marks=pytest.mark.slow),
    ("scratchpipe", ["--slots", 64, "--workers", 3, "--policy", "rrip"]),
    ("freqcache", ["--slots", 128, "--depth", 1, "--look-ahead", 0, "--eval-every", 7])])
def test_the_report(train, mode, options):
    code, result, _ = train(*GENERATED, *TINY, "--mode", mode, *options)
    assert code == 0 and result.keys() >= FIELDS
    assert result["mode"] == mode and result["check_held"] and result["table_hash_equal"]
    assert (result["batches"], result["loss"]) == (28, result["loss_reference"])
    assert result["slots"] == (options[1] if options else 256)
    assert 0 < result["hit_rate"] < 1 and result["fills"] > result["bypasses"] > 0
    assert result["link_bytes"] > 4 * result["rows_moved"] > 4 * result["fills"]
    commands = {name: each["commands"] for name, each in result["device_commands"].items()}
    assert commands["PLAN"] == 28 > commands["MARK"] > 0  # none before a plan evicts
    assert (result["warmed_rows"] > 0) == (mode == "freqcache") == ("HARVEST" in commands)
    assert [each["batch"] for each in result["history"]] == (
        [7, 14, 21, 28] if "--eval-every" in options else [])


@pytest.mark.slow
def test_an_evicted_row_that_is_lost_fails_the_check(monkeypatch, capsys):
    write, lost = HostTables._write, []

    def lose_one(tables, group, flat, rows, listed=None):
        if len(flat) and not lost:
            lost.append(int(flat[0]))
            rows.weights[0] = 0.0
        write(tables, group, flat, rows, listed)
    monkeypatch.setattr(HostTables, "_write", lose_one)
    code = main(["train", *map(str, [*GENERATED, *FAST, "--mode", "scratchpipe", "--slots", 64])])
    result = json.loads(capsys.readouterr().out)
    assert lost and code == 1 and not result["check_held"] and not result["table_hash_equal"]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("trace", [
    pytest.param(["--trace", RETAIL, *RETAIL_COLUMNS, "--batch-size", 256, "--batches", 200],
                 marks=[needs(RETAIL), pytest.mark.long], id="retail"),
    pytest.param(["--trace", RETAIL, *RETAIL_COLUMNS, "--bag", "invoice", "--batch-size", 32,
                  "--batches", 200], marks=[needs(RETAIL), pytest.mark.long], id="retail bags"),
    pytest.param(["--trace", f"criteo:{CRITEO}", "--batch-size", 25, "--epochs", 5],
                 marks=[needs(CRITEO), pytest.mark.long], id="criteo"),
    pytest.param(["--trace", "zipf:1.05:2000", "--batch-size", 64, "--batches", 200],
                 marks=pytest.mark.long, id="zipf"),
    pytest.param(["--trace", f"criteo:{CRITEO}", "--batch-size", 50, "--batches", 5],
                 marks=[needs(CRITEO), pytest.mark.slow], id="criteo, few"),
])
def test_traces_in_every_mode(train, trace, optimizer):
    """Two hundred steps and more, with many slots and with few: one digest."""
    digests = set()
    few = "--batches" in trace and trace[-1] == 5
    for options in (["--mode", "scratchpipe", "--preset", "ecp5"],
                    ["--mode", "scratchpipe", "--slots", 64, "--workers", 2, "--depth", 2],
                    ["--mode", "freqcache", "--policy", "freq"],
                    ["--mode", "resident"])[few:]:
        code, result, err = train(*trace, *TINY, "--optimizer", optimizer, *options)
        assert code == 0, err
        assert result["batches"] >= 200 or few
        digests.add(result["table_sha256"])
    assert len(digests) == 1


KILLED = """
import os, signal, sys
import torch
from hotrow.command.cli import main
from hotrow.torch.training import collection_trainer
torch.set_num_threads(1)  # as this test's process: the bits of dense layers depend on it
{}
main(sys.argv[1:])
"""
IN_A_STEP = """
step, left = collection_trainer.CollectionTrainer.step, [2 * {}]
def dying(self, samples):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, samples)
collection_trainer.CollectionTrainer.step = dying
"""
IN_A_CHECKPOINT = """
from hotrow.torch.pipeline import checkpoint
save, left = checkpoint.torch.save, [{}]
def dying(parts, file):
    left[0] -= 1
    if left[0] < 0:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    save(parts, file)
checkpoint.torch.save = dying
"""


@pytest.mark.slow
@pytest.mark.parametrize("death", ["step", pytest.param("checkpoint", marks=pytest.mark.long)])
def test_a_killed_run_resumes(train, tmp_path, death):
    run = [*GENERATED, *FAST, "--mode", "scratchpipe", "--optimizer", "rowwise_adagrad"]
    seed = random.randrange(1 << 30)
    drawn = random.Random(seed)
    code = IN_A_STEP.format(drawn.randint(7, 27)) if death == "step" else IN_A_CHECKPOINT.format(
        drawn.randint(1, 4))
    path = tmp_path / "run.pt"
    saving = ["--checkpoint", str(path), "--checkpoint-every", "6"]
    killed = subprocess.run([sys.executable, "-c", KILLED.format(code), "train", *run, *saving],
                            capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert path.is_file()
    first = Checkpoint(path).load()["batch"]
    assert first and first % 6 == 0, seed
    code, resumed, err = train(*run, "--resume", path, "--workers", 2)
    assert code == 0, err
    _, whole, _ = train(*run)
    assert resumed["first_batch"] == first
    assert resumed["table_sha256"] == whole["table_sha256"], seed


@pytest.fixture
def raw(tmp_path):
    """A log of strings and of hashes of 64 bits, more of them than rows, that drift."""
    draw = random.Random(5)
    lines = [f"{draw.randrange(2)},u{at // 9 + draw.randrange(30)},{draw.randrange(1 << 64)}"
             for at in range(200)]
    path = tmp_path / "raw.csv"
    path.write_text("\n".join(("click,user,item", *lines)))
    return ["--trace", path, "--ids", "user,item", "--label", "click", "--any-ids", 50,
            "--batch-size", 4, "--optimizer", "rowwise_adagrad"]


OF_IDS = ("rows_used", "ids_admitted", "ids_expired", "default_lookups", "table_sha256")


@pytest.mark.slow
def test_raw_ids(train, raw, capsys):
    """Ids take rows from others, and slots, threads and batches ahead change no bit."""
    found = []
    for options in (["--mode", "scratchpipe"], ["--mode", "freqcache", "--slots", 64, "--workers",
                    2], ["--mode", "scratchpipe", "--depth", 15]):
        code, result, err = train(*raw, *FAST, *options)
        assert code == 0 and result["check_held"], err
        found.append([result[name] for name in OF_IDS])
    assert found[0] == found[1] == found[2]
    rows, admitted, expired, _, _ = found[0]
    assert rows == admitted - expired <= 2 * 49 and expired > 90
    assert main(["train", *map(str, [*raw, *FAST[:-1], "--mode", "scratchpipe"])]) == 0
    assert "ids that lost it again" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_with_raw_ids_resumes(train, raw, tmp_path, monkeypatch):
    class Numbered(Checkpoint):
        def save(self, **parts):
            Checkpoint(f"{self.path}.{parts['batch']}").save(**parts)

    monkeypatch.setattr("hotrow.torch.training.train.Checkpoint", Numbered)
    path, run = tmp_path / "run.pt", [*raw, *FAST, "--mode", "scratchpipe"]
    _, whole, _ = train(*run, "--checkpoint", path, "--checkpoint-every", 31)
    code, resumed, err = train(*run, "--resume", f"{path}.31", "--workers", 1)
    assert code == 0 and resumed["first_batch"] == 31, err
    assert [resumed[name] for name in OF_IDS] == [whole[name] for name in OF_IDS]
    assert whole["ids_expired"] > 90
    code, _, err = train(*run, "--resume", f"{path}.31", "--any-ids", 60)
    assert code == 2 and "was trained with --any-ids 50, not 60" in err


@pytest.mark.parametrize("options, message", [
    ([], "--any-ids is for modes scratchpipe and freqcache, not hotline: add --mode scratchpipe"),
    (["--mode", "resident"], "not resident: add --mode scratchpipe"),
    (["--mode", "scratchpipe", "--depth", 16], "at most 16 batches ahead, and --depth 16 with"),
    (["--mode", "scratchpipe", "--hash-rows", 9], "leave --hash-rows out"),
    (["--mode", "scratchpipe", "--any-ids", 1], "expected an integer of at least 2, not '1'"),
    (["--mode", "scratchpipe", "--trace", "zipf:1", "--ids", "user"], "columns of its own"),
])
def test_wrong_options_of_raw_ids(train, raw, options, message):
    code, out, err = train(*raw, *TINY, *options)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1


@pytest.mark.slow
def test_a_refusal_loads_no_pytorch(raw):
    code = ("import sys; from hotrow.command.cli import main; "
            "print(main(sys.argv[1:]), 'torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, "train", *map(str, raw)],
                          capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"], done.stderr


@pytest.mark.parametrize("options, message", [
    (["--mode", "scratchpipe", "--any-ids", 9], "zipf:1.05:300' is generated, with ids from 0: "
     "leave --any-ids out"),
    (["--mode", "hotline", "--checkpoint", "x"], "--checkpoint is for modes scratchpipe and"),
    (["--mode", "resident", "--policy", "lru"], "--policy is for modes scratchpipe and freqcache"),
    (["--mode", "scratchpipe", "--resume", "/nowhere/x"], "there is no checkpoint /nowhere/x"),
    (["--mode", "scratchpipe", "--depth", "90"], "this card follows 64 batches"),
    (["--mode", "scratchpipe", "--slots", "9"], "--slots 9 is 9 rows, and mode"),
])
def test_wrong_options(train, options, message):
    code, out, err = train(*GENERATED, *TINY, *options)
    assert (code, out) == (2, "") and message in err


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(train, tmp_path):
    path = tmp_path / "run.pt"
    run = [*GENERATED, *FAST, "--mode", "scratchpipe"]
    assert train(*run, "--checkpoint", path)[0] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["run.pt"]
    code, _, err = train(*run, "--resume", path)
    assert code == 2 and "has trained 28 batches, and this run is to end with 28" in err
    code, _, err = train(*run, "--resume", path, "--lr", "0.5")
    assert code == 2 and "was trained with --lr 0.3, not 0.5" in err
    torch.save({"format": 0}, path)
    with pytest.raises(Error, match="no checkpoint of this format"):
        Checkpoint(path).load()
    path.write_bytes(b"half")
    with pytest.raises(Error, match=r"run\.pt is no checkpoint"):
        Checkpoint(path).load()


@pytest.fixture
def begun(train, tmp_path):
    """Options of a run of a log of bags, its checkpoint, and a function that writes the log."""
    draw = random.Random(3)
    lines = [[draw.randint(1, 99), draw.randint(1, 99), draw.random(), draw.random() * 9,
              draw.randint(0, 1), draw.randint(0, 1), at // 2] for at in range(210)]
    path, saved = tmp_path / "log.csv", tmp_path / "run.pt"

    def write(changed=lambda lines: lines):
        path.write_text("item,user,x,y,click,buy,bag\n" + "\n".join(
            ",".join(map(str, line)) for line in changed([[*line] for line in lines])))
    write()
    run = ["--trace", path, "--ids", "item,user", "--dense", "x,y", "--label", "click",
           "--batch-size", 20, *FAST, "--mode", "scratchpipe"]
    return run, saved, write


def replaced(run, **options):
    run = [*run]
    for name, value in options.items():
        run[run.index(f"--{name}") + 1] = value
    return run


@pytest.mark.slow
@pytest.mark.parametrize("rows", [["--any-ids", 40], ["--hash-rows", 97], ["--bag", "bag"]])
def test_a_run_resumes_with_its_columns_and_its_data(train, begun, rows):
    run, saved, write = begun
    run = [*run, *rows]
    code, first, err = train(*run, "--checkpoint", saved)
    assert code == 0, err
    again = ["--resume", saved, "--epochs", 2]
    for changed in (replaced(run, ids="user,item"), replaced(run, ids="item"),
                    replaced(run, dense="y,x"), replaced(run, label="buy"),
                    [*run, "--hash-rows", 11] if rows[0] == "--bag" else [*run, "--bag", "bag"]):
        code, _, err = train(*changed, *again)
        assert code == 2 and "was trained with --" in err, (changed, err)

    def moved(lines):
        return [lines[1], lines[0], *lines[2:]]

    def cell(column, value):
        def change(lines):
            lines[3][column] = value
            return lines
        return change
    wrong = [(moved, "column 'item', column 'user'"), (cell(0, 7), "column 'item'"),
             (cell(3, 0.5), "dense features"), (lambda lines: lines[:-4], ""),
             (cell(4, 2), "a label is 0 or 1")]
    if rows[0] == "--any-ids":
        wrong.append((lambda lines: [*lines, ["new", *lines[-1][1:-1], 999]],
                      "column 'item' of the"))
    for change, said in wrong:
        write(change)
        code, _, err = train(*run, *again)
        assert code == 2 and said in err, (said, err)
    write(lambda lines: [*lines, *([5, 6, 0.5, 1.0, 1, 0, 900 + at] for at in range(30))])
    code, more, err = train(*run, *again)
    assert code == 0 and more["first_batch"] == first["batches"] < more["batches"], err


@pytest.mark.slow
def test_too_few_rows_for_the_ids(train, begun):
    run, _, _ = begun
    for rows, said in ((4, True), (99, False)):
        code, found, err = train(*run, "--any-ids", rows)
        assert code == 0 and ("found no row for their id" in err) == said, err
        assert (found["default_lookups"] > 210) == said
