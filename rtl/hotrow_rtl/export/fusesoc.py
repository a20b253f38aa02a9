"""The Verilog as a core of FuseSoC, with targets `lint` and `sim`.

Source: FuseSoC's reference of core files, CAPI2.
"""

from ..contract.encoding import VERSION


def fusesoc_files(library: str, name: str, top: str, verilog: str, ports) -> dict[str, str]:
    """A core file, and a bench for its target `sim`.

    Parameters
    ----------
    library, name : str
        The core is hotrow:LIBRARY:NAME.
    top : str
        Name of the top module.
    verilog : str
        Name of the file; the waivers of the same name, ending in .vlt, are for Verilator.
    ports : sequence of dict
        With `name`, `direction` ("input" or "output") and `bits`; `clk` and `rst` among them.
    """
    bench = f"{top}_smoke"
    return {f"{verilog.removesuffix('.v')}.core": f"""\
CAPI=2:
name: hotrow:{library}:{name}:{VERSION}.0
description: {top} of hotrow, written by `hotrow generate`
filesets:
  rtl:
    files: [{verilog}]
    file_type: systemVerilogSource
  waivers:
    files: [{verilog}lt]
    file_type: vlt
  bench:
    files: [{bench}.v]
    file_type: systemVerilogSource
targets:
  default:
    filesets: [rtl]
    toplevel: {top}
  lint:
    flow: lint
    flow_options: {{tool: verilator, verilator_options: [-Wall]}}
    filesets: [waivers, rtl]
    toplevel: {top}
  sim:
    flow: sim
    flow_options: {{tool: icarus, iverilog_options: [-g2012]}}
    filesets: [rtl, bench]
    toplevel: {bench}
""", f"{bench}.v": _bench(bench, top, ports)}


def _bench(bench, top, ports):
    """The top module after a reset, without traffic."""
    wires, connections = [], [".clk(clk)", ".rst(rst)"]
    for port in ports:
        name, bits = port["name"], port["bits"]
        if port["direction"] == "output":
            wires.append(f"  wire {f'[{bits - 1}:0] ' if bits > 1 else ''}{name};")
            connections.append(f".{name}({name})")
        elif name not in ("clk", "rst"):
            connections.append(f".{name}({bits}'d0)")
    named = [port["name"] for port in ports if port["direction"] == "output"]
    handshake = [name for name in named if name.endswith(("valid", "ready"))]
    ready = [name for name in named if name.endswith("ready")]
    joined, declared = ",\n    ".join(connections), "\n".join(wires)
    return f"""\
// {top} after a reset, without traffic: a bench to begin with. Written by `hotrow generate`.
`timescale 1ns / 1ps
module {bench};
  reg clk = 1'b0, rst = 1'b1;
  integer smoke_cycles = 0;
{declared}
  {top} dut (
    {joined}
  );
  wire [{len(handshake) - 1}:0] smoke_handshake = {{{', '.join(handshake)}}};
  wire smoke_ready = |{{{', '.join(ready)}}};
  always #5 clk = ~clk;
  always @(posedge clk) begin
    smoke_cycles <= smoke_cycles + 1;
    rst <= smoke_cycles < 4;
    if (smoke_cycles > 6 && ^smoke_handshake === 1'bx)
      $fatal(1, "{top}: an undefined valid or ready");
    if (smoke_cycles > 100000) $fatal(1, "{top}: not ready after 100000 cycles");
    if (smoke_cycles > 6 && smoke_ready) begin
      $display("{top}: ready after %0d cycles", smoke_cycles);
      $finish;
    end
  end
endmodule
"""
