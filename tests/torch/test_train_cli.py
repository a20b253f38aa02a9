"""`hotrow train` as a user meets it: real logs, the report, and errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hotrow.command.cli import main

# The data lies beside the repository; a checkout elsewhere can say where with HOTROW_SHARED_DATA.
DATA = Path(os.environ.get(
    "HOTROW_SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
RETAIL = DATA / "online_retail" / "trace.tsv.gz"
CRITEO = DATA / "criteo_1tb_1k" / "criteoTab.tsv"
RETAIL_COLUMNS = ["--ids", "stock,customer,country,hour_of_week", "--dense", "unit_price",
                  "--label", "cancelled"]
MODEL = ["--transport", "model"]
SMALL = ["--mlp-scale", "0.1"]

FIELDS = {
    "mode", "optimizer", "transport", "preset", "batches", "loss", "loss_reference", "auc",
    "auc_reference", "max_row_difference", "check_held", "table_sha256", "table_hash_equal",
    "hit_rate", "popular_fraction", "rows_moved", "bypasses", "link_bytes", "device_cycles",
    "device_commands", "stall_cycles", "seconds_at_clock", "trace", "synthetic"}


def needs(path):
    return pytest.mark.skipif(not path.is_file(), reason=f"real data {path.parent.name}/"
                              f"{path.name} is not beside this checkout")


@pytest.fixture
def hotrow(capsys):
    """Run a command line: (exit code, what JSON or text it printed, standard error)."""
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.tsv"
    rows = (f"{i % 7 == 0:d}\t{i % 5}\t{i * i % 31}\t{i}.5\t{i // 3}" for i in range(200))
    path.write_text("\n".join(("click\tuser\titem\tprice\tvisit", *rows)) + "\n")
    return path


def check_report(result, mode="hotline"):
    assert result.keys() >= FIELDS
    assert result["mode"] == mode and result["check_held"] is True
    assert 0 <= result["max_row_difference"] <= 1
    assert result["loss"] == pytest.approx(result["loss_reference"], rel=1e-3)
    assert len(result["table_sha256"]) == 64


@pytest.mark.slow
@needs(RETAIL)
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_online_retail(hotrow, optimizer):
    code, result, _ = hotrow("train", "--trace", RETAIL, *RETAIL_COLUMNS, *SMALL, "--json",
                             "--optimizer", optimizer, "--batches", 24, "--batch-size", 2048)
    assert code == 0
    check_report(result)
    assert not result["synthetic"] and result["hot_rows"] <= 2139
    assert 0.05 < result["popular_fraction"] < result["hit_rate"] < 0.95
    assert set(result["device_commands"]) == {
        "OBSERVE", "HARVEST", "INSTALL", "SPLIT", "GATHER", "SCATTER"}
    commands = {name: entry["commands"] for name, entry in result["device_commands"].items()}
    assert (commands["OBSERVE"], commands["HARVEST"], commands["INSTALL"]) == (2, 1, 1)
    assert (commands["SPLIT"], commands["SCATTER"]) == (24, 24)
    assert commands["GATHER"] == 25  # one filled the slots


@needs(RETAIL)
@pytest.mark.parametrize("batches, samples, popular", [
    pytest.param(32, 1024, 0.01, marks=pytest.mark.long),
    pytest.param(264, 2048, 0.2, marks=[pytest.mark.long, pytest.mark.nightly],
                 id="the whole year")])
def test_online_retail_on_the_hardware(hotrow, batches, samples, popular):
    arguments = ["train", "--trace", RETAIL, *RETAIL_COLUMNS, *SMALL, "--json", "--mode", "hotline",
                 "--batches", batches, "--batch-size", samples]
    _, modelled, _ = hotrow(*arguments, *MODEL)
    code, result, error = hotrow(*arguments, "--transport", "sim")
    assert code == 0, error or result
    check_report(result)
    assert popular < result["popular_fraction"] < 0.8
    assert result["device_cycles"] == sum(
        entry["cycles"] for entry in result["device_commands"].values())
    lookups = batches * samples * len(RETAIL_COLUMNS[1].split(","))
    assert result["device_commands"]["SPLIT"]["cycles"] >= lookups, "a lane takes 1 id a cycle"
    for name in ("table_sha256", "hit_rate", "popular_fraction", "rows_moved", "auc", "loss"):
        assert result[name] == modelled[name], f"{name} must not depend on the transport"


@pytest.mark.slow
@needs(RETAIL)
def test_invoices_as_bags(hotrow):
    code, result, _ = hotrow("train", "--trace", RETAIL, *RETAIL_COLUMNS, "--bag", "invoice",
                             *SMALL, "--json", "--batches", 10, "--batch-size", 256)
    assert code == 0
    check_report(result)
    assert 0 < result["popular_fraction"] < 0.5 < result["hit_rate"]


@pytest.mark.slow
@needs(CRITEO)
@pytest.mark.parametrize("transport", ["model", pytest.param("sim", marks=pytest.mark.long)])
def test_criteo_sample(hotrow, transport):
    code, result, _ = hotrow("train", "--trace", f"criteo:{CRITEO}", "--batch-size", 64, *SMALL,
                             "--transport", transport, "--json")
    assert code == 0
    check_report(result)
    assert (result["tables"], result["batches"], result["learning_batches"]) == (26, 16, 1)
    assert result["device_commands"]["SPLIT"]["commands"] == 16
    assert result["hit_rate"] > 0.5


@pytest.mark.slow
def test_runs_are_reproducible(hotrow, log):
    arguments = ["train", "--trace", log, "--ids", "user,item", "--label", "click", *MODEL, *SMALL,
                 "--batch-size", 16, "--json"]
    (_, one, _), (_, other, _), (_, third, _) = (
        hotrow(*arguments, "--seed", seed) for seed in (1, 1, 2))
    for result in (one, other, third):
        result.pop("host_seconds")
    assert one == other and one["table_sha256"] != third["table_sha256"]


def test_resident_needs_no_device(hotrow, log):
    code, result, _ = hotrow("train", "--trace", log, "--ids", "user,item", "--label", "click",
                             "--dense", "price", *SMALL, "--batch-size", 16, "--mode", "resident",
                             "--transport", "sim", "--epochs", 2, "--json")
    assert code == 0
    check_report(result, mode="resident")
    assert result["batches"] == 26 and result["table_hash_equal"] is True
    assert result["transport"] is None and result["device_cycles"] is None
    assert result["hit_rate"] is result["popular_fraction"] is None


@pytest.mark.slow
def test_evaluations_on_the_way(hotrow, log):
    _, result, _ = hotrow("train", "--trace", log, "--ids", "user,item", "--label", "click", *MODEL,
                          *SMALL, "--batch-size", 20, "--eval-every", 4, "--json")
    assert [entry["batch"] for entry in result["history"]] == [4, 8]
    assert all(0 < entry["loss"] < 5 for entry in result["history"])


@pytest.mark.slow
def test_slots_bound_the_hot_rows(hotrow, log):
    _, result, _ = hotrow("train", "--trace", log, "--ids", "user,item", "--label", "click", *MODEL,
                          *SMALL, "--batch-size", 20, "--slots", 3, "--json")
    assert result["hot_rows"] == 3


@pytest.mark.slow
def test_report_for_people(hotrow, log):
    code, shown, _ = hotrow("train", "--trace", log, "--ids", "user,item", "--label", "click",
                            *MODEL, *SMALL, "--batch-size", 20)
    assert code == 0
    for text in ("mode hotline", "recorded", "modelled cycles", "SPLIT", "GATHER",
                 "Projected, not measured", "made before the update", "check held"):
        assert text in shown, text


@pytest.mark.slow
def test_a_failed_check_is_the_exit_code(hotrow, log, monkeypatch):
    monkeypatch.setattr("hotrow.torch.store.host_tables.HostTables.write_after",
                        lambda self, event, group, cold, rows: None)
    code, shown, _ = hotrow("train", "--trace", log, "--ids", "user,item", "--label", "click",
                            *MODEL, *SMALL, "--batch-size", 20)
    assert code == 1 and "check FAILED" in shown


@pytest.mark.parametrize("changes, message", [
    (["--transport", "nowhere"], "unknown transport 'nowhere': expected one of those installed"),
    (["--preset", "nosuch"], "unknown preset 'nosuch': expected one of tiny, ecp5"),
    (["--mode", "nosuch"], "invalid choice: 'nosuch'"),
    (["--optimizer", "adam"], "invalid choice: 'adam'"),
    (["--ids", "user,shop"], "no column 'shop': there are click, user, item, price, visit"),
    (["--ids", "user,,item"], "expected names separated by commas"),
    (["--ids", "price"], "column 'price', line 2: expected an integer of 64 bits, not '0.5'"),
    (["--label", "price"], "column 'price', line 2: a label is 0 or 1, not '0.5'"),
    (["--label", "item"], "column 'item' is the label: leave it out of --ids"),
    (["--slots", "32769"], "--slots 32769 is 32,769 rows of 64 bytes, and the card's directory"),
    (["--slots", "0"], "expected an integer of at least 1, not '0'"),
    (["--hot-budget", "2MB", "--slots", "5"], "not allowed with argument"),
    (["--hot-budget", "some"], "expected bytes such as 512MB"),
    (["--dim", "10"], "choose a dim divisible by 4"),
    (["--dim", "512"], "2048 bytes: this card carries at most 1024"),
    (["--lr", "0"], "expected a number above 0, not '0'"),
    (["--batch-size", "200"], "needs at least 2, but .* gives 1 batch of 200"),
    (["--batches", "none"], "expected an integer of at least 1"),
])
def test_bad_input_is_one_line(hotrow, log, changes, message):
    arguments = {"--trace": log, "--ids": "user,item", "--label": "click", "--transport": "model",
                 "--batch-size": "20", "--mlp-scale": "0.1"}
    arguments |= dict(zip(changes[::2], changes[1::2], strict=True))
    expect_refusal(hotrow, [each for pair in arguments.items() for each in pair], message)


@pytest.mark.parametrize("content, message", [
    ("", "is empty"),
    ("click\tuser\titem\n", "is empty: it has a header and no rows"),
    ("click\tuser\titem\n0\t1\t-3\n", "column 'item', line 2: an id is at least 0, not '-3'"),
    (None, "no trace file"),
])
def test_bad_files_are_one_line(hotrow, tmp_path, content, message):
    path = tmp_path / "bad.tsv"
    if content is not None:
        path.write_text(content)
    expect_refusal(hotrow, ["--trace", path, "--ids", "user,item", "--label", "click", *MODEL],
                   message)


@pytest.mark.parametrize("options, message", [
    (["--timeline", "/nowhere/t.json"], "--timeline: .* there is no folder /nowhere; make it"),
    (["--mode", "scratchpipe", "--checkpoint", "/"], "/ cannot be written: it is a folder"),
    (["--checkpoint", "run.pt"], "--checkpoint is for modes scratchpipe .*: add --mode scratch"),
    (["--preset", "nosuch"], "unknown preset 'nosuch'"),
])
def test_options_are_refused_before_the_trace_is_read(hotrow, monkeypatch, options, message):
    monkeypatch.setattr("hotrow.torch.training.options.open_trace", None)
    expect_refusal(hotrow, ["--trace", "log.tsv", *options], message)


MISTAKES = (
    "train --mode wrong", "train --transport nosuch", "train --preset nosuch", "train --dim 5",
    "train --batch-size 1000000", "train --timeline /nowhere/t.json", "train --dim 400000000",
    "demo --trace nosuch", "demo --batch-size 1000000", "bench train --transport nosuch",
    "bench host --trace nosuch")
ANSWERED = """
import sys
from hotrow.command.cli import main
for line in sys.stdin.read().splitlines():
    try:
        code = main(line.split())
    except SystemExit as end:
        code = end.code
    print(line, code, "torch" in sys.modules)
