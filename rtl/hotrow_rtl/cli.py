"""`hotrow generate`: Verilog of a card with its register and command map, or of one unit."""

import json
import sys
from pathlib import Path

from .config import PRESETS, Config, preset
from .contract.render import render
from .contract.systemrdl import systemrdl
from .units.catalog import LANES, UNITS, configured, unit

FORMATS = ("xrt", "ipxact", "vivado", "nitefury")


def generate(subparsers):
    """Add `hotrow generate`."""
    parser = subparsers.add_parser(
        "generate", help="write the Verilog of a card or of one of its units",
        description="Write the Verilog of a preset, its geometry as JSON, the register and "
                    "command map as JSON, C header and Markdown, and the registers as SystemRDL; "
                    "or the Verilog of one unit for a design of your own, with its ports as JSON "
                    "and Markdown. The same parameters give the same bytes.")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--preset", metavar="PRESET", help=f"one of {', '.join(PRESETS)}")
    chosen.add_argument("--unit", metavar="UNIT", help=f"one of {', '.join(UNITS)}")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
                        help="a parameter, any number of times: one of hotrow_rtl.config.Config, "
                             f"or lanes ({', '.join(map(str, LANES))}), for which bus_bytes is "
                             "4 a lane")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR",
                        help="folder for the files, made if it does not exist")
    parser.add_argument("--format", choices=("map", *FORMATS), default="map",
                        help="map (default): the register and command map; xrt: a Vitis kernel; "
                             "ipxact: an IP-XACT component; vivado: scripts for synthesis; "
                             "nitefury: a design for the NiteFury II card, with LitePCIe")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Write the files.

    Raises
    ------
    ValueError
        If preset, unit or parameter is unknown, a value is out of its range, or the output is a
        file.
    """
    folder, settings = options.output, parse_settings(options.settings)
    if options.unit:
        chosen = unit(options.unit)
        config = chosen.config(settings)
        if options.format != "map":
            raise ValueError(f"--format {options.format} is for a card: use it with --preset")
    else:
        config = variant(options.preset, settings)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: -o needs the name of a folder")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"emitting the Verilog of {options.unit or config.name} ...", file=sys.stderr)
    if options.unit:
        from .emit.unit import unit_files  # loads Amaranth
        from .export.fusesoc import fusesoc_files

        files, described = unit_files(chosen, config)
        files |= fusesoc_files("units", chosen.name, chosen.module, f"{chosen.module}.v",
                               described["ports"])
    else:
        files, described = files_of(config, options.format)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    if options.json:
        print(json.dumps({**described, "output": str(folder),
                          "files": {name: len(text.encode()) for name, text in files.items()}}))
        return 0
    for name, text in files.items():
        print(f"{folder / name}  {len(text.encode()):,} bytes")
    print(f"{summary(config, described)}, "
          f"{described['memory_bits']:,} bits in {len(described['memories'])} memories")
    return 0


def summary(config: Config, described: dict) -> str:
    """The main sizes of a card, or the parameters of a unit."""
    if "unit" in described:
        return ", ".join(f"{name} {value}" for name, value in described["parameters"].items())
    return (f"{config.lanes} lanes, {config.slots:,} slots, "
            f"{config.counter_entries:,} counters")


def parse_settings(texts) -> dict[str, str]:
    """Parameters and their values from texts such as "lanes=4".

    Raises
    ------
    ValueError
        If a text has no "=", or a parameter occurs twice.
    """
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set {text}: expected NAME=VALUE, such as lanes=4")
        if name in settings:
            raise ValueError(f"--set {name} is given twice")
        settings[name] = value
    return settings


def variant(name: str, settings: dict[str, str]) -> Config:
    """A preset with some parameters set; it is called NAME-variant unless `name` is set."""
    chosen = preset(name)
    return configured(chosen, {"name": f"{name}-variant", **settings}) if settings else chosen


def files_of(config, kind="map") -> tuple[dict[str, str], dict]:
    """The text of every file by name, and the content of the geometry file.

    Parameters
    ----------
    config : Config
    kind : str
        "map", or one of `FORMATS`.
    """
    from .emit.component import lint_waiver
    from .emit.memory_report import memories
    from .emit.verilog import TOP_MODULE, emit  # loads Amaranth
    from .export.fusesoc import fusesoc_files
    from .export.interfaces import ports_of

    exported = {}
    if kind != "map":
        from .export import FILES

        exported = FILES[kind](config)
    verilog = exported.get(f"{config.name}.v") or emit(config)
    held = memories(verilog, TOP_MODULE)
    described = {
        "preset": config.name,
        "top": TOP_MODULE,
        "parameters": config.describe(),
        "lanes": config.lanes,
        "slots": config.slots,
        "counter_entries": config.counter_entries,
        "memory_bits": sum(memory.bits for memory in held),
        "memories": [{"path": memory.path, "width": memory.width, "depth": memory.depth}
                     for memory in held],
    }
    geometry = json.dumps(described, indent=1) + "\n"
    beside = exported or {
        f"{config.name}.vlt": lint_waiver(f"{config.name}.v"),
        f"{config.name}.rdl": systemrdl(config), **render(),
        **fusesoc_files("cards", config.name, TOP_MODULE, f"{config.name}.v", ports_of(config))}
    return {f"{config.name}.v": verilog, f"{config.name}.json": geometry, **beside}, described
