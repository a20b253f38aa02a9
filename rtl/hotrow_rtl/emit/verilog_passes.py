"""What Amaranth's Verilog needs before simulators and synthesisers get it."""

import re
from collections import Counter
from itertools import groupby

_MODULE = re.compile(r"^module (\\?\S+?)( ?\(.*?^endmodule\n)", re.MULTILINE | re.DOTALL)
_MODULE_PORTS = re.compile(r"^(module \S+ ?)\(([^;]*)\);$", re.MULTILINE)
_WHOLE_MODULE = re.compile(r"^module .*?^endmodule\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\\\S+|[A-Za-z_$][\w$]*")
_WIRE = re.compile(
    r"^(?: *\(\* init = [^\n]*\*\)\n)? *wire (?:signed )?(?:\[-?\d+:\d+\] )?(\S+) ?;\n",
    re.MULTILINE)
_ASSIGNMENT = re.compile(r"^ *assign (\\\S+|[\w$]+) +=[^\n]*;\n", re.MULTILINE)
_ZERO_WIDTH = re.compile(r"^\s*(?:input|output|inout)\s+\[-1:0\]\s+(\S+?)\s*;", re.MULTILINE)
_NUMBERED = re.compile(r"(?<!\.)\\port\$(\d+)\$(\d+) ")
_NUMBERED_PORT = re.compile(r"\.\\port\$(\d+)\$(\d+) ")
_INSTANCE = re.compile(r"^  (\\?\S+) +\S+ +\(\n.*?^  \);\n", re.MULTILINE | re.DOTALL)
# What Yosys lets every `always @*` read so that it runs at time 0. The initial value of a
# declaration is there before the blocks listen, so in Icarus it does not wake them.
_TRIGGER = re.compile(r"^ *reg (?:\\\$auto\$verilog_backend\S+) += 0;\n", re.MULTILINE)
_ESCAPED = re.compile(r"\\(\$?)(\w[\w$]*) ")
_PORT_WIRE = re.compile(r"^(  (?:in|out)put )((?:\[\d+:\d+\] )?\S+ ?;\n)  wire \2", re.MULTILINE)
_WIRES = re.compile(r"(?:^  wire (?:signed )?(?:\[\d+:\d+\] )?[^\s,;]+ ?;\n)+", re.MULTILINE)
_ASSIGNMENTS = re.compile(r"(?:^  assign [^\n]*;\n)+", re.MULTILINE)
_NEXT_LINE = "\n, "  # within a list of ports
_INDENTATION = re.compile(r"^ +", re.MULTILINE)
_TOGETHER = 16  # declarations of wires, or assignments
_TRIGGER_USE = re.compile(r"\\\$auto\$verilog_backend\S+ ")
# Some bits of a variable each: Yosys lets these blocks read nothing that runs them at time 0.
_SLICES = re.compile(r"(?:^  always @\*\n *[^\n]*;\n)+", re.MULTILINE)
_LEADING_ZEROS = re.compile(r"(?<='h)0+(?=[\da-f])")
_CONCATENATION = re.compile(r"\{ ([^{}\n]*) \}")
_ONE_STATEMENT = re.compile(r"\s+begin\n( *[^\n;]*;\n) *end\n(?! *else)")
_WAKE = "reg wake;\n  initial wake <= 1;\n"


def refuse_zero_width(text: str) -> None:
    """Refuse ports without bits, which a simulator reads as two.

    Raises
    ------
    ValueError
    """
    if found := _ZERO_WIDTH.search(text):
        raise ValueError(f"port {found[1]} has no bits: every port needs a width of at least 1; "
                         "leave the member out of the signature for this configuration")


def wake_at_time_zero(text: str) -> str:
    """Let every `always @*` run at time 0, also one whose inputs do not change then.

    Their trigger gets its value from an `initial` block, once they listen. (`always_comb` would run
    by itself, but in Icarus 11 such blocks wake one another for ever where `valid` and `ready`
    cross a module's ports both ways.)
    """
    text = _TRIGGER_USE.sub("wake", _TRIGGER.sub(f"  {_WAKE}", text))
    return _WHOLE_MODULE.sub(lambda found: _with_slices_awake(found[0]), text)


def _with_slices_awake(module: str) -> str:
    def together(found):
        statements = found[0].replace("  always @*\n", "")
        return f"  always @* begin\n    if (wake) begin end\n{statements}  end\n"

    module, blocks = _SLICES.subn(together, module)
    if blocks and _WAKE not in module:
        module = module.replace(");\n", f");\n  {_WAKE}", 1)
    return module


