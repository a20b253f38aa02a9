"""`hotrow boards`, `hotrow build` and `hotrow flash`."""

import json
import sys
from pathlib import Path
from textwrap import fill

from .board import Variant
from .board_file import SUFFIX, check
from .boards import BOARDS, find_board
from .build import build as build_board
from .build import write_files
from .ethernet.station import Station
from .flash import flash as flash_board
from .synthesis import RESOURCES

_BUILD_FOLDER = Path("build")
_NITEFURY = "nitefury"  # whose bitstream other tools make


def boards(subparsers):
    """Add `hotrow boards`."""
    parser = subparsers.add_parser("boards", help="list the boards, or check the file of one",
                                   description="List the boards and what each carries, or check "
                                               "a file that describes one.")
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"a board's, which ends in "
                                                               f"{SUFFIX}")
    _add_json(parser)
    parser.set_defaults(run=_list)


def build(subparsers):
    """Add `hotrow build`."""
    parser = subparsers.add_parser(
        "build", help="build the bitstream of a board",
        description="Synthesise, place, route and pack the accelerator with its link and memory "
                    "for a board with Yosys, nextpnr and ecppack. For nitefury, whose link is PCI "
                    "Express and whose memories are its DRAM and the host's, write the files for "
                    "Vivado and openXC7.")
    _add_board(parser, f", {_NITEFURY}")
    parser.add_argument("--link", default="uart",
                        help="transport to the host, uart or udp (see `hotrow boards`); "
                             "default uart")
    parser.add_argument("--address", help="IPv4 address of a card with --link udp; default "
                                          f"{Station().address}")
    parser.add_argument("--mac", help="its MAC address; default 02:00 followed by "
                                      "its IPv4 address")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help="folder for the bitstream and the files of the tools; default "
                             f"{_BUILD_FOLDER}/BOARD")
    parser.add_argument("--memory", default="block",
                        help="memory of the card: block (block RAM, the default) or dram (the "
                             "board's DRAM, through LiteDRAM's controller)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3],
                        help="seeds of the placement, tried until every clock is fast enough; "
                             "default 1 2 3")
    _add_json(parser)
    parser.set_defaults(run=_build)


def flash(subparsers):
    """Add `hotrow flash`."""
    parser = subparsers.add_parser(
        "flash", help="load a bitstream onto a board",
        description="Load a bitstream of `hotrow build` with openFPGALoader.")
    _add_board(parser)
    parser.add_argument("bitstream", nargs="?", type=Path,
                        help=f"default {_BUILD_FOLDER}/BOARD/hotrow-BOARD.bit")
    parser.add_argument("--keep", action="store_true",
                        help="write the bitstream to the flash memory, where it survives a power "
                             "cycle")
    parser.add_argument("--revision", help="of the board, where the USB bridge depends on it: "
                                           "R02 (default) or R03 of ecpix5")
    parser.set_defaults(run=_flash)


def _list(options):
    boards = BOARDS.values()
    if options.file is not None:
        boards = [find_board(options.file)]
        check(boards[0])
    described = [{
        "board": board.name, "title": board.title, "device": board.device, "preset": board.preset,
        "memory_bytes": board.memory_bytes, "memories": board.memories, "links": board.links,
        "clock_mhz": board.clock_mhz, "unused": board.unused,
    } for board in boards]
    if options.json:
        print(json.dumps({"boards": described}))
        return 0
    for each in described:
        lines = [f"{each['title']}, {each['device']}",
                 f"{each['preset']} at {each['clock_mhz']} MHz, {_memories(each['memories'])}",
                 f"links: {', '.join(map(' '.join, each['links'].items()))}",
                 f"not used: {each['unused']}"]
        for at, line in enumerate(lines):
            print(fill(line, 80, initial_indent=f"{'' if at else each['board']:11}",
                       subsequent_indent=f"{'':13}"))
    return 0


def _memories(sizes):
    """The possible memories of the card, in words."""
    block = f"{sizes['block'] >> 10} KB of block RAM"
    return f"{block} or {sizes['dram'] >> 20} MB of DRAM" if "dram" in sizes else block


def _build(options):
    if options.board == _NITEFURY:
        return _write_nitefury(options)
    board, given = find_board(options.board), {
        name: value for name in ("address", "mac") if (value := getattr(options, name)) is not None}
    check(board)
    if given and options.link != "udp":
        raise ValueError(f"--{next(iter(given))} needs --link udp, not --link {options.link}")
    station = Station(**given)
    variant = Variant(link=options.link, memory=options.memory, station=station)
    board.check(variant)
    folder = _made(options.output or _BUILD_FOLDER / board.name)
    result = build_board(board, folder, options.seeds,
                         lambda text: print(text, file=sys.stderr, flush=True), variant)
    if options.json:
        print(json.dumps(result))
        return 0
    used = "  ".join(f"{result[name]:,} of {board.capacity[name]:,} {name}" for name in RESOURCES)
    print(f"{result['bitstream']}: {result['bitstream_bytes']:,} bytes\n{board.title}: {used}\n"
          f"{result['fmax_mhz']} MHz after routing with seed {result['seed']}, "
          f"{result['clock_mhz']} MHz needed")
    if options.link == "udp":
        print(f"at {station.address} ({station.mac}): hotrow.open(\"udp:{station.address}\")")
    return 0


def _write_nitefury(options):
    if options.link != "uart" or options.memory != "block":
        raise ValueError(f"{_NITEFURY} takes no --link and no --memory: its link is PCI Express, "
                         "its memories are its DRAM and the host's")
    from hotrow_rtl.config import preset

    from .nitefury import files_with_dram  # imports Amaranth

    folder, files = _made(options.output or _BUILD_FOLDER / _NITEFURY), files_with_dram(
        preset("ecp5"))
    write_files(files, folder)
    if options.json:
        print(json.dumps({"board": _NITEFURY, "output": str(folder), "files": {
            name: len(text.encode()) for name, text in files.items()}}))
        return 0
    for name, text in files.items():
        print(f"{folder / name}  {len(text.encode()):,} bytes")
    print("for Vivado: `vivado -mode batch -source build.tcl`; for openXC7: `make`, see Makefile; "
          "neither has been run")
    return 0


def _made(folder):
    """A folder, made if it does not exist."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: -o expects a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _flash(options):
    board = find_board(options.board)
    bitstream = options.bitstream or _BUILD_FOLDER / board.name / f"hotrow-{board.name}.bit"
    flash_board(board, bitstream, options.keep, options.revision)
    print(f"{bitstream} is on the {board.title}")
    return 0


def _add_board(parser, more=""):
    parser.add_argument("--board", required=True, metavar="BOARD",
                        help=f"one of {', '.join(BOARDS)}{more}, or a file that ends in {SUFFIX}")


def _add_json(parser):
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
