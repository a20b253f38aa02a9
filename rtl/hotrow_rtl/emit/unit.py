"""Verilog of a unit that stands alone, with its ports and the fields of their payloads."""

import inspect
import json
import re
from enum import EnumType

from amaranth.hdl import Shape
from amaranth.lib import data
from amaranth.lib.wiring import In

from ..config import Config
from ..units.catalog import Unit
from .component import flat_ports, lint_waiver, to_verilog
from .memory_report import memories

SEPARATOR = "_"  # in the names of ports
_CLOCK = [{"name": name, "direction": "input", "bits": 1, "fields": []} for name in ("clk", "rst")]


def unit_files(unit: Unit, config: Config) -> tuple[dict[str, str], dict]:
    """The text of every file of a unit by name, and the content of its JSON file.

    Parameters
    ----------
    unit : Unit
    config : Config
        Of `unit.config`.
    """
    component = unit.make(config)
    text = to_verilog(component, unit.module, flat_ports(component, SEPARATOR))
    held = memories(text, unit.module)
    described = {
        "unit": unit.name,
        "top": unit.module,
        "parameters": unit.describe(config),
        "ports": [*_CLOCK, *ports_of(component)],
        "golden": unit.golden,
        "memory_bits": sum(memory.bits for memory in held),
        "memories": [{"path": memory.path, "width": memory.width, "depth": memory.depth}
                     for memory in held],
    }
    parameters = ", ".join(f"{name}={value}" for name, value in described["parameters"].items())
    return {
        f"{unit.module}.v": f"// hotrow, unit {unit.name}, {parameters}: emitted by hotrow_rtl\n"
                            f"{text}",
        f"{unit.module}.vlt": lint_waiver(f"{unit.module}.v"),
        f"{unit.module}.json": json.dumps(described, indent=1) + "\n",
        f"{unit.module}.md": _page(described, component, parameters),
    }, described


def ports_of(component) -> list[dict]:
    """The ports of a component, with the fields of those that are structures.

    Returns
    -------
    list of dict
        `name`, `direction`, `bits`, and `fields`: `name`, `offset` of the lowest bit, and `bits`.
    """
    members = _members(component)
    return [{"name": name,
             "direction": "input" if members[name].flow is In else "output",
             "bits": len(value),
             "fields": [{"name": ".".join(path), "offset": offset, "bits": bits}
                        for path, offset, bits in _fields(members[name].shape)]}
            for name, (value, _) in flat_ports(component, SEPARATOR).items()]


def _members(component):
    """The members of a component by the names of their ports."""
    return {SEPARATOR.join(map(str, path)): member
            for path, member, _ in component.signature.flatten(component)}


def _fields(shape, path=(), offset=0):
    """(path, offset, bits) of every field of a layout that has bits."""
    if isinstance(shape, data.Layout):
        for key, field in shape:
            if field.width:
                yield from _fields(field.shape, (*path, str(key)), offset + field.offset)
    elif path:
        yield path, offset, Shape.cast(shape).width


def _rows(shape, name="", at="", offset=0):
    """(name, position of the lowest bit, bits and meanings) of every field; an array is one row,
    with an index."""
    if isinstance(shape, data.ArrayLayout):
        index = "ijk"[at.count("+")]
        stride = Shape.cast(shape.elem_shape).width
        yield from _rows(shape.elem_shape, f"{name}[{index}]", f"{at}{stride} {index} + ", offset)
    elif isinstance(shape, data.Layout):
        for key, field in shape:
            if field.width:
                yield from _rows(field.shape, f"{name}.{key}" if name else str(key), at,
                                 offset + field.offset)
    else:
        meanings = ", ".join(f"{each.value} {each.name}" for each in shape) if isinstance(
            shape, EnumType) else ""
        yield name, f"{at}{offset}", f"{Shape.cast(shape).width}{meanings and f': {meanings}'}"


def _page(described, component, parameters):
    """The unit's page: what it does, its ports, and the fields of their payloads."""
    summary, _, rest = inspect.getdoc(type(component)).partition("\n")
    body, *sections = re.split(r"^(\w+)\n-+\n", rest, flags=re.M)
    parts = dict(zip(sections[::2], sections[1::2], strict=True))
    ports = [f"- `{name}`: {' '.join(text.split()) or 'see the fields below.'}"
             for name, text in re.findall(r"^(\w[\w, .]*) : .*\n((?:    .*\n|\n)*)",
                                          parts["Attributes"] + "\n", flags=re.M)]
    lines = [f"# {described['top']}", "", summary, "", body.strip(), "",
             f"Parameters: {parameters}. Its bench compares it with `{described['golden']}`.", "",
             "## Ports", "", *ports, "", "| port | direction | bits |", "|---|---|---|",
             *(f"| `{port['name']}` | {port['direction']} | {port['bits']} |"
               for port in described["ports"])]
    members = _members(component)
    for port in described["ports"]:
        if port["fields"]:
            lines += ["", f"## Fields of `{port['name']}`", "", "| field | lowest bit | bits |",
                      "|---|---|---|",
                      *(f"| `{name}` | {at} | {bits} |"
                        for name, at, bits in _rows(members[port["name"]].shape))]
    return "\n".join([*lines, "", "## Timing", "", parts["Timing"].strip(), ""])
