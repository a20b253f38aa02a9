"""Rewrites Verilog of Yosys for readers: expressions in place of numbered wires.

Yosys writes one operator a line, each with a wire `_12_`. One that is read once becomes part of the
expression that reads it, where Verilog's rules of widths leave the value unchanged.
"""

import re

from .expressions import NAME, NUMBER, Parser, spoken

_LONGEST = 100  # characters of an expression
_LINE = re.compile(r"^  assign .{1000,}$", re.MULTILINE)  # Verilator reads no line of 40,000 tokens
_PIECE = re.compile(r"(.{80,}?,) ")
_MODULE = re.compile(r"^module (\\\S+|\w+)(.*?^endmodule\n)", re.MULTILINE | re.DOTALL)
_DECLARED = re.compile(rf"^  (?:input|output|wire|reg) (?:\[(\d+):(\d+)\] )?({NAME}) *(?:= .*)?;$",
                       re.MULTILINE)
_ASSIGNED = re.compile(r"^  assign (.*?) = (.*);$", re.MULTILINE)
_READ = re.compile(rf"(\bif \(|<= )({NUMBER})(?=\)|;)")
_CLOCKED = re.compile(r"^    (?:if|else|\S+ +<=) .*$", re.MULTILINE)  # below `always`
_INITIAL = re.compile(rf"^  reg ((?:\[\d+:\d+\] )?)({NAME} *) = (.*);$", re.MULTILINE)
_CHAIN = re.compile(r"\{\}(?: ([&|^]) \{\})+")
_FUNCTION = re.compile(rf"^  function .*?({NUMBER});$", re.MULTILINE)
_CASE = re.compile(r"^( +)(casez? .*) // synopsys parallel_case$", re.MULTILINE)


def readable(text: str, sources: dict[str, str]) -> str:
    """The same modules with fewer wires, each after a comment about its source.

    Parameters
    ----------
    text : str
        As `write_verilog -noattr` wrote it.
    sources : dict of str to str
        A line by the name of the module.
    """
    def rewritten(found):
        source = sources.get(found[1].removeprefix("\\"))
        comment = f"// {source}\n" if source else ""
        return f"{comment}module {found[1]}{_Module(found[2]).text()}"

    return _MODULE.sub(rewritten, text)


class _Module:
    """One module, from the list of its ports to `endmodule`."""

    def __init__(self, body):
        self.body, self.moved = body, set()
        self.widths = {name.strip(): int(high or 0) - int(low or 0) + 1
                       for high, low, name in _DECLARED.findall(body)}
        counts, parser = {}, Parser(self.widths)
        for name in re.findall(NUMBER, body):
            counts[name] = counts.get(name, 0) + 1
        self.once = {name for name, count in counts.items() if count == 3}  # declared, driven, read
        self.assigned = {left: parser.expression(left, right)
                         for left, right in _ASSIGNED.findall(body)}

    def text(self):
        """The module's text."""
        for left in self.assigned:
            self._settle(left)
        body = _ASSIGNED.sub(
            lambda found: f"  assign {found[1]} = {self.right(found[1]) or found[2]};", self.body)
        body = _CLOCKED.sub(lambda line: _READ.sub(
            lambda found: f"{found[1]}{self.inlined(found[2])}", line[0]), body)
        body = re.sub(rf"^  (?:wire (?:\[\d+:\d+\] )?|assign )({NUMBER})(?: = .*)?;\n",
                      lambda found: "" if found[1] in self.moved else found[0], body,
                      flags=re.MULTILINE)
        names = self._names(body)
        body = re.sub(NUMBER, lambda found: names.get(found[0], found[0]), body)
        body = _CASE.sub(r"\1(* parallel_case *) \2", body)  # Yosys warns of the comment
        body = _LINE.sub(lambda line: _PIECE.sub(r"\1\n    ", line[0]), body)
        return _INITIAL.sub(r"  reg \1\2;\n  initial \2 = \3;", body)

    def _settle(self, left):
        """Write the right sides from the inputs on, as chains are longer than Python's stack."""
        waiting = [left]
        while waiting:
            expression = self.assigned.get(waiting[-1])
            below = [name for operand in (expression.operands if expression else ())
                     for name in re.findall(NUMBER, operand) if name in self.once
                     and self.assigned.get(name) and not self.assigned[name].text]
            if below:
                waiting += below
            else:
                self.right(waiting.pop())

    def _names(self, body):
        """Names for the numbered wires and functions that are left, where two words say them."""
        names, used = {}, {*self.widths, "clk", "rst"}
        for number in _FUNCTION.findall(body):
            names[number] = f"select{number.rstrip('_')}"
        for left, expression in self.assigned.items():
            if re.fullmatch(NUMBER, left) and left not in self.moved and expression:
                name = spoken(expression, names)
                if name and name not in used:
                    names[left] = name
                    used.add(name)
        return names

    def right(self, left):
        """The right side of an assignment with what moves into it; "" if it is not parsed."""
        expression = self.assigned.get(left)
        if expression and not expression.text:
            parts = [self._part(operand, expression.form) if moves else operand
                     for operand, moves in zip(expression.operands, expression.moves, strict=True)]
            expression.text = expression.form.format(*parts)
        return expression.text if expression else ""

    def _part(self, operand, parent):
        """An operand with what moves into it, without parentheses in a chain of one operator."""
        if operand.startswith("{"):
            return re.sub(rf"(?<=[{{,] ){NUMBER}(?=,| \}})",
                          lambda found: self.inlined(found[0]), operand)
        text = self.inlined(operand)
        form = self.assigned[operand].form if text != operand else "_"
        if parent.startswith("{}"):  # not a unary operator
            chain = _CHAIN.fullmatch(parent)
            if form.startswith("~") or (chain and form == f"{{}} {chain[1]} {{}}"):
                return text
        return text if form.startswith("_") else f"({text})"

    def inlined(self, name):
        """The expression of a wire that is read once, or its name."""
        expression = self.assigned.get(name)
        if name not in self.once or not expression or not expression.exact:
            return name
        text = self.right(name)
        if len(text) > _LONGEST:
            return name
        self.moved.add(name)
        return text
