"""`hotrow generate`: Verilog, the register and command map, and the geometry of a preset."""

import json
import sys
from pathlib import Path

from .config import PRESETS, preset
from .contract.render import render

FORMATS = ("xrt", "ipxact", "vivado", "nitefury")


def generate(subparsers):
    """Add `hotrow generate`."""
    parser = subparsers.add_parser(
        "generate", help="write the Verilog and the register and command map of a preset",
        description="Write the Verilog of a preset, its geometry as JSON, and the register and "
                    "command map as JSON, C header and Markdown. The same preset gives the same "
                    "bytes.")
    parser.add_argument("--preset", required=True, metavar="PRESET",
                        help=f"one of {', '.join(PRESETS)}")
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
        If the preset is unknown, or the output is a file.
    """
    config, folder = preset(options.preset), options.output
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: -o needs the name of a folder")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"emitting the Verilog of {config.name} ...", file=sys.stderr)
    files, described = files_of(config, options.format)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    if options.json:
        print(json.dumps({**described, "output": str(folder),
                          "files": {name: len(text.encode()) for name, text in files.items()}}))
        return 0
    for name, text in files.items():
        print(f"{folder / name}  {len(text.encode()):,} bytes")
    print(f"{config.lanes} lanes, {config.slots:,} slots, {config.counter_entries:,} counters, "
          f"{described['memory_bits']:,} bits in {len(described['memories'])} memories")
    return 0


def files_of(config, kind="map") -> tuple[dict[str, str], dict]:
    """The text of every file by name, and the content of the geometry file.

    Parameters
    ----------
    config : Config
    kind : str
        "map", or one of `FORMATS`.
    """
    from .emit.memory_report import memories
    from .emit.verilog import TOP_MODULE, emit  # loads Amaranth

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
    return {f"{config.name}.v": verilog, f"{config.name}.json": geometry,
            **(exported or render())}, described
