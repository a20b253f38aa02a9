"""Which memories an emitted accelerator holds, read from its Verilog."""

import re
from dataclasses import dataclass

from ..primitives.ram import RAM_MODULE

_MODULE = re.compile(r"^module (\\?\S+?) ?\((.*?)^endmodule\n", re.MULTILINE | re.DOTALL)
_INSTANCE = re.compile(r"^ +(\\?\S+) +(?:#\((.*?)\) )?(\\?\S+) +\($",
                       re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"\.(\w+)\(\d+'[sd]+(\d+)\)")


@dataclass(frozen=True)
class MemoryInstance:
    """One memory: the instance path below the top, bits of a row, rows."""

    path: str
    width: int
    depth: int

    @property
    def bits(self) -> int:
        return self.width * self.depth


def memories(verilog: str, top: str) -> list[MemoryInstance]:
    """Every memory below the module `top`, in the order of the text."""
    children = {name: _INSTANCE.findall(body) for name, body in _MODULE.findall(verilog)}

    def below(module, path):
        for kind, parameters, name in children[module]:
            place = (*path, name.removeprefix("\\"))
            if kind == RAM_MODULE:
                values = dict(_PARAMETER.findall(parameters))
                # The last part is always the Ram's own instance, which says nothing.
                yield MemoryInstance(".".join(place[:-1]), int(values["WIDTH"]),
                                     int(values["DEPTH"]))
            elif kind in children:
                yield from below(kind, place)
    return list(below(top, ()))
