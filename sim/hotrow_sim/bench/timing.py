"""A timing diagram in WaveJSON of WaveDrom: the streams of a unit, as a bench has run them."""

import json
import os
import re
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

_CYCLES = 40  # of a diagram
_SETTINGS = ("tables", "regions")  # streams that come before any work


def start(dut: Any, described: dict[str, Any]) -> None:
    """Record the first test that calls this, if `HOTROW_TIMING` names a file; see `record`."""
    if path := os.environ.pop("HOTROW_TIMING", ""):
        cocotb.start_soon(record(dut, described, Path(path)))


async def record(dut: Any, described: dict[str, Any], path: Path) -> None:
    """Sample the ports of a unit at every rising edge, from shortly before the first transfer that
    is no setting on, and write the diagram.

    Parameters
    ----------
    dut : simulator handle
    described : dict
        Content of the JSON file of `hotrow generate --unit`.
    path : Path
    """
    ports = {port["name"]: port for port in described["ports"]
             if port["name"] not in ("clk", "rst")}
    cycles: list[dict[str, Any]] = []
    moved = False
    while len(cycles) < _CYCLES:
        await RisingEdge(dut.clk)
        cycles.append({name: getattr(dut, name).value for name in ports})
        moved = moved or any(_fires(cycles[-1], name) for name in ports
                             if not name.startswith(_SETTINGS))
        if not moved:
            del cycles[:-2]
    path.write_text(json.dumps(wavejson(ports, cycles, described["top"]), indent=1) + "\n")


def wavejson(ports: dict[str, dict[str, Any]], cycles: list[dict[str, Any]],
             title: str) -> dict[str, Any]:
    """The diagram of some cycles: a group for every stream that is active in them.

    Parameters
    ----------
    ports : dict of str to dict
        As in the JSON file of a unit, by name.
    cycles : list of dict
        The value of every port.
    title : str
    """
    groups: list[Any] = [{"name": "clk", "wave": f"p{'.' * (len(cycles) - 1)}"}]
    shown = set()
    for name in ports:
        channel = name.removesuffix("valid")
        others = {kind: channel + kind for kind in ("ready", "payload") if channel + kind in ports}
        if channel == name or not any(_bit(cycle[name]) == "1" for cycle in cycles):
            continue
        lanes = [_wave("valid", [_bit(cycle[name]) for cycle in cycles])]
        if "ready" in others:
            lanes.append(_wave("ready", [_bit(cycle[others["ready"]]) for cycle in cycles]))
        if "payload" in others:
            lanes.append(_payload(ports[others["payload"]], cycles, name))
        shown |= {name, *others.values()}
        groups += [{}, [channel.rstrip("_"), *lanes]]
    single = [_wave(name, [_bit(cycle[name]) for cycle in cycles]) for name in ports
              if name not in shown and not name.endswith(("valid", "ready", "payload"))
              and ports[name]["bits"] == 1 and any(_bit(cycle[name]) == "1" for cycle in cycles)]
    return {"signal": [*groups, {}, *single], "head": {"text": title, "tick": 0}}


def svg(diagram: dict[str, Any]) -> str:
    """The diagram as an image, by the Python package wavedrom."""
    import wavedrom

    text = str(wavedrom.render(json.dumps(diagram)).tostring())
    used = set(re.findall(r'href="#([^"]+)"', text))  # of all the shapes that it defines
    shapes, end, lanes = text.partition("</defs>")
    kept = re.sub(r'<g id="([^"]+)">.*?</g>',
                  lambda found: found[0] if found[1] in used else "", shapes)
    return f"{kept}{end}{lanes}\n"


def _fires(cycle, name):
    return (name.endswith("valid") and _bit(cycle[name]) == "1"
            and _bit(cycle.get(name.removesuffix("valid") + "ready", 1)) == "1")


def _bit(value):
    text = str(value)
    return text if text in ("0", "1") else "x"


def _wave(name, levels, data=()):
    wave = "".join("." if number and level == levels[number - 1] else level
                   for number, level in enumerate(levels))
    return {"name": name, "wave": wave, **({"data": list(data)} if data else {})}


def _payload(port, cycles, valid):
    """Its first field while it is valid."""
    field = port["fields"][0] if port["fields"] else {"name": "", "offset": 0, "bits": port["bits"]}
    wave, data, before = "", [], None
    for cycle in cycles:
        value = _field(cycle[port["name"]], field) if _bit(cycle[valid]) == "1" else None
        wave += "." if wave and value == before else ("x" if value is None else "=")
        if value is not None and value != before:
            data.append(value)
        before = value
    return {"name": field["name"] or "payload", "wave": wave, "data": data}


def _field(value, field):
    bits = str(value)[::-1][field["offset"]:field["offset"] + field["bits"]][::-1]
    return f"{int(bits, 2):x}" if bits.strip("01") == "" else "x"


