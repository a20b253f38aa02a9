"""The expressions of Verilog that Yosys writes: one operator, whose operands have known widths."""

import re
from dataclasses import dataclass

NUMBER = r"(?<![\w$])_\d+_(?![\w$])"
NAME = r"(?:\\\S+ |[A-Za-z_][\w$]*)"
_CONSTANT = re.compile(r"(\d+)'(?:([dh])([\da-f]+)|[bdh][\da-fxz]+)(?![\w'])")
_SELECT = re.compile(r" ?\[(\d+)(?::(\d+))?\]")
_OPERATOR = re.compile(r" *(==|!=|<=|>=|&&|\|\||~\^|[~!&|^<>+?:-]) +")
_CALL = re.compile(rf"({NUMBER})\((.*)\)")
_ARGUMENT = re.compile(r"(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|[^,{}]+)(?:, )?")
_COMPARED = {"==", "!=", "<", "<=", ">", ">="}
_LOGICAL = {"&&", "||"}
_WIDE = {"&", "|", "^", "~^", "+", "-"}  # as wide as their operands, like ~ and ?:
_REDUCED = {"!", "&", "|", "^"}
_LONGEST_NAME = 32
_WORDS = {"~{}": "not_{}", "{} & {}": "{}_and_{}", "{} | {}": "{}_or_{}", "{} == {}": "{}_is_{}",
          "{} != {}": "{}_is_not_{}", "{} + {}": "{}_plus_{}", "{} - {}": "{}_minus_{}",
          "| {}": "any_{}", "& {}": "all_{}", "{} < {}": "{}_below_{}", "{} ^ {}": "{}_xor_{}",
          "{} >= {}": "{}_from_{}", "{} > {}": "{}_above_{}", "{} <= {}": "{}_to_{}"}


@dataclass
class Expression:
    """An operator with its operands.

    Attributes
    ----------
    form : str
        With {} for every operand.
    operands : list of str
    moves : list of bool
        Whether an expression of the operand's width may replace it.
    exact : bool
        Whether it has the same value in a context of its width as in an assignment.
    """

    form: str
    operands: list
    moves: list
    exact: bool
    text: str = ""


class Parser:
    """Parses expressions of a module.

    Parameters
    ----------
    widths : dict of str to int
        Of the names that are declared.
    """

    def __init__(self, widths: dict[str, int]):
        self.widths = widths

    def expression(self, left, right):
        """The parsed right side, or None if it is of another form."""
        width = self.operand(left, 0)[1]
        if call := _CALL.fullmatch(right):  # of a function that selects; its arguments have widths
            arguments = _ARGUMENT.findall(call[2])
            return Expression(f"{call[1]}({', '.join(['{}'] * len(arguments))})", arguments,
                              [each.startswith("{") for each in arguments], True)
        first = self.operand(right, 0)
        if first is None:  # one operand, its operator first
            found = _OPERATOR.match(right)
            operand = found and self.operand(right, found.end())
            if not operand or operand[0] != len(right):
                return None
            return self._unary(found[1], right[found.end():], operand[1], width)
        parts, at = [(right[:first[0]], first[1])], first[0]
        operators = []
        while at < len(right):
            found = _OPERATOR.match(right, at)
            operand = found and self.operand(right, found.end())
            if not operand:
                return None
            operators.append(found[1])
            parts.append((right[found.end():operand[0]], operand[1]))
            at = operand[0]
        return self._binary(operators, parts, width)

    def _unary(self, operator, text, bits, width):
        if operator == "!" and bits > 1:
            return Expression(f"{{}} == {bits}'h{0:0{-(-bits // 4)}x}", [text], [True], width == 1)
        if operator in "&|" and width == 1 and (parts := self._bits_of(text)):
            return Expression(f" {operator} ".join(["{}"] * len(parts)), parts,
                              [True] * len(parts), True)
        if operator in _REDUCED:
            return Expression(f"{operator} {{}}", [text], [True], width == 1)
        if operator == "~":
            return Expression("~{}", [text], [bits == width], bits == width)
        return None

    def _bits_of(self, text):
        """The elements of a concatenation if each is one bit, otherwise nothing."""
        parts = text.strip("{ }").split(", ") if text.startswith("{ ") else []
        parts = [f"{part} " if part.startswith("\\") and " " not in part else part
                 for part in parts]
        found = [self.operand(part, 0) for part in parts]
        return parts if all(each == (len(part), 1) for each, part in zip(
            found, parts, strict=True)) else []

    @staticmethod
    def _binary(operators, parts, width):
        texts, bits = [text for text, _ in parts], [count for _, count in parts]
        if operators == ["?", ":"]:
            same = bits[1] == bits[2] == width
            return Expression("{} ? {} : {}", texts, [True, same, same], same)
        if len(operators) != 1:
            return None
        operator, form = operators[0], f"{{}} {operators[0]} {{}}"
        if operator in _LOGICAL:
            return Expression(form, texts, [True, True], width == 1)
        if operator in _COMPARED:
            texts = [_as_wide(text, max(bits)) for text in texts]
            return Expression(form, texts, [bits[0] == bits[1]] * 2, width == 1)
        if operator in _WIDE:
            texts = [_as_wide(text, max(bits)) for text in texts]
            bits = [max(each, max(bits) if text[:1].isdigit() else 0)
                    for each, text in zip(bits, texts, strict=True)]
            same = bits[0] == bits[1] == width
            return Expression(form, texts, [same, same], same)
        return None

    def operand(self, text, at):
        """(end, bits) of a constant, a name or a concatenation, or None."""
        if found := _CONSTANT.match(text, at):
            return found.end(), int(found[1])
        if text[at:at + 1] == "{":
            return self._concatenation(text, at + 1)
        found = re.compile(NAME).match(text, at)
        bits = found and self.widths.get(found[0].strip())
        if not bits:
            return None
        if select := _SELECT.match(text, found.end()):
            return select.end(), int(select[1]) - int(select[2] or select[1]) + 1
        return found.end(), bits

    def _concatenation(self, text, at):
        total = 0
        while text[at] != "}":
            if text[at] in " ,":
                at += 1
                continue
            repeat = re.compile(r"(\d+)\{").match(text, at)
            part = self._concatenation(text, repeat.end()) if repeat else self.operand(text, at)
            if part is None:
                return None
            at = part[0]
            total += part[1] * int(repeat[1] if repeat else 1)
        return at + 1, total


def spoken(expression, names):
    """A name for an expression of one or two short operands, or ""."""
    words = [names.get(operand, operand).strip() for operand in expression.operands]
    words = [str(int(found[3], 10 if found[2] == "d" else 16)) if (
        found := _CONSTANT.fullmatch(word)) and found[2] else word for word in words]
    form = expression.form if expression.form in _WORDS else re.sub(
        r"\d+'h0+$", "{}", expression.form)
    if form not in _WORDS or not all(re.fullmatch(r"[a-z0-9]\w*", word) for word in words):
        return ""
    name = _WORDS[form].format(*words, *(["0"] if form != expression.form else []))
    return name if len(name) <= _LONGEST_NAME and not name[0].isdigit() else ""


def _as_wide(text, bits):
    """A constant with that many bits; another operand as it is."""
    found = _CONSTANT.fullmatch(text)
    if not found or not found[2] or int(found[1]) == bits:
        return text
    value = int(found[3], 10 if found[2] == "d" else 16)
    return f"{bits}'h{value:0{-(-bits // 4)}x}"