"""


@pytest.mark.slow
def test_a_mistake_is_answered_before_pytorch_is_loaded():
    lines = [line if "--trace" in line else f"{line} --trace zipf:1.05" for line in MISTAKES]
    done = subprocess.run([sys.executable, "-c", ANSWERED], input="\n".join(lines),
                          capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{line} 2 False" for line in lines], done.stderr
    errors = done.stderr.splitlines()
    assert len(errors) == len(lines) and all(
        error.startswith("hotrow: error: ") for error in errors), done.stderr


def test_a_label_is_needed(hotrow, log):
    expect_refusal(hotrow, ["--trace", log, "--ids", "user", *MODEL], "with --label")


def test_a_batch_larger_than_the_card_takes(hotrow):
    expect_refusal(hotrow, ["--trace", "uniform:10", *MODEL, "--preset", "tiny", "--batch-size",
                            "2000", "--batches", "2", *SMALL],
                   "tiny takes at most 1,024 samples in a batch; --preset .* takes as")


def test_a_batch_is_refused_before_the_device_is_opened(hotrow, monkeypatch):
    monkeypatch.setattr("hotrow.device.open", None)
    expect_refusal(hotrow, ["--trace", "uniform:10", "--preset", "tiny", "--batch-size", "2000"],
                   "at most 1,024 samples")
    expect_refusal(hotrow, ["--trace", "criteo-shape", "--preset", "ecp5", "--batch-size",
                            "8000000"], "at most 2,048 samples")


@pytest.mark.parametrize("largest", [4_000_000_000, 4_294_967_295])
def test_ids_that_memory_cannot_hold(hotrow, log, largest):
    """They are refused before anything is allocated, and hashing serves them."""
    log.write_text(log.read_text() + f"1\t4\t{largest}\t3.5\t70\n")
    arguments = ["--trace", log, "--ids", "user,item", "--label", "click", *MODEL, *SMALL,
                 "--batch-size", 40]
    expect_refusal(hotrow, [*arguments, "--dim", 128],
                   f"column 'item' alone has {largest + 1:,} rows.*--hash-rows N")
    code, result, _ = hotrow("train", *arguments, "--hash-rows", 100, "--json")
    assert code == 0 and result["rows"] == 5 + max(29, largest % 100 + 1)


@pytest.mark.slow
def test_commas_separate_columns_as_tabs_do(hotrow, log, tmp_path):
    commas = tmp_path / "log.csv"
    commas.write_text(log.read_text().replace("\t", ","))
    found = [hotrow("train", "--trace", path, "--ids", "user,item", "--label", "click", *MODEL,
                    *SMALL, "--batch-size", 40, "--json")[1] for path in (log, commas)]
    assert found[0]["table_sha256"] == found[1]["table_sha256"]


def expect_refusal(hotrow, arguments, message):
    code, out, err = hotrow("train", *arguments)
    assert code == 2 and out == ""
    assert err.startswith("hotrow: error: ") and err.count("\n") == 1
    assert re.search(message, err), err


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_cold_rows_pooled_on_the_card(hotrow, log, optimizer):
    arguments = ["train", "--trace", log, "--ids", "user,item", "--dense", "price", "--label",
                 "click", *MODEL, *SMALL, "--batch-size", 16, "--optimizer", optimizer, "--slots",
                 8, "--bag", "visit", "--json", "--cold", "pooled"]
    code, result, _ = hotrow(*arguments, "--preset", "tiny")
    assert code == 0
    check_report(result)
    assert result["cold"] == "pooled"
    assert result["device_commands"]["POOL"]["commands"] == result["batches"]
    code, _, err = hotrow(*arguments, "--mode", "resident")
    assert code == 2 and "mode resident has no cold rows: leave --cold out" in err


@pytest.mark.slow
def test_tables_on_the_card(hotrow, log, tmp_path):
    arguments = ["train", "--trace", log, "--ids", "user,item", "--dense", "price", "--label",
                 "click", *MODEL, *SMALL, "--batch-size", 16, "--mode", "near_memory", "--bag",
                 "visit"]
    code, result, _ = hotrow(*arguments, "--json", "--transport", "model", "--preset", "tiny")
    assert code == 0 and result["check_held"] and result["table_hash_equal"]
    assert result["popular_fraction"] is None and result["link_bytes"]
    for name in ("POOL", "UPDATE"):
        assert result["device_commands"][name]["commands"] == result["batches"]
    code, _, err = hotrow(*arguments, "--transport", "cpu", "--timeline", tmp_path / "out.json")
    assert code == 2 and "near_memory uses no card on the transport cpu" in err


@pytest.mark.parametrize("mode", ["hotline", "scratchpipe"])
def test_timeline_of_a_run(hotrow, log, tmp_path, mode):
    """Commands of both queues, the link and the trainer; SPLIT and PLAN overlap no other step."""
    path = tmp_path / "out.json"
    code, result, _ = hotrow("train", "--trace", log, "--ids", "user,item", "--label", "click",
                             *MODEL, *SMALL, "--batch-size", 20, "--mode", mode, "--timeline", path,
                             "--json")
    events = json.loads(path.read_text())["traceEvents"]
    lanes = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert set(lanes.values()) == {"lookup queue", "move queue", "link", "trainer"}
    drawn = [(lanes[each["tid"]], each["name"]) for each in events if each["ph"] == "X"]
    assert code == 0
    steps = [name for lane, name in drawn if lane == "trainer"]
    assert steps == [f"batch {at}" for at in range(10)]
    for name in ("SPLIT", "GATHER") if mode == "hotline" else ("PLAN", "GATHER"):
        count = sum(each == name for lane, each in drawn if lane != "link")
        assert count >= result["device_commands"][name]["commands"] > 0


def test_a_timeline_needs_a_card(hotrow, log):
    expect_refusal(hotrow, ["--trace", log, "--ids", "user,item", "--label", "click", "--mode",
                            "resident", "--timeline", "out.json"], "uses no card")


@pytest.mark.parametrize("option", ["--timeline", "--checkpoint"])
def test_a_file_that_cannot_be_written_is_refused_first(hotrow, log, tmp_path, monkeypatch, option):
    monkeypatch.setattr("hotrow.device.open", None)
    for path, reason in (("/nowhere/out.json", "there is no folder /nowhere"),
                         (tmp_path, "it is a folder")):
        expect_refusal(hotrow, ["--trace", log, "--ids", "user,item", "--label", "click", "--mode",
                                "scratchpipe", "--batch-size", 20, option, path],
                       f"{path} cannot be written: {reason}")
