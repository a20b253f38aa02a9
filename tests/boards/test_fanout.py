"""Nets of many loads become several of few, and the netlist does what it did."""

import json
from collections import Counter

import pytest
from hotrow_boards.fanout import divide_nets
from hotrow_boards.tools import run

from tests.boards.real_tools import real_tool

MOST = 8
# An enable from logic and one from a register, a register that feeds itself, and a clear.
DESIGN = """\
module dut(input clk, input clear, input [39:0] d, input [2:0] go, output reg [39:0] q,
           output reg [39:0] r, output reg turn);
  wire enable = go[0] & (go[1] | turn);
  always @(posedge clk) begin
    turn <= clear ? 1'b0 : turn ^ go[2];
    if (clear) q <= 0; else if (enable) q <= d;
    if (turn) r <= q ^ d;
  end
endmodule
"""


def loads(module):
    """Inputs that each net drives, clocks left out."""
    found = Counter()
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input" and port != "CLK":
                found.update(bit for bit in bits if isinstance(bit, int))
    return found


def cell(kind, inputs, output):
    port = {"LUT4": "Z", "TRELLIS_FF": "Q"}[kind]
    return {"type": kind, "parameters": {}, "attributes": {},
            "port_directions": {**dict.fromkeys(inputs, "input"), port: "output"},
            "connections": {**{name: [bit] for name, bit in inputs.items()}, port: [output]}}


def test_neighbours_share_a_driver():
    """20 flip-flops of each of two units, whose names alternate in the netlist."""
    cells = {"driver": cell("LUT4", {"A": 2, "B": 3}, 10)}
    names = {"go": {"bits": [10]}}
    for number in range(40):
        unit = "ab"[number % 2]
        cells[f"ff{number}"] = cell("TRELLIS_FF", {"CLK": 4, "CE": 10}, 100 + number)
        names[f"{unit}.q{number:02}"] = {"bits": [100 + number]}
    module = {"cells": cells, "netnames": names}
    assert divide_nets(module, 20) == 1
    enables = {unit: {cells[f"ff{number}"]["connections"]["CE"][0]
                      for number in range(40) if "ab"[number % 2] == unit} for unit in "ab"}
    assert enables["a"] == {10} and len(enables["b"]) == 1 and enables["b"] != {10}
    [copy] = cells.keys() - {"driver"} - {f"ff{number}" for number in range(40)}
    assert {port: bits for port, bits in cells[copy]["connections"].items() if port != "Z"} == {
        "A": [2], "B": [3]}
    assert loads(module) == {2: 2, 3: 2, 10: 20, cells[copy]["connections"]["Z"][0]: 20}


@pytest.mark.parametrize("kind", ["pin", "clock", "memory", "reset", "pad"])
def test_what_is_left_alone(kind):
    """Nets of an input, of the clock network, of a cell that must not be there twice, of an
    asynchronous reset, and of cells at pins, which share their resets."""
    port = "CLK" if kind == "clock" else "CE"
    cells = {f"ff{number}": cell("TRELLIS_FF", {port: 10}, 100 + number) for number in range(40)}
    if kind != "pin":
        cells["driver"] = cell("LUT4", {"A": 2}, 10)
    if kind == "memory":
        cells["driver"]["type"] = "DP16KD"
    if kind == "reset":
        cells["driver"] = cell("TRELLIS_FF", {"CLK": 3, "DI": 2}, 10)
        cells["driver"]["parameters"]["SRMODE"] = "ASYNC"
    if kind == "pad":
        cells["ff7"]["type"] = "IOLOGIC"
    module = {"cells": cells, "netnames": {}}
    before = json.dumps(module)
    assert divide_nets(module, MOST) == 0 and json.dumps(module) == before


def test_the_netlist_does_what_it_did(tmp_path):
    """Proved by Yosys for the first 8 cycles from registers at zero."""
    yosys = real_tool("yosys")
    (tmp_path / "dut.v").write_text(DESIGN)
    run([yosys, "-q", "-p", "read_verilog dut.v; synth_ecp5 -top dut -json netlist.json"],
        tmp_path, "synthesis.log")
    netlist = json.loads((tmp_path / "netlist.json").read_text())
    netlist["modules"] = {"gold": netlist["modules"]["dut"]}
    (tmp_path / "gold.json").write_text(json.dumps(netlist))
    module = netlist["modules"].pop("gold")
    netlist["modules"]["gate"] = module
    assert max(loads(module).values()) > 40
    added = divide_nets(module, MOST)
    assert added >= 2 * (40 // MOST - 1)  # the enable's and the register's, at least
    pins = {bit for port in module["ports"].values() if port["direction"] == "input"
            for bit in port["bits"]}
    assert all(count <= MOST for bit, count in loads(module).items() if bit not in pins)
    (tmp_path / "gate.json").write_text(json.dumps(netlist))
    prove = ("read_json gold.json; read_json gate.json; "
             "read_verilog -DNO_INCLUDES +/ecp5/cells_sim.v; miter -equiv gold gate miter; "
             "hierarchy -top miter; proc; flatten; opt_clean; "
             "sat -seq 8 -set-init-zero -prove trigger 0 -verify miter")
    run([yosys, "-q", "-p", prove], tmp_path, "equal.log")
    # The same finds a difference where there is one, in a single copy.
    copy = next(name for name in module["cells"] if "$load" in name
                and module["cells"][name]["type"] == "LUT4")
    table = module["cells"][copy]["parameters"]["INIT"]
    module["cells"][copy]["parameters"]["INIT"] = table.translate(str.maketrans("01", "10"))
    (tmp_path / "gate.json").write_text(json.dumps(netlist))
    with pytest.raises(ValueError, match="proof did fail"):
        run([yosys, "-q", "-p", prove], tmp_path, "unequal.log")
