"""Files that describe boards, and what is wrong in them before a tool runs."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

from amaranth.build import Resource
from amaranth.vendor import LatticeECP5Platform

from .board import Board
from .design import pll_dividers
from .dram.controller import Dram

SUFFIX = ".toml"
_NEEDED = {"ecp5": 136}  # block RAMs of a core, as Yosys maps it
_COLUMNS = {"DDR3": 1024, "SDR": 512}  # of a row of a chip


def load(path: Path) -> Board:
    """The board that a TOML file describes: its keys are the parameters of Board, `dram` and
    `rgmii` are tables of those of Dram and Rgmii.

    Raises
    ------
    ValueError
        The file does not read, or a key is unknown, missing or of another type.
    """
    try:
        return _made(Board, tomllib.loads(path.read_text()), str(path))
    except OSError as error:
        raise ValueError(f"there is no board file {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} is no board file: {error}") from error


def _made(kind: type, entries: Mapping, where: str):
    """An instance of a dataclass."""
    hints = get_type_hints(kind)
    for name in entries:
        if name not in hints:
            close = get_close_matches(name, hints, 1)
            raise ValueError(f"{where}: unknown key {name!r}: "
                             + (f"did you mean {close[0]!r}?" if close
                                else f"expected some of {', '.join(hints)}"))
    missing = [each.name for each in fields(kind) if each.name not in entries
               and each.default is MISSING and each.default_factory is MISSING]
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)} missing: see docs/boards.md")
    values = {name: _value(hints[name], value, f"{where}: {name}")
              for name, value in entries.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _value(hint, value, where: str):
    """A value of TOML as that of a field."""
    inner = next((each for each in get_args(hint) if is_dataclass(each)), None)
    kind = dict if inner or get_origin(hint) else {tuple: list}.get(hint, hint)
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool):
        words = {dict: "a table", list: "a list", int: "an integer", str: "a string",
                 float: "a number"}
        raise ValueError(f"{where} must be {words[kind]}, not {value!r}")
    if inner:
        return _made(inner, value, where)
    if kind is dict:
        return {name: tuple(each) for name, each in value.items()}
    return tuple(value) if kind is list else value


def check(board: Board) -> None:
    """Compare a board with its platform: FPGA, clock, and the pins that a card asks for.

    Raises
    ------
    ModuleNotFoundError
        If amaranth-boards is not installed.
    ValueError
        Everything that is wrong.
    """
    wrong = list(_complaints(board))
    if wrong:
        raise ValueError(f"board {board.name}: {'; '.join(wrong)}")


def _complaints(board: Board) -> Iterator[str]:
    try:
        platform = board.make_platform()
    except (AttributeError, ModuleNotFoundError, ValueError) as error:
        if getattr(error, "name", None) == "amaranth_boards":
            raise
        yield f"platform {board.platform!r} does not exist: expected \"module:class\", {error}"
        return
    if not isinstance(platform, LatticeECP5Platform):
        yield f"platform {board.platform!r} is not of an ECP5"
        return
    device, _, speed = board.device.rpartition("-")
    if (device, speed) != (platform.device, platform.speed):
        yield f"device is {board.device}, and the platform's {platform.device}-{platform.speed}"
    there, needed = board.capacity["bram"], _NEEDED.get(board.preset, 0)
    if there < needed:
        yield (f"device: {board.device} has {there} block RAMs, and the preset {board.preset} "
               f"needs {needed}: an 85F has 208")
    if board.package[-3:] != platform.package[-3:]:
        yield f"package is {board.package}, and the platform's {platform.package}"
    try:
        pll_dividers(round(platform.default_clk_frequency / 1e6), board.clock_mhz)
    except ValueError as error:
        yield f"clock_mhz: {error}"
    asked = [("uart", 0), *([(board.dram.pins, 0)] if board.dram else []),
             *([("eth_rgmii", board.rgmii.number)] if board.rgmii else [])]
    for name, number in asked:
        if (name, number) not in platform.resources:
            known = sorted({each for each, _ in platform.resources})
            yield (f"the platform has no pins {name} {number}: it has {', '.join(known)}; a "
                   f"subclass of it can add_resources")
    if board.dram and (board.dram.pins, 0) in platform.resources:
        yield from _dram_complaints(board.dram, platform.resources[board.dram.pins, 0])


def _dram_complaints(dram: Dram, resource: Resource) -> Iterator[str]:
    pins = {each.name: len(each.ios[0].names)
            for each in resource.ios if each.name in ("a", "ba", "dq")}
    octets = _COLUMNS[dram.memtype] * pins["dq"] // 8 << pins["a"] + pins["ba"]
    if dram.lanes != pins["dq"] // 8:
        yield f"dram: lanes is {dram.lanes}, and dq has {pins['dq']} pins"
    if dram.chip_bytes > octets:
        yield f"dram: chip_bytes is {dram.chip_bytes}, and the pins reach {octets} bytes"
