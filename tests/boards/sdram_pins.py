"""A simulation of an SDR DRAM's controller at its pins: the cells of its PHY, and the chip."""

import re

# Delays in ns, as slow as the pins of the slowest speed grade and the chip can be.
CELLS = """\
module OFS1P3BX(input D, SP, SCLK, PD, output reg Q);
  always @(posedge SCLK) Q <= #6 D;
endmodule
module IFS1P3BX(input D, SP, SCLK, PD, output reg Q);
  always @(posedge SCLK) Q <= D;
endmodule
module FD1S3BX(input D, CK, PD, output reg Q = 1);
  always @(posedge CK) Q <= D;
endmodule
module ODDRX1F(input D0, D1, SCLK, RST, output Q);
  assign #6 Q = SCLK ? D0 : D1;
endmodule
module TRELLIS_IO #(parameter DIR = "") (inout B, input I, T, output O);
  assign B = T ? 1'bz : I;
  assign O = B;
endmodule
"""

# Rows 0 to 3 and the last bits of a row's number are kept, all columns and banks.
CHIP = """\
module chip(
  input clk, cke, cs_n, ras_n, cas_n, we_n, input [1:0] ba, dm, input [12:0] a, inout [15:0] dq
);
  reg [15:0] cells [(1 << 16) - 1:0];
  reg [12:0] rows [3:0];
  reg [3:0] open = 0;
  reg [15:0] out = 16'hzzzz, read;
  reg reading = 0, awake = 0;
  integer refreshes = 0;
  wire [15:0] at = {ba, rows[ba][12:11], rows[ba][2:0], a[8:0]};
  assign dq = out;
  always @(posedge clk) begin
    out <= #2.5 reading ? 16'hxxxx : 16'hzzzz;
    out <= #6 reading ? read : 16'hzzzz;
    reading <= 0;
    if (cke && !cs_n) case ({ras_n, cas_n, we_n})
      3'b011: begin rows[ba] <= a; open[ba] <= 1; end
      3'b010: if (a[10]) open <= 0; else open[ba] <= 0;
      3'b001: begin refreshes <= refreshes + 1; if (open) $display("FAILED: refresh"); end
      3'b000: begin
        awake <= 1;
        if (a[6:4] != 2 || a[2:0]) $display("FAILED: mode %b", a);
      end
      3'b101, 3'b100: begin
        if (!awake || !open[ba]) $display("FAILED: a closed bank");
        if (we_n) begin read <= cells[at]; reading <= 1; end
        else begin
          if (!dm[0]) cells[at][7:0] <= dq[7:0];
          if (!dm[1]) cells[at][15:8] <= dq[15:8];
        end
        if (a[10]) open[ba] <= 0;
      end
    endcase
  end
endmodule
"""

# Writes are a first beat in the high bits of `data`, at most 8.
BENCH = """\
`timescale 1ns/100ps
module bench;
  reg clk = 0;
  always #{half} clk = !clk;
{wires}
  wire [12:0] a; wire [1:0] ba, dm; wire [15:0] dq;
  wire cas_n, ras_n, we_n, cs_n, cke, chip_clk;
  ODDRX1F chip_clock(.D0(1'b0), .D1(1'b1), .SCLK(clk), .RST(1'b0), .Q(chip_clk));
  chip chip(chip_clk, cke, cs_n, ras_n, cas_n, we_n, ba, dm, a, dq);
  memory memory(.clk(clk), .rst(1'b0){memory});
  litedram litedram(.clk(clk), .rst(1'b0), .sdram_a(a), .sdram_ba(ba), .sdram_cas_n(cas_n),
    .sdram_ras_n(ras_n), .sdram_we_n(we_n), .sdram_cs_n(cs_n), .sdram_cke(cke), .sdram_dm(dm),
    .sdram_dq(dq), .wb_ctrl_sel(4'hf), .wb_ctrl_cti(3'b0), .wb_ctrl_bte(2'b0){core});
  reg [31:0] address; reg [7:0] last, strobes; reg [63:0] data;
  reg aw = 0, w = 0, ar = 0, wlast = 0;
  assign marks__ready = 1;
  assign write_0__awaddr = address, write_0__awlen = last, write_0__awvalid = aw;
  assign write_0__awid = 0, write_0__bready = 1;
  assign write_0__wdata = data, write_0__wstrb = strobes;
  assign write_0__wvalid = w, write_0__wlast = wlast;
  assign read_0__araddr = address, read_0__arlen = last, read_0__arvalid = ar;
  assign read_0__arid = 0, read_0__rready = 1;
  integer beat, cycles = 0, refreshes;
  always @(posedge clk) cycles <= cycles + 1;
  task write(input [31:0] to, input integer beats, input [511:0] words, input [7:0] kept);
    begin
      address = to; last = beats - 1; strobes = kept; aw = 1;
      @(posedge clk); while (!write_0__awready) @(posedge clk);
      #1 aw = 0;
      for (beat = 0; beat < beats; beat = beat + 1) begin
        data = words[64 * (beats - 1 - beat) +: 64]; wlast = beat == last; w = 1;
        @(posedge clk); while (!write_0__wready) @(posedge clk);
        #1 w = 0;
      end
      while (!write_0__bvalid) @(posedge clk);
      @(posedge clk); #1;
    end
  endtask
  task read(input [31:0] from, input integer beats);
    begin
      address = from; last = beats - 1; ar = 1;
      @(posedge clk); while (!read_0__arready) @(posedge clk);
      #1 ar = 0;
      for (beat = 0; beat < beats; beat = beat + 1) begin
        @(posedge clk); while (!read_0__rvalid) @(posedge clk);
        $display("READ %h", read_0__rdata);
      end
      #1;
    end
  endtask
  initial begin
    #1 wait (ready || failed);
    if (failed) $display("FAILED: bring-up");
    cycles = 0; refreshes = chip.refreshes;
    repeat (5) @(posedge clk);
    #1;
{steps}
    repeat (2000) @(posedge clk);
    $display("ready, then %0d cycles, %0d refreshes", cycles, chip.refreshes - refreshes);
    $finish;
  end
  initial #5000000 begin $display("FAILED: time"); $finish; end
endmodule
"""


def connections(ports) -> dict:
    """Declarations and connections of (range, name) of the memory's ports."""
    ports = [port for port in ports if port[1] not in ("clk", "rst")]
    core = [(re.sub(r"^dram__(read|write)__", "user_port_card_",
                    name.replace("dram__control__", "wb_ctrl_")), name)
            for _, name in ports if name.startswith("dram__")
            and not name.endswith(("cache", "prot"))]  # the controller has no attributes
    return {"wires": "\n".join(f"  wire {size}{name};" for size, name in ports),
            "memory": "".join(f",\n    .{name}({name})" for _, name in ports),
            "core": "".join(f",\n    .{pin}({name})" for pin, name in core)}
