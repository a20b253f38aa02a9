// Behaviour of the ECP5's cells between LiteEth and its pins, for simulation.
//
// Source: Lattice FPGA-TN-02035, ECP5 high-speed I/O, and FPGA-TN-02200, sysIO. Delays on a pin are
// nothing to a cycle-based simulator.
module DELAYG #(parameter DEL_MODE = "", DEL_VALUE = 0) (input A, output Z);
  assign Z = A;
endmodule

module ODDRX1F(input D0, D1, SCLK, RST, output Q);
  reg high, low;
  always @(posedge SCLK) {high, low} <= {D0, D1};
  assign Q = SCLK ? high : low;
endmodule

module IDDRX1F(input D, SCLK, RST, output reg Q0, Q1);
  reg high, low;
  always @(posedge SCLK) begin
    high <= D;
    Q0 <= high;
    Q1 <= low;
  end
  always @(negedge SCLK) low <= D;
endmodule

module FD1S3BX(input D, CK, PD, output reg Q);
  initial Q = 1;
  always @(posedge CK or posedge PD)
    if (PD) Q <= 1;
    else Q <= D;
endmodule
