"""Manifests: one JSON object and its CRC; the rename of one is the commit."""

import json
import os
import re
import zlib
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from ..contract.errors import Error
from ..system.files import sync_folder

FORMAT = 2
STEP_BITS = 32  # of `step` in a rank's commit: the optimizer's steps, below the common number


def manifest_path(folder: Path, number: int) -> Path:
    """Of a commit."""
    return folder / f"commit-{number:012d}.json"


def numbers(folder: Path) -> list[int]:
    """Of the commits of a folder, ascending."""
    return [number for number, _ in numbered(folder, "commit", ".json", 12)]


def segment_files(folder: Path) -> list[tuple[int, Path]]:
    """Numbers and files of the segments in a folder, ascending."""
    return numbered(folder, "seg", ".log", 8)


def numbered(folder: Path, kind: str, suffix: str, digits: int) -> list[tuple[int, Path]]:
    """Numbers and files of a kind, ascending, without those that others have put there."""
    found = [(path.name[len(kind) + 1:-len(suffix)], path)
             for path in folder.glob(f"{kind}-*{suffix}")]
    return sorted((int(number), path) for number, path in found
                  if number.isdecimal() and f"{int(number):0{digits}d}" == number)


def rank_folder(folder: Path, rank: int, world: int) -> Path:
    """Folder of the rows of one of several ranks."""
    return folder / f"rank-{rank:03d}-of-{world:03d}"


def rank_folders(folder: Path) -> list[tuple[Path, int]]:
    """Those that exist, each with its number of ranks."""
    return [(each, int(each.name.rpartition("-")[2]))
            for each in sorted(folder.glob("rank-*-of-*"))
            if re.fullmatch("rank-[0-9]{3,}-of-[0-9]{3,}", each.name)]


def check_alone(folder: Path) -> None:
    """Raise Error if a folder has those of several ranks."""
    ranks = rank_folders(folder)
    if ranks:
        _, world = ranks[0]
        raise Error(f"the folder {folder} has tables that {world} ranks share out: train them with "
                    f"as many, or read all parts by hotrow.tables.open({str(folder)!r})")


def replace(path: Path, content: bytes) -> None:
    """Write a file of this content, in one step and durable but for its name."""
    new = path.with_name(path.name + ".new")
    try:
        with open(new, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
        raise


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Commit: durable when the call returns. What would not open again is not written."""
    if not _is_manifest(manifest, manifest["number"]):
        raise Error(f"commit {manifest['number']} in {folder} would not open again, and was not "
                    f"made: expected rows, dim, seed, step and sizes as whole numbers")
    text = json.dumps(manifest).encode() + b"\n"
    replace(manifest_path(folder, manifest["number"]),
            text + f"crc32 {zlib.crc32(text):08x} {len(text)}\n".encode())
    sync_folder(folder)


def read_manifest(folder: Path, number: int) -> dict[str, Any]:
    """The manifest of a commit.

    Raises
    ------
    Error
        It is damaged, or of a format that is not known.
    """
    path = manifest_path(folder, number)
    content = path.read_bytes()
    text = content[:content.rfind(b"\n", 0, -1) + 1]
    if content != text + f"crc32 {zlib.crc32(text):08x} {len(text)}\n".encode():
        lower = [each for each in numbers(folder) if each < number]
        remedy = f"or open commit {lower[-1]}, the one before" if lower else "no other exists"
        raise Error(f"the file {path} is damaged: copy it from where it is whole, {remedy}")
    found: dict[str, Any] = json.loads(text)
    if found.get("format") != FORMAT:
        raise Error(f"the file {path} has format {found.get('format')!r}, and this version reads "
                    f"{FORMAT}")
    if not _is_manifest(found, number):
        raise Error(f"the file {path} is no manifest that a store wrote: copy it from where it is "
                    f"whole")
    return found


def _is_manifest(found: dict[str, Any], number: int) -> bool:
    try:
        return found["number"] == number and len(bytes.fromhex(found["store"])) == 16 and (
            _have(found, _KINDS) and found["block_bytes"] in range(4096, 1 << 31, 4096)
            and found["segment_blocks"] in range(1, 1 << 31)
            and all(_have(table, _TABLE_KINDS) and type(table["seed"]) is int
                    and table["dim"] in range(1, 1 << 31) and "kind" in table["base"]
                    for table in found["tables"])
            and all(map(_is_number, chain(*found["segments"], *found["gaps"],
                                          found["kept"].values()))))
    except (TypeError, ValueError, AttributeError, KeyError):
        return False


_KINDS = {name: int for name in ("step", "history_from", "block_bytes", "segment_blocks",
                                 "next_segment")} | {"tables": list, "kept": dict}
_TABLE_KINDS = {"name": str, "rows": int, "dim": int, "bound": float, "dtype": str,
                "initial_state": float, "base": dict}


def _have(found: dict[str, Any], kinds: dict[str, Any]) -> bool:
    """Whether values are of these types, and integers are of 64 bits."""
    return all(_is_number(found[name]) if kind is int else
               isinstance(found[name], (int, float) if kind is float else kind)
               for name, kind in kinds.items())


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 64
