"""`hotrow bench area`: small designs with known resources and depths, and the widest card."""

import json

import pytest
from hotrow.command import cli
from hotrow_rtl.config import preset
from hotrow_rtl.primitives.ram import RAM_VERILOG

from benchmarks.synthesis import area_cli
from benchmarks.synthesis.depth import deepest
from benchmarks.synthesis.xilinx import DEVICES, by_unit, map_modules, resources, total
from tests.boards.real_tools import real_tool

# Two stages with two links between them, of more inputs than a LUT has, and a memory.
DESIGN = """\
module stage(input clk, input [5:0] a, input c, output reg q);
  always @(posedge clk) q <= ^a ^ c;
endmodule
module store(input clk, input write, input [11:0] at, input [71:0] in, output [71:0] out);
  hotrow_ram #(.WIDTH(72), .DEPTH(4096), .ADDRESS(12), .PARTS(8)) rows(
    .clk(clk), .write_enable({8{write}}), .write_address(at), .write_data(in), .read_enable(1'b1),
    .read_clear(1'b0), .read_address(at), .read_data(out));
endmodule
module link(input a, input [5:0] b, output y);
  assign y = a ^ (b[0] & b[1] | b[2] & b[3] | b[4] & b[5]);
endmodule
module hotrow(input clk, input [35:0] a, input write, output [1:0] q, output [71:0] out);
  wire first, last;
  reg [35:0] held;
  always @(posedge clk) held <= a;
  stage stage_0(clk, held[5:0], 1'b0, q[0]);
  link link_0(q[0], held[11:6], first);
  link link_1(first, held[17:12], last);
  stage stage_1(clk, held[23:18], last, q[1]);
  store store_0(clk, write, held[11:0], {held, held}, out);
endmodule
"""


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    real_tool("yosys")
    return map_modules(DESIGN + RAM_VERILOG, "hotrow", tmp_path_factory.mktemp("area"),
                       DEVICES["xcu55c"])


@pytest.mark.long
def test_resources_by_unit(mapped):
    found = resources(mapped, "hotrow")
    assert total(found) == {"luts": pytest.approx(10, abs=3), "ffs": 38, "bram": 0, "uram": 1,
                            "dsp": 0}
    units = by_unit(found, depth=1)
    assert set(units) == {"", "stage_", "link_", "store_"}
    assert units["stage_"]["ffs"] == 2 and units["store_"]["uram"] == 1


