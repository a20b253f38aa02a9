"""Units that stand alone: their files, their parameters, and what is refused."""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out
from hotrow_rtl import cli
from hotrow_rtl.config import preset
from hotrow_rtl.emit.component import to_verilog
from hotrow_rtl.export.fusesoc import fusesoc_files
from hotrow_rtl.primitives.ram import RAM_MODULE, RAM_VERILOG
from hotrow_rtl.units.catalog import UNITS, unit

from tests.support.unit_files import CASES, files_of


def generate(*arguments):
    parser = argparse.ArgumentParser()
    cli.generate(parser.add_subparsers(required=True))
    options = parser.parse_args(["generate", *map(str, arguments)])
    return options.run(options)


@pytest.fixture(scope="module", params=UNITS)
def made(request):
    """(Unit, its files, their content as described)."""
    files = files_of(request.param, CASES[request.param][0])
    chosen = unit(request.param)
    return chosen, files, json.loads(files[f"{chosen.module}.json"])


@pytest.mark.slow
def test_files_of_a_unit(made):
    """The header has the ports that the JSON file and the page list; fields do not overlap."""
    chosen, files, described = made
    assert set(files) == {f"{chosen.module}.{ending}" for ending in ("v", "vlt", "json", "md")}
    text = files[f"{chosen.module}.v"]
    header = re.search(rf"^module {chosen.module}\(([^;]*)\);(.*?)^endmodule", text, re.M | re.S)
    found = {name: (direction, int(high or 0) + 1) for direction, high, name in re.findall(
        r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", header[2], re.M)}
    assert found == {port["name"]: (port["direction"], port["bits"])
                     for port in described["ports"]}
    assert set(re.findall(r"\w+", header[1])) == set(found)
    for port in described["ports"]:
        assert f"`{port['name']}`" in files[f"{chosen.module}.md"]
        ends = 0
        for field in port["fields"]:
            # Operands of different commands share bits.
            assert field["offset"] >= ends or port["name"] == "commands_payload", (
                f"{port['name']}: {field['name']} overlaps")
            ends = field["offset"] + field["bits"]
        assert ends <= port["bits"]
    assert text.count(f"module {RAM_MODULE} ") == 1
    assert not re.search(r"\.py\b", text) and "[-1:0]" not in text and "always @*" not in text
    assert "synopsys" not in text, "Yosys warns of comments with parallel_case"


@pytest.mark.slow
def test_lint_is_silent(made, tmp_path):
    """With the waivers. Without them, Verilator has messages."""
    toolchain = pytest.importorskip("hotrow_sim.toolchain")
    try:
        verilator = toolchain.find_verilator()
    except toolchain.ToolMissing as missing:
        pytest.skip(str(missing))
    chosen, files, _ = made
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def lint(*endings):
        return subprocess.run(
            [verilator.program, "--lint-only", "-Wall", "--top-module", chosen.module,
             *(f"{chosen.module}.{ending}" for ending in endings)], cwd=tmp_path,
            env=verilator.environment(), capture_output=True, text=True)

    done = lint("vlt", "v")
    assert not done.returncode and "%" not in done.stdout + done.stderr, done.stderr[:2000]
    if chosen.name == "counters":
        assert "%Warning" in lint("v").stderr


@pytest.mark.slow
def test_fusesoc(made, tmp_path):
    """FuseSoC runs the targets of counters; for the others, Icarus runs the bench of `sim`."""
    chosen, files, described = made
    files = files | fusesoc_files("units", chosen.name, chosen.module, f"{chosen.module}.v",
                                  described["ports"])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    here, top = os.path.dirname(sys.executable), f"{chosen.module}_smoke"
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not installed")

    def run(*command, environment=os.environ):
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True,
            env={**environment, "PATH": os.pathsep.join((here, environment["PATH"]))})
        return done.returncode, done.stdout + done.stderr

    if chosen.name == "counters":
        pytest.importorskip("fusesoc", reason="pip install 'hotrow[packages]'")
        environment = pytest.importorskip("hotrow_sim.toolchain").find_verilator().environment()
        for target in ("lint", "sim"):
            code, said = run("fusesoc", "--cores-root", ".", "run", f"--target={target}",
                             "hotrow:units:counters", environment=environment)
            assert not code and "%Warning" not in said, said[-2000:]
    else:
        code, said = run("iverilog", "-g2012", "-o", "bench", f"{top}.v", f"{chosen.module}.v")
        assert not code, said[-2000:]
        code, said = run("vvp", "-n", "bench")
    assert f"{chosen.module}: ready after" in said and not code, said[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("name", UNITS)
def test_same_bytes_in_another_process(name, case):
    files = files_of(name, CASES[name][case])
    program = ("import hashlib; from hotrow_rtl.emit.unit import unit_files; "
               "from hotrow_rtl.units.catalog import unit; "
               f"chosen = unit({name!r}); "
               f"files, _ = unit_files(chosen, chosen.config({CASES[name][case]!r})); "
               "print(hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          cwd="/", env={**os.environ, "PYTHONHASHSEED": "12345"}, check=True)
    assert done.stdout.strip() == hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


@pytest.mark.parametrize("name", UNITS)
def test_every_parameter_may_be_set(name):
    """To its default; the other parameters of a Config are refused with the choices."""
    chosen = unit(name)
    assert chosen.config({key: str(value) for key, value in chosen.describe(
        chosen.base).items()}) == chosen.base
    with pytest.raises(ValueError, match=rf"the unit {name} has no parameter 'name': expected one "
                                         f"of {', '.join(chosen.parameters)}"):
        chosen.config({"name": "mine"})


@pytest.mark.parametrize("name, lanes", [
    (name, lanes) for name, each in UNITS.items() for lanes in each.lanes
    if "lanes" in each.parameters])
def test_every_number_of_lanes(name, lanes):
    assert unit(name).config({"lanes": str(lanes)}).lanes == lanes


@pytest.mark.parametrize("arguments, message", [
    (["--unit", "counter"], "unknown unit 'counter': expected one of counters"),
    (["--unit", "counters", "--set", "lanes"], "--set lanes: expected NAME=VALUE"),
    (["--unit", "counters", "--set", "lanes=3"], "lanes must be 1, 2, 4, 8 or 16, not 3"),
    (["--unit", "counters", "--set", "lanes=two"], "lanes must be a whole number, not 'two'"),
    (["--unit", "counters", "--set", "lanes=2", "--set", "lanes=4"], "--set lanes is given twice"),
    (["--unit", "counters", "--set", "counter_sets=100"], "counter_sets must be a power of two"),
    (["--unit", "counters", "--set", "counter_ways=1"], "counter_ways must be 2 to 64, not 1"),
    (["--unit", "counters", "--set", "row_ports=2"], "has no parameter 'row_ports'.*counter_ways"),
    (["--unit", "row_mover", "--set", "lanes=1", "--set", "row_ports=2"], "row_ports must be 1"),
    (["--unit", "bridge", "--set", "lanes=8"], "lanes must be 2 or 4"),
    (["--unit", "pooling", "--set", "lanes=8"], "has no parameter 'lanes'.*arithmetic_lanes"),
    (["--unit", "counters", "--format", "xrt"], "--format xrt is for a card"),
    (["--preset", "tiny", "--set", "lane=4"], "a card has no parameter 'lane'.*counter_sets"),
    (["--preset", "tiny", "--set", "planner=maybe"], "planner must be true or false, not 'maybe'"),
])
def test_what_is_refused(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        generate(*arguments, "-o", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_variant_of_a_card():
    config = cli.variant("tiny", {"lanes": "2", "planner": "False", "counter_sets": "0x80",
                                  "row_ports": "1", "burst_beats": "8"})
    assert (config.lanes, config.planner, config.counter_sets) == (2, False, 128)
    assert config.name == "tiny-variant" and cli.variant("tiny", {}) == preset("tiny")
    assert cli.variant("tiny", {"name": "mine"}).name == "mine"
    assert unit("counters").config({"lanes": 1}).banks == 1


@pytest.mark.slow
def test_generate_a_unit(tmp_path, capsys):
    assert generate("--unit", "counters", "--set", "lanes=1", "--set", "counter_sets=16",
                    "-o", tmp_path) == 0
    said = capsys.readouterr().out
    assert all(str(tmp_path / path.name) in said for path in tmp_path.iterdir())
    assert "lanes 1" in said and "counter_sets 16" in said
    assert json.loads((tmp_path / "hotrow_counters.json").read_text())["parameters"][
        "counter_sets"] == 16


class Constant(wiring.Component):
    """A stream that is always ready, and no memory."""

    o: Out(stream.Signature(8, always_ready=True))

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.payload.eq(self.o.payload + 1)
        return m


def test_constants_are_no_ports_and_no_memory_is_added():
    text = to_verilog(Constant(), "unit")
    ports = re.search(r"^module unit\((.*)\);", text, re.M)[1].split(", ")
    assert sorted(ports) == ["clk", "o__payload", "o__valid", "rst"]
    assert RAM_MODULE not in text and f"module {RAM_MODULE}" in RAM_VERILOG
