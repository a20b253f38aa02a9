"""The memories of an emitted accelerator, read from its Verilog."""

import re
from dataclasses import dataclass

from ..primitives.ram import RAM_MODULE

_MODULE = re.compile(r"^module (\\?\S+?) ?\((.*?)^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^ +(\\?\S+) +(?:#\((.*?)\) )?(\\?\S+) +\($",
                       re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"\.(\w+)\(\d+'[sd]+(\d+)\)")


@dataclass(frozen=True)
class MemoryInstance:
    """One memory: its instance path below the top, the bits of a row, and the rows."""

    path: str
    width: int
    depth: int

    @property
    def bits(self) -> int:
        return self.width * self.depth


def memories(verilog: str, top: str) -> list[MemoryInstance]:
    """Every memory below the module `top`, in the order of the text."""
    instances = {name: _INSTANCE.findall(body) for name, body in _MODULE.findall(verilog)}

    def below(module, path):
        for kind, parameters, name in instances[module]:
            names = (*path, name.removeprefix("\\"))
            if kind == RAM_MODULE:
                values = dict(_PARAMETER.findall(parameters))
                # Without the last name, which is that of the instance inside `Ram`.
                yield MemoryInstance(".".join(names[:-1]), int(values["WIDTH"]),
                                     int(values["DEPTH"]))
            elif kind in instances:
                yield from below(kind, names)
    return list(below(top, ()))
