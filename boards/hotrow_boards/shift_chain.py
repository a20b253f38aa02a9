"""A core between two shift registers, so that only four pins leave it whatever its ports.

Place and route then tells the core's own clock: every input comes from a flip-flop, every output
goes to one, and none of the core can be optimised away.
"""

import re
from dataclasses import dataclass

CHAIN_MODULE = "shift_chain"
_PORT = re.compile(
    r"^\s*(input|output)\s+(?:(?:wire|reg|signed)\s+)*(?:\[(\d+):0\]\s+)?(\\\S+|\w+)\s*[;=]", re.M)


@dataclass(frozen=True)
class Port:
    """A port of a module: `input` or `output`, its bits, its name as in the Verilog."""

    direction: str
    bits: int
    name: str


def ports(verilog: str, top: str) -> list[Port]:
    """The ports of module `top`, in the order of their declarations.

    Raises
    ------
    ValueError
        If the text has no such module.
    """
    body = re.search(rf"^module {re.escape(top)}\s*[(#].*?^endmodule", verilog, re.M | re.S)
    if body is None:
        raise ValueError(f"the Verilog has no module {top!r}")
    return [Port(direction, int(high or 0) + 1, name)
            for direction, high, name in _PORT.findall(body[0])]


def wrap(verilog: str, top: str) -> str:
    """Verilog of a module `shift_chain` with ports clk, rst, in, out around module `top`.

    A bit that enters at `in` passes every input of `top`; its outputs, a cycle later, are added
    without carry to what leaves at `out`. The reset reaches the flip-flops of `top` over the FPGA's
    network for it, as on the boards (see `clocking`), and takes no other wires.

    Parameters
    ----------
    verilog : str
        Text that holds `top`, whose ports are declared one by one; `clk`, and `rst` if it has
        one, are its clock and reset.
    top : str
    """
    found = ports(verilog, top)
    given = {"clk": "clk", "rst": "1'b0"}
    connections = [f".{port.name}({given[port.name]})" for port in found if port.name in given]
    at = {"input": 0, "output": 0}
    chain = {"input": "drive", "output": "seen"}
    for port in found:
        if port.name not in given:
            low = at[port.direction]
            at[port.direction] = high = low + port.bits
            # The blank ends an escaped name.
            connections.append(f".{port.name} ({chain[port.direction]}[{high - 1}:{low}])")
    inputs, outputs = at["input"], at["output"]
    for direction, bits in at.items():
        if not bits:
            raise ValueError(f"module {top!r} has no {direction} beside its clock and reset")
    resets = any(port.name == "rst" for port in found)
    reset = "\n  SGSR reset(.CLK(clk), .GSR(~rst));" if resets else ""
    joined = ",\n    ".join(connections)
    return f"""\
module {CHAIN_MODULE}(input clk, input rst, input in, output out);
  reg [{inputs - 1}:0] drive;
  wire [{outputs - 1}:0] seen;
  reg [{outputs - 1}:0] held;
  reg [{outputs - 1}:0] chain;
  always @(posedge clk) begin
    drive <= {{drive, in}};
    held <= seen;
    chain <= held ^ {{chain, 1'b0}};
  end
  assign out = chain[{outputs - 1}];{reset}
  {top} core (
    {joined});
endmodule
"""
