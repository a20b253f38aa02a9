"""A core between two shift registers: four pins, whatever its ports.

The clock after place and route is then the core's own: a flip-flop drives every input and samples
every output, and synthesis cannot remove any of the core.
"""

import re
from dataclasses import dataclass

CHAIN_MODULE = "shift_chain"
_PORT = re.compile(
    r"^\s*(input|output)\s+(?:(?:wire|reg|signed)\s+)*(?:\[(\d+):0\]\s+)?(\\\S+|\w+)\s*[;=]", re.M)


@dataclass(frozen=True)
class Port:
    """A port of a module: direction (`input` or `output`), bits, and name as in the Verilog."""

    direction: str
    bits: int
    name: str


def ports(verilog: str, top: str) -> list[Port]:
    """The ports of module `top`, in the order of their declarations.

    Raises
    ------
    ValueError
        If the text does not define the module.
    """
    body = re.search(rf"^module {re.escape(top)}\s*[(#].*?^endmodule", verilog, re.M | re.S)
    if body is None:
        raise ValueError(f"the Verilog has no module {top!r}")
    return [Port(direction, int(high or 0) + 1, name)
            for direction, high, name in _PORT.findall(body[0])]


def wrap(verilog: str, top: str) -> str:
    """Verilog of a module `shift_chain` with ports clk, rst, in, out around module `top`.

    `in` feeds a shift register whose bits drive the inputs of `top`. Each cycle, the registered
    outputs are XORed into a second shift register that ends at `out`. The reset uses the FPGA's
    dedicated network, as on the boards (see `clocking`).

    Parameters
    ----------
    verilog : str
        Text that defines `top`, with one port a declaration. Its ports `clk` and, if present,
        `rst` are clock and reset.
    top : str
    """
    found = ports(verilog, top)
    fixed = {"clk": "clk", "rst": "1'b0"}
    connections = [f".{port.name}({fixed[port.name]})" for port in found if port.name in fixed]
    at = {"input": 0, "output": 0}
    chain = {"input": "drive", "output": "seen"}
    for port in found:
        if port.name not in fixed:
            low = at[port.direction]
            at[port.direction] = high = low + port.bits
            # The space terminates an escaped name.
            connections.append(f".{port.name} ({chain[port.direction]}[{high - 1}:{low}])")
    inputs, outputs = at["input"], at["output"]
    for direction, bits in at.items():
        if not bits:
            raise ValueError(f"module {top!r} has no {direction} other than its clock and reset")
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