def drop_unread(text: str) -> str:
    """Leave out wires that nothing reads: Amaranth names every field of every structure."""
    return _WHOLE_MODULE.sub(lambda found: _without_unread(found[0]), text)


def _without_unread(module: str) -> str:
    while True:
        uses = Counter(_NAME.findall(module))
        assigned = set(_ASSIGNMENT.findall(module))
        # Its declaration and what it is assigned, or the first alone.
        unread = {name for name in _WIRE.findall(module)
                  if uses[name] == 1 + (name in assigned)}
        if not unread:
            return module
        for statement in (_WIRE, _ASSIGNMENT):
            module = statement.sub(lambda found: "" if found[1] in unread else found[0], module)


def number_nets(text: str) -> str:
    """Number the nets to which Amaranth gives no name within each module, in their order.

    They count through the whole text, so that repeated modules would differ in nothing else.
    """
    numbers = {}
    for name, body in _MODULE.findall(text):
        nets = sorted(set(_NUMBERED.findall(body)), key=lambda net: [*map(int, net)])
        numbers[name] = {net: rf"\port${place} " for place, net in enumerate(nets)}

    def instance(found):
        ports = numbers.get(found[1], {})
        return _NUMBERED_PORT.sub(lambda port: f".{ports[port[1], port[2]]}", found[0])

    def module(found):
        nets = numbers[found[1]]
        return _NUMBERED.sub(lambda net: nets[net[1], net[2]], _INSTANCE.sub(instance, found[0]))

    return _MODULE.sub(module, text)


def share_modules(text: str) -> str:
    """Emit a module that is repeated under several names once.

    Amaranth emits every instance as a module of its own, with its ports in any order, many of them
    over several lines. Sharing one may make its parents alike, so this goes on until nothing
    changes.
    """
    def sorted_ports(found):
        return f"{found[1]}({', '.join(sorted(found[2].replace(_NEXT_LINE, ', ').split(', ')))});"

    text = _MODULE_PORTS.sub(sorted_ports, number_nets(text))
    while True:
        first, shared = {}, {}
        for name, body in _MODULE.findall(text):
            if first.setdefault(body, name) != name:
                shared[name] = first[body]
        if not shared:
            return text
        text = _MODULE.sub(lambda found: "" if found[1] in shared else found[0], text)
        names = "|".join(map(re.escape, sorted(shared, key=len, reverse=True)))
        text = re.sub(rf"^(  )({names})(?= )", lambda found: "  " + shared[found[2]], text,
                      flags=re.MULTILINE)


def compact(text: str) -> str:
    """Write the same with fewer characters: nameless nets without escapes, ports declared once,
    wires of one width and assignments together, a bit that is repeated as often once, and blocks
    of one statement without `begin` and `end`, all indented by half as much."""
    taken = set(re.findall(r"\b_\w+", text))

    def plain(found):  # no keyword has a dollar sign
        name = ("_" if found[1] else "") + found[2]
        return found[0] if name in taken or "$" not in found[0] else name

    def wires(found):
        by_width = {}
        for line in found[0].splitlines():
            width, name = re.fullmatch(r"(  wire .*?)(\S+ ?);", line).groups()
            by_width.setdefault(width, []).append(name)
        return "".join(f"{width}{', '.join(names[at:at + _TOGETHER])};\n"
                       for width, names in by_width.items()
                       for at in range(0, len(names), _TOGETHER))

    def assignments(found):
        each = [line.removeprefix("  assign ")[:-1] for line in found[0].splitlines()]
        return "".join(f"  assign {f',{chr(10)}  '.join(each[at:at + _TOGETHER])};\n"
                       for at in range(0, len(each), _TOGETHER))

    def concatenation(found):
        parts = []
        for part, repeated in groupby(found[1].split(", ")):
            all_ = list(repeated)
            parts.append(min(", ".join(all_), f"{{{len(all_)}{{{part}}}}}", key=len))
        return f"{{ {', '.join(parts)} }}"

    text = _PORT_WIRE.sub(r"\1\2", _ESCAPED.sub(plain, text))
    text = _CONCATENATION.sub(concatenation, _LEADING_ZEROS.sub("", text))
    text = _ONE_STATEMENT.sub(r"\n\1", text.replace("if (wake) begin end", "if (wake);"))
    text = _ASSIGNMENTS.sub(assignments, _WIRES.sub(wires, text))
    return _INDENTATION.sub(lambda found: " " * (len(found[0]) // 2), text)
