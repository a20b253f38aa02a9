"""Verdicts over the number of free cores, and the placements that they compare."""

import json
from pathlib import Path

import pytest
from hotrow.command.cli import main
from hotrow_explore import cards, constants, sensitivity, systems, workloads
from hotrow_explore.placements import (
    PLACEMENTS,
    DoesNotFit,
    Question,
    near_memory,
    scratchpipe,
    software,
)
from hotrow_explore.report import hangs_on, verdict_markdown
from hotrow_explore.sweeps import cores_replaced, fastest, recommend, verdicts

KNOWN, CARD = constants.load(), cards.find("alveo-u55c")
BAGS, KAGGLE = workloads.find("bags-of-80"), workloads.find("criteo-kaggle")


def question(work=BAGS, system="cpu-server", gpus=None, **values):
    machine = systems.find(system)
    return Question(work, machine if gpus is None else machine.changed(gpus=gpus),
                    KNOWN.replaced(**values), card=CARD)


def test_pooled_rows_by_hand():
    """26 tables of bags of 80 at batch 2048: 4.26 million rows of 16 elements, one a cycle."""
    parts = near_memory(question()).parts
    lookups = 2048 * 26 * 80
    assert parts["pool"] == pytest.approx(lookups / 250e6)
    unique = question().count(0).unique
    assert parts["update"] == pytest.approx((lookups + unique) / 250e6)
    assert parts["lists"] == pytest.approx((8 * lookups + 10 * unique) / 14.4e9)
    assert parts["host lists"] == pytest.approx(KNOWN.near_step_ns * 1e-9 * lookups)
    with pytest.raises(DoesNotFit, match=r"the card's memory: needs 41.0 GB, 13.6 usable"):
        near_memory(question(workloads.find("scratchpipe")))


def test_the_software_cache_needs_cores_and_the_card_none():
    work = workloads.find("scratchpipe")
    free = question(work, "v100", driver_us=0, driver_ns=0)
    few = Question(work, free.system.changed(cores=2), free.constants, card=CARD)
    assert software(few).seconds > 5 * software(free).seconds
    assert scratchpipe(few).seconds == scratchpipe(free).seconds
    slow = question(work, "v100", driver_us=1e6)
    assert scratchpipe(slow).seconds == pytest.approx(1, rel=0.05)
    assert software(slow).seconds == scratchpipe(slow).seconds


@pytest.mark.slow
@pytest.mark.parametrize("system, kinds", [
    ("cpu-server", ["card", "software"]), ("ps-fleet", ["neither", "neither"]),
    ("v100", ["neither", "neither"])])
def test_the_verdict_depends_on_the_free_cores(system, kinds):
    record, = verdicts([question(system=system)], (2, None))
    assert [answer["kind"] for answer in record["by_free_cores"].values()] == kinds


def test_cores_that_a_card_replaces():
    """With that many cores the host is as fast, with one less it is not."""
    server = question()
    card = fastest(server, ("near-memory",))
    replaced = cores_replaced(server, card)
    assert 1 < replaced < 40

    def host(cores):
        few = Question(BAGS, server.system.with_free_cores(cores), KNOWN, card=CARD)
        return fastest(few, ("cpu", "resident")).seconds
    assert host(replaced) <= card.seconds < host(replaced - 1)
    slow = question(kernel_parallel=0.02)
    assert cores_replaced(slow, near_memory(slow)) is None


def test_the_dense_part_has_the_free_cores_alone():
    """Where the host trains, its FLOP/s follow its free cores; parameter servers keep theirs."""
    whole = question(KAGGLE, "ps-fleet")
    few = Question(KAGGLE, whole.system.with_free_cores(4), KNOWN)
    assert few.machine.cpu_dense()["dense"] > 5 * whole.machine.cpu_dense()["dense"]
    parts, all_parts = (PLACEMENTS["parameter-servers"](each).parts for each in (few, whole))
    assert parts["update"] == all_parts["update"]
    assert PLACEMENTS["cpu"](few).parts["update"] == pytest.approx(
        10 * PLACEMENTS["cpu"](whole).parts["update"])


def test_each_library_has_costs_of_its_own():
    """Updates by hand on 40 cores of half speed: FBGEMM's, hotrow's, and PyTorch's fitted share."""
    costs = {"cpu": (11 + 0.51 * 64) / 0.5, "resident": (14 + 0.34 * 64) / 0.5}
    for name, cost in costs.items():
        assert PLACEMENTS[name](question(KAGGLE)).parts["update"] == pytest.approx(
            1e-9 * KAGGLE.step_lookups * cost / (40 * 0.5))
    bags = Question(KAGGLE, systems.find("cpu-server"), KNOWN, framework="pytorch")
    assert PLACEMENTS["cpu"](bags).parts["update"] == pytest.approx(
        1e-9 * KAGGLE.step_lookups * (50 + 0.63 * 64) / (40 * 0.5 * 0.154))


def test_hotrow_needs_no_gpu():
    """On a server without one, its kernels on tables in memory are a placement."""
    answer = recommend(question(workloads.find("m1")))
    assert answer["kind"] == "software" and answer["without_card"] == "resident"
    on_gpu = PLACEMENTS["resident"](question(KAGGLE, "v100")).parts
    assert {"link", "host operators"} <= set(on_gpu) or on_gpu["dense"] > 0


