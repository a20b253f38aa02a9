"""Names of signals that one statement makes several of, such as `load, fire = Signal(), Signal()`.

Amaranth's tracer names a signal after the bytecode that follows its call in the caller's frame,
which stores only the last of these. The position of the call in that frame names the others.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType

from amaranth.hdl import _ast

_Position = tuple[int | None, int | None, int | None, int | None]


@contextmanager
def named_in_tuples() -> Iterator[None]:
    """Inside, each signal of such a statement is named after its variable."""
    plain = _ast.tracer.get_var_name

    def named(depth=2, **default):
        frame = sys._getframe(depth)
        return _variable(frame.f_code, frame.f_lasti) or plain(depth + 1, **default)

    _ast.tracer.get_var_name = named
    try:
        yield
    finally:
        _ast.tracer.get_var_name = plain


@cache
def _variable(code: CodeType, instruction: int) -> str | None:
    """The variable that the call at an instruction is assigned to."""
    positions = code.co_positions()  # one for every two bytes
    return _variables(code.co_filename).get(next(islice(positions, instruction // 2, None)))


@cache
def _variables(file: str) -> dict[_Position, str]:
    """Variables by the position of their values, of a file's assignments to several."""
    path = Path(file)
    if not path.is_file():
        return {}
    found: dict[_Position, str] = {}
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and len(target.elts) == len(node.value.elts):
                    found |= {
                        (value.lineno, value.end_lineno, value.col_offset, value.end_col_offset):
                        variable.id if isinstance(variable, ast.Name) else variable.attr
                        for variable, value in zip(target.elts, node.value.elts, strict=True)
                        if isinstance(variable, ast.Name | ast.Attribute)}
    return found