@pytest.mark.long
def test_luts_of_a_memory(tmp_path):
    """Small memories take LUTs for their rows, six bits of 32 rows in four, and no others."""
    real_tool("yosys")
    store = DESIGN[DESIGN.index("module store"):DESIGN.index("module link")]
    for large, small in (("4096", "32"), ("(12)", "(5)"), ("[11:0]", "[4:0]"), ("(8)", "(1)"),
                         ("{8{write}}", "write")):
        store = store.replace(large, small)
    found = resources(map_modules(store + RAM_VERILOG, "store", tmp_path, DEVICES["xc7a200t"]),
                      "store")
    assert total(found) == {"luts": 4 * 72 // 6, "ffs": 72, "bram": 0, "uram": 0, "dsp": 0}


@pytest.mark.long
def test_depth_across_modules(mapped):
    """Through both links to the second stage; a unit appears once."""
    first, *others = deepest(mapped, "hotrow")
    assert first["from"].startswith("held[") and first["to"] == "stage_1.q"
    assert 4 <= first["levels"] <= 6
    assert all(path["levels"] <= first["levels"] for path in others)
    assert not any(path["to"].startswith("stage_") for path in others)


def _cell(kind, inputs, outputs, **pins):
    return {"type": kind, "connections": {name: bits for name, bits in pins.items()},
            "port_directions": {**dict.fromkeys(inputs, "input"),
                                **dict.fromkeys(outputs, "output")}}


def _module(cells, names=()):
    return {"ports": {}, "cells": cells, "netnames": {
        name: {"bits": [bit], "hide_name": 0} for name, bit in names}}


def test_levels_of_cells():
    """A carry chain is one level however long, a LUT one; a constant none."""
    register = [("D", "C"), ("Q",)]
    cells = {"begin": _cell("FDRE", *register, D=["0"], Q=[2]),
             "low": _cell("CARRY4", ("CI", "S"), ("CO",), CI=["0"], S=[2, "0", "0", "0"],
                          CO=[3, 4, 5, 6]),
             "high": _cell("CARRY4", ("CI", "S"), ("O",), CI=[6], S=["0"] * 4, O=[7, 8, 9, 10]),
             "lut": _cell("LUT2", ("I0", "I1"), ("O",), I0=[10], I1=["1"], O=[11]),
             "end": _cell("FDRE", *register, D=[11], Q=[12])}
    modules = {"top": _module(cells, [("a", 2), ("b", 12)])}
    assert deepest(modules, "top") == [{"levels": 2, "from": "a", "to": "b"}]
    cells["lut"]["connections"]["I1"] = [11]
    with pytest.raises(ValueError, match="has a cycle"):
        deepest(modules, "top")


def test_a_port_without_a_connection():
    inner = {"ports": {"a": {"bits": [2]}, "open": {"bits": [3]}}, "netnames": {}, "cells": {
        "lut": _cell("LUT2", ("I0",), ("O",), I0=[2], O=[3])}}
    outer = _module({"begin": _cell("FDRE", ("D", "C"), ("Q",), D=[4], Q=[4]),
                     "inner": {"type": "inner", "connections": {"a": [4], "open": []}}})
    assert deepest({"inner": inner, "top": outer}, "top")[0]["levels"] == 0


def test_an_unknown_cell():
    modules = {"top": _module({"odd": _cell("SRL16E", (), ())})}
    with pytest.raises(ValueError, match="top has a cell of unknown kind SRL16E, odd"):
        resources(modules, "top")


@pytest.fixture
def area(capsys):
    """Run `hotrow bench area`: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = cli.main(["bench", "area", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


@pytest.mark.parametrize("urams, refused", [(9, None), (961, "takes 961 uram of 960")])
def test_the_command(area, monkeypatch, urams, refused):
    cells = {**{str(number): _cell("URAM288", (), ()) for number in range(urams)},
             **{f"lut{number}": _cell("LUT6", (), (), O=[number]) for number in range(2000)},
             "begin": _cell("FDRE", (), (), D=[2], Q=[3]),
             "half": _cell("RAMB18E2", (), ())}
    monkeypatch.setattr("hotrow_rtl.emit.verilog.emit", lambda config: "")
    monkeypatch.setattr(area_cli, "map_modules", lambda verilog, top, folder, device: {
        top: _module({"bank7": {"type": "bank", "connections": {}}}), "bank": _module(cells)})
    code, shown, err = area("--preset", "tiny")
    if refused:
        assert code == 2 and refused in err
        return
    assert code == 0 and "by Yosys, not placed" in shown and "UltraRAM: bank 9" in shown
    assert [line.split() for line in shown.splitlines() if line.startswith("bank ")] == [
        ["bank", "2,000", "1", "0.5", "9", "0"]]
    assert area("--preset", "tiny", "--json")[1]["units"]["bank"]["uram"] == 9


@pytest.mark.route
@pytest.mark.timeout(3600)
def test_the_widest_card(area):
    """Counters, credits and directory are UltraRAM, and every resource suffices."""
    real_tool("yosys")
    result, c, capacity = area("--json")[1], preset("alveo-u55c"), DEVICES["xcu55c"].capacity
    assert all(0 < result[name] < room for name, room in capacity.items())
    assert result["luts"] < capacity["luts"] * 0.55 and result["uram"] == 608
    urams = {name: used["uram"] for name, used in result["urams"].items()}
    assert urams == {"engines.bank.counters.sets": 10 * c.banks,
                     "engines.bank.counters.credits": 2 * c.banks,
                     "engines.bank.slots.choice": 7 * c.banks}
    assert len(result["paths"]) == 10 and result["paths"][0]["levels"] <= 12


@pytest.mark.route
@pytest.mark.timeout(3600)
def test_the_card_on_pci_express(area):
    """Core and bridge have units of their own, and fit an Artix-7 with room for a controller."""
    real_tool("yosys")
    result, capacity = area("--device", "xc7a200t", "--json")[1], DEVICES["xc7a200t"].capacity
    assert result["preset"] == "ecp5" and result["device"] == "XC7A200T" and not result["uram"]
    assert all(0 < result[name] < 0.8 * room for name, room in capacity.items() if room)
    assert any(unit.startswith("bridge.") for unit in result["units"])
    assert any(unit.startswith("core.") for unit in result["units"])