def test_software_is_a_verdict_of_its_own():
    work = workloads.find("scratchpipe")
    quick = question(work, "v100", driver_us=0, driver_ns=0, zero_copy_fraction=0.1)
    answer = recommend(quick)
    assert answer["kind"] == "software" and answer["without_card"] == "software"
    assert answer["cores_replaced"] is not None


@pytest.mark.parametrize("name", ["managed-memory", "static-cache", "fae", "frequency-cache",
                                  "prefetching-cache", "software", "hotline", "scratchpipe"])
def test_copies_of_hot_rows_exchange_gradients(name):
    """Every cache holds the hot rows in each of the GPUs, which must stay equal."""
    def exchanged(gpus):
        parts = PLACEMENTS[name](question(KAGGLE, "zion", gpus)).parts
        return sum(seconds for part, seconds in parts.items() if "replicas" in part)
    assert exchanged(8) > exchanged(4) > exchanged(1) == 0


def test_one_gpu_may_train_alone():
    """Zion's GPUs exchange gradients through the host, which takes longer than this step."""
    zion = systems.find("zion").with_free_cores(8)
    answer = recommend(Question(KAGGLE, zion, KNOWN, card=CARD))
    assert answer["without_card"] == "gpu-tables on one GPU" and answer["kind"] == "neither"
    assert answer["seconds"] == PLACEMENTS["gpu-tables"](question(KAGGLE, "zion", gpus=1)).seconds


@pytest.mark.slow
def test_a_constant_that_decides_a_verdict_is_named():
    """At both ends of its range the verdict is that of `recommend`, and others change nothing."""
    asked = [question(), question(KAGGLE, "v100")]
    moved = sensitivity.sensitivity(asked, KNOWN)
    assert "kernel_parallel" in moved["flips"][0] and not moved["flips"][1]
    nominal = recommend(asked[0])["kind"]
    for name, value, known in sensitivity.turned(KNOWN):
        kind = recommend(Question(BAGS, asked[0].system, known, card=CARD))["kind"]
        assert moved["flips"][0].get(name, {}).get(value, nominal) == kind, (name, value)
    assert moved["counts"]["software"]["with"]["kernel_parallel"]["counts"] == [0, 1]
    assert "0 to 1 over the range of the assumed" in hangs_on(moved["counts"]["software"])


def test_every_assumption_has_a_range():
    for name, each in KNOWN.documented.items():
        if each.within:
            assert each.within[0] <= each.value <= each.within[1], name
        else:
            assert each.kind not in ("assumed", "fitted") or name in (
                "usable_memory", "worthwhile_gain", "static_cache_share"), name


@pytest.mark.long
def test_the_map_is_the_page_of_the_documents(capsys, tmp_path):
    """`hotrow explore --map -o docs/images > docs/verdicts.md` renders it, and its counts name what
    they hang on."""
    assert main(["explore", "--map", "--json", "-o", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out)
    records = result["verdicts"]
    assert len(records) == len(workloads.load()) * len(systems.load())
    assert {answer["kind"] for record in records
            for answer in record["by_free_cores"].values()} <= {"card", "software", "neither"}
    docs = Path(__file__).parents[2] / "docs"
    assert (docs / "verdicts.md").read_text() == verdict_markdown(result)
    kinds = [each["kind"] for record in records for each in record["by_free_cores"].values()]
    for kind, count in result["sensitivity"].items():
        assert count["value"] == kinds.count(kind)
    front = (docs.parent / "README.md").read_text()
    for kind, row in (("card", "a card"), ("software", "hotrow's software")):
        count = result["sensitivity"][kind]
        line = front.partition(f"\n| {row} | {count['value']} |")[2].partition("\n")[0]
        assert line, f"README.md needs a row: {row} | {count['value']}"
        for name, each in count["with"].items():  # what halves or doubles a headline
            low, high = each["counts"]
            assert each["kind"] not in ("assumed", "fitted") or (
                2 * low > count["value"] and high < 1.5 * count["value"]) or (
                f"`{name}`" in line and f"{low} to {high}" in line), (row, name)
    misfits = [record for record in records for each in record["by_free_cores"].values()
               if each["seconds"] is None]
    for record in misfits:  # no disk would serve it
        work, system = workloads.find(record["workload"]), systems.find(record["system"])
        assert work.table_bytes > KNOWN.usable_memory * system.disk_gb * 1e9
    drawn = (tmp_path / "verdicts.svg").read_text()
    assert (docs / "images" / "verdicts.svg").read_text() == drawn
    bars = {kind: drawn.split(f'class="{kind}" d="')[1].split('"')[0].count("M") - 1
            for kind in ("card", "software", "neither", "misfit")}  # without the legend's
    answers = [each for record in records for each in record["by_free_cores"].values()]
    assert sum(bars.values()) == len(answers)
    assert bars["card"] == sum(each["kind"] == "card" for each in answers)
    assert bars["misfit"] == sum(each["seconds"] is None for each in answers)
