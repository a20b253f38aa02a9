"""`hotrow example`: a unit in a folder of one's own, with its Verilog and its bench."""

import shutil
import sys
from pathlib import Path

EXAMPLES = Path(__file__).with_name("examples")


def example(subparsers):
    """Add `hotrow example`."""
    names = sorted(path.name for path in EXAMPLES.iterdir())
    parser = subparsers.add_parser(
        "example", help="a unit with its cocotb bench, to change",
        description="Write a Makefile and a cocotb bench for a unit. `make` in that folder "
                    "generates the Verilog and runs the bench beside the golden model.")
    parser.add_argument("name", choices=names, help="the unit")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR",
                        help="folder for the files, made if it does not exist")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Write the files.

    Raises
    ------
    ValueError
        If the output is a file, or has one of the files.
    """
    folder = options.output
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: -o needs the name of a folder")
    sources = [path for path in sorted((EXAMPLES / options.name).iterdir()) if path.is_file()]
    for path in sources:
        if (folder / path.name).exists():
            raise ValueError(f"{folder / path.name} exists: -o needs an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    simulator = "icarus" if shutil.which("iverilog") else "verilator"
    for path in sources:
        text = path.read_text(encoding="utf-8")
        text = text.replace("@BIN@", str(Path(sys.executable).parent)).replace("@SIM@", simulator)
        (folder / path.name).write_text(text, encoding="utf-8", newline="\n")
        print(folder / path.name)
    print(f"now: make -C {folder}")
    return 0
