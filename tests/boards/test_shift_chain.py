"""The shift chain around a core connects every bit of every port."""

import random
import re
import shutil
import subprocess

import pytest

from benchmarks.synthesis.shift_chain import Port, ports, wrap

CORE = """\
module other(a);
  input a;
  wire a;
endmodule

module \\top.core (clk, rst, a, \\b$1 , y, z);
  input clk;
  wire clk;
  input rst;
  wire rst;
  input [2:0] a;
  wire [2:0] a;
  input \\b$1 ;
  wire \\b$1 ;
  output [3:0] y;
  reg [3:0] y = 4'h0;
  output z;
  wire z;
  assign z = a[2] & \\b$1 ;
  always @(posedge clk) if (rst) y <= 0; else y <= {\\b$1 , a};
endmodule
"""
TOP = "\\top.core"


def test_ports_are_those_of_the_module():
    assert ports(CORE, TOP) == [
        Port("input", 1, "clk"), Port("input", 1, "rst"), Port("input", 3, "a"),
        Port("input", 1, "\\b$1"), Port("output", 4, "y"), Port("output", 1, "z")]


def test_every_bit_is_connected_once():
    text = wrap(CORE, TOP)
    assert re.findall(r"\.(\S+) \((\w+)\[(\d+):(\d+)\]\)", text) == [
        ("a", "drive", "2", "0"), ("\\b$1", "drive", "3", "3"),
        ("y", "seen", "3", "0"), ("z", "seen", "4", "4")]
    assert ".clk(clk)" in text and ".rst(1'b0)" in text and ".GSR(~rst)" in text
    assert "reg [3:0] drive" in text and "wire [4:0] seen" in text


@pytest.mark.parametrize("text, top, message", [
    (CORE, "top", "no module 'top'"),
    (CORE, "other", "no output"),
    ("module m(q);\n  output q;\nendmodule\n", "m", "no input"),
])
def test_what_cannot_be_wrapped(text, top, message):
    with pytest.raises(ValueError, match=message):
        wrap(text, top)


@pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")
def test_a_bit_passes_every_input_and_every_output_reaches_the_pin(tmp_path):
    """The simulated chain equals a model in Python."""
    rng = random.Random(3)
    bits = [rng.randrange(2) for _ in range(60)]
    (tmp_path / "chain.v").write_text(CORE + wrap(CORE, TOP))
    (tmp_path / "bench.v").write_text(f"""\
module SGSR(input CLK, GSR);
endmodule
module bench;
  reg clk = 0, in; wire out; integer n; reg [0:59] bits = 60'b{''.join(map(str, bits))};
  shift_chain dut(.clk(clk), .rst(1'b0), .in(in), .out(out));
  initial begin
    dut.drive = 0; dut.held = 0; dut.chain = 0;
    for (n = 0; n < 60; n = n + 1) begin
      in = bits[n]; #1 clk = 1; #1 $display("%b", out); clk = 0;
    end
  end
endmodule
""")
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "chain.v", "bench.v"], cwd=tmp_path,
                   check=True)
    said = subprocess.run(["vvp", "bench"], cwd=tmp_path, check=True, capture_output=True,
                          text=True).stdout.split()
    drive, y, held, chain, want = 0, 0, 0, 0, []
    for bit in bits:
        z = drive >> 2 & drive >> 3 & 1
        drive, y, held, chain = (
            (drive << 1 | bit) & 15, drive, y | z << 4, held ^ (chain << 1 & 31))
        want.append(str(chain >> 4))
    assert said == want and "1" in want
