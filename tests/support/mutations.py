"""Single faults in Python source, of kinds that engineers make."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HANDSHAKE = re.compile(r"(valid|ready|fire|stall|busy|idle|space\w*|accept\w*|step|enable)(_q)?$")
CAUSE = re.compile(r"fault|error|refused|stopped|region|read_only|misaligned|unknown|out_of_range")
RESTART = re.compile(r"restart|clear(ing|ed)?\b|soft_reset|draining")


@dataclass(frozen=True)
class Mutation:
    """The text between two positions of a file, what replaces it, and the number of its line."""

    path: Path
    kind: str
    line: str
    start: int
    end: int
    old: str
    new: str
    number: int = 0

    @property
    def key(self):
        """Names the fault wherever its line is: "path: kind: old -> new in: line"."""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}: {self.kind}: {old} -> {new} in: {self.line}"

    def apply(self, source):
        """The file with the fault."""
        octets = source.encode()
        assert octets[self.start:self.end].decode() == self.old
        return (octets[:self.start] + self.new.encode() + octets[self.end:]).decode()


def mutations(path: Path, source: str, hardware: bool):
    """Every fault of one file.

    Parameters
    ----------
    path : Path
    source : str
    hardware : bool
        The file describes hardware, so that conditions, registers and widths are Amaranth's.
    """
    lines = [0]
    for line in source.encode().split(b"\n"):
        lines.append(lines[-1] + len(line) + 1)
    tree = ast.parse(source)
    found = []

    def at(node):
        return (lines[node.lineno - 1] + node.col_offset,
                lines[node.end_lineno - 1] + node.end_col_offset)

    def add(kind, node, new):
        start, end = at(node)
        old = source.encode()[start:end].decode()
        if new != old:
            line = source.split("\n")[node.lineno - 1].strip()
            found.append(Mutation(path, kind, line, start, end, old, new, node.lineno))

    restarts = [node for node in ast.walk(tree) if isinstance(node, ast.With)
                and RESTART.search(ast.unparse(node.items[0].context_expr))]
    inside = {id(each) for node in restarts for each in ast.walk(node)}
    left_out = {id(each) for node in ast.walk(tree) for part in _without_effect(node)
                for each in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        for kind, target, new in (_hardware(node, id(node) in inside) if hardware
                                  else _software(node)):
            add(kind, target, new)
        if isinstance(node, ast.Compare | ast.BinOp):
            for kind, target, new in _off_by_one(node):
                add(kind, target, new)
    return found


def _without_effect(node):
    """Parts of a node in which a fault of these kinds changes no result.

    Texts: messages and `__repr__`. Annotations, and imports for them. An assertion, which sound
    code meets: a weaker one passes, too. A shape, which no fault of these kinds but "a bit less"
    makes narrower.
    """
    match node:
        case ast.JoinedStr() | ast.Assert():
            yield node
        case ast.Raise(exc=ast.AST() as raised):
            yield raised
        case ast.FunctionDef():
            yield from (each for each in (node.returns, *_annotations(node)) if each)
            if node.name in ("__repr__", "__str__"):
                yield node
        case ast.AnnAssign():
            yield node.annotation
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            yield node
        case ast.Call(func=ast.Name("Signal" | "unsigned")):
            yield from (each for shape in node.args[:1] for each in ast.iter_child_nodes(shape))


def _annotations(function):
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs,
                 arguments.vararg, arguments.kwarg):
        if each:
            yield each.annotation


def _off_by_one(node):
    operands = ([node.left, *node.comparators] if isinstance(node, ast.Compare)
                else [node.left, node.right] if isinstance(node.op, ast.Add | ast.Sub) else [])
    for each in operands:
        if isinstance(each, ast.Constant) and type(each.value) is int:
            yield "off by one", each, str(each.value + 1)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        swaps = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
        if type(node.ops[0]) in swaps:
            left, right = map(ast.unparse, (node.left, node.comparators[0]))
            yield "off by one", node, f"({left} {swaps[type(node.ops[0])]} {right})"


def _hardware(node, in_restart):
    if isinstance(node, ast.Call):
        yield from _calls(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        patterns = {"missing restart": RESTART} | (
            {"dropped handshake term": HANDSHAKE} if isinstance(node.op, ast.BitAnd)
            else {"lost cause": CAUSE})
        for term, other in ((node.left, node.right), (node.right, node.left)):
            name = term.operand if isinstance(term, ast.UnaryOp) else term
            if isinstance(name, ast.Name | ast.Attribute):
                yield from ((kind, node, f"({ast.unparse(other)})") for kind, pattern
                            in patterns.items() if pattern.search(ast.unparse(name)))
    if isinstance(node, ast.comprehension) and in_restart and isinstance(node.iter, ast.Tuple):
        yield from (("missing restart", each, "*()") for each in node.iter.elts)
    if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "m.d.sync":
        kind = "missing restart" if in_restart else "stale register"
        if isinstance(node.value, ast.List):
            yield from ((kind, each, "*()") for each in node.value.elts
                        if isinstance(each, ast.Call))
        else:
            yield kind, node.value, "[]"


def _calls(node):
    name = ast.unparse(node.func)
    if name in ("m.If", "m.Elif") and node.args:
        yield "inverted condition", node.args[0], f"({ast.unparse(node.args[0])}) == 0"
    if name == "Mux" and len(node.args) == 3:
        condition, one, other = map(ast.unparse, node.args)
        yield "wrong branch", node, f"Mux({condition}, {other}, {one})"
    if name == "Signal" and node.args:
        yield from _narrower(node.args[0])
    if isinstance(node.func, ast.Attribute) and node.func.attr == "eq" and RESTART.search(
            ast.unparse(node.func.value)):
        yield "missing restart", node, f"{name}(0)"
    if name.startswith("ResetInserter(") or name == "cleared":  # = ResetInserter(clear)
        yield "missing restart", node, ast.unparse(node.args[0])


def _narrower(width):
    if isinstance(width, ast.Constant) and type(width.value) is int and width.value > 1:
        yield "a bit less", width, str(width.value - 1)
    if isinstance(width, ast.Call) and ast.unparse(width.func) == "range" and len(width.args) == 1:
        yield "a bit less", width, f"max(0, ({ast.unparse(width.args[0])} - 1).bit_length() - 1)"


def _software(node):
    if isinstance(node, ast.If):
        if node.body and isinstance(node.body[0], ast.Raise) and not node.orelse:
            yield "rule left out", node.test, "False"
        else:
            yield "inverted condition", node.test, f"not ({ast.unparse(node.test)})"
    if isinstance(node, ast.IfExp):
        yield "wrong branch", node, (
            f"({ast.unparse(node.orelse)} if {ast.unparse(node.test)} "
            f"else {ast.unparse(node.body)})")
    if isinstance(node, ast.BoolOp):
        kind = "lost cause" if isinstance(node.op, ast.Or) else "rule left out"
        join = " or " if isinstance(node.op, ast.Or) else " and "
        for left_out in node.values:
            rest = [f"({ast.unparse(each)})" for each in node.values if each is not left_out]
            yield kind, node, f"({join.join(rest)})"
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
        yield "stale register", node, "pass"
