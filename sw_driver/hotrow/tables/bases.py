"""Files in which the rows of a table begin. They are read in place, and never written."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contract.errors import Error

_PAGE, _SAMPLES = 4096, 64
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
           "F8_E5M2": "float8_e5m2"}
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
DTYPES = tuple(_BYTES)  # in the order of the compiled library


@dataclass(frozen=True)
class TensorBase:
    """A tensor of published safetensors files, whose rows are converted to the table's dtype.

    Parameters
    ----------
    files : sequence of str or Path
        Each has the tensor, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2 [any rows,
        dim]; the table's rows are those of all files, one after the other. A scale that a
        checkpoint keeps beside fp8 is not applied.
    tensor : str
    """

    files: Sequence[str | os.PathLike[str]]
    tensor: str

    def __post_init__(self) -> None:
        files = self.files
        given = [files] if isinstance(files, (str, bytes, os.PathLike)) else files
        object.__setattr__(self, "files", tuple(map(os.fsdecode, given)))

    def kept(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """What a manifest says of the base of a table that it describes; raises Error where the
        files have another tensor."""
        found, rows = [self._file(Path(path), table["dim"]) for path in self.files], _rows(table)
        if sum(file["rows"] for file in found) != rows or len(
                {file["dtype"] for file in found}) > 1:
            raise Error(f"table {table['name']!r}: expected {rows} rows of one dtype in "
                        f"all files of its base, got "
                        f"{[(each['rows'], each['dtype']) for each in found]}")
        return {"kind": "safetensors", "tensor": self.tensor, "files": found}

    def _file(self, path: Path, expected: int) -> dict[str, Any]:
        first = _begin(path, 8)
        length = int.from_bytes(first, "little")
        text = _begin(path, 8 + min(length, 100 << 20))[8:]
        size, header = path.stat().st_size, None
        try:
            header = json.loads(text)
            entry = header[self.tensor]
            (rows, dim), (begin, end) = entry["shape"], entry["data_offsets"]
            dtype = _DTYPES[entry["dtype"]]
            if any(type(number) is not int for number in (rows, dim, begin, end)):
                raise TypeError(f"shape {entry['shape']} at {entry['data_offsets']}")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            there = f"{type(error).__name__}: {error}"
            if isinstance(header, dict):
                there += f", in a file with the tensors {sorted(header.keys() - {'__metadata__'})}"
            if header is None and first[:1] == b"{":
                there = "it looks like an index: name the shard that has the tensor by it"
            raise Error(f"the file {path} is no safetensors file with a tensor {self.tensor!r} of "
                        f"{', '.join(_DTYPES)} [rows, dim] ({there[:500]})") from error
        if dim != expected or rows < 1 or end - begin != rows * dim * _BYTES[dtype] or (
                not 0 <= begin <= end <= size - 8 - length):
            raise Error(f"the file {path} has tensor {self.tensor!r} of shape {[rows, dim]} at "
                        f"bytes {begin} to {end} of {size - 8 - length}, and rows of {expected} "
                        f"elements within the file are expected")
        return {**identity(path, 8 + length), "rows": rows, "dtype": dtype, "state": 0,
                "offset": 8 + length + begin, "row_bytes": dim * _BYTES[dtype], "columns": 0}


@dataclass(frozen=True)
class FileBase:
    """A file of the format "hotrow table 1", with the optimizer's state if it has any.

    Parameters
    ----------
    path : str or Path
    """

    path: str | os.PathLike[str]

    def kept(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """What a manifest says of the base of a table that it describes; raises Error where the
        file has another table."""
        path = Path(self.path)
        text = _begin(path, 1 << 16)
        try:
            header, _ = json.JSONDecoder().raw_decode(text[:text.find(b"\n")].decode())
            page, width, rows = (int(header[key]) for key in ("page", "elements", "rows"))
            dtype, state = header["dtype"], header["state"]
            known = (header["format"] == "hotrow table 1" and bool(header["filled"])
                     and min(page // 4, width, rows) > 0)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            known = False
        if not known or dtype not in _BYTES:
            raise Error(f"the file {path} is no table of the format 'hotrow table 1' with rows")
        wanted = {"rows": _rows(table), "dim": table["dim"]}
        if state:
            wanted |= {key: table[key] for key in ("state", "optimizer")}
        if state == "element":
            wanted["dtype"] = table["dtype"]
        differing = [f"{key} is {header.get(key)!r}, and the table's {value!r}"
                     for key, value in wanted.items() if header.get(key) != value]
        columns = table["columns"] if state == "element" else 0
        row_bytes, padded = width * _BYTES[dtype], -(-rows // (page // 4)) * (page // 4)
        size = page + padded * (row_bytes + 4 * (state == "row"))
        if differing or width < table["dim"] + columns or path.stat().st_size != size:
            raise Error(f"the file {path} has another table, or is cut: "
                        f"{'; '.join(differing) or f'{size} bytes are expected'}")
        if not header.get("closed"):
            warnings.warn(f"the file {path} was not closed by the process that trained it: its "
                          f"rows are of different steps", stacklevel=2)
        return {"kind": "hotrow-1", "files": [{
            **identity(path, page), "rows": rows, "dtype": dtype, "offset": page,
            "state": page + padded * row_bytes if state == "row" else 0, "row_bytes": row_bytes,
            "columns": columns}]}


def _rows(table: Mapping[str, Any]) -> int:
    """Rows of the table of which a manifest describes a part or all."""
    rows: int = (table.get("part") or (0, 1, table["rows"]))[2]
    return rows


def of(kept: dict[str, Any]) -> TensorBase | FileBase | None:
    """The base that a manifest describes."""
    if kept["kind"] == "safetensors":
        return TensorBase(tuple(file["path"] for file in kept["files"]), kept["tensor"])
    return FileBase(kept["files"][0]["path"]) if kept["kind"] == "hotrow-1" else None


def identity(path: Path, header: int) -> dict[str, Any]:
    """Path and size of a file, and SHA-256 of its header and of pages all over it."""
    size, pages = path.stat().st_size, hashlib.sha256()
    with open(path, "rb") as file:
        begin = hashlib.sha256(file.read(header)).hexdigest()
        for sample in range(_SAMPLES):
            file.seek(max(0, size - _PAGE) * sample // (_SAMPLES - 1))
            pages.update(file.read(_PAGE))
    return {"path": str(path.absolute()), "size": size, "header": begin, "pages": pages.hexdigest()}


def changed(found: dict[str, Any], asked: dict[str, Any]) -> str:
    """How the base that is asked for differs from that of a manifest; "" where it does not."""
    if [found["kind"], found.get("tensor"), len(found.get("files", ()))] != [
            asked["kind"], asked.get("tensor"), len(asked.get("files", ()))]:
        return f"its base is {_named(found)}, and {_named(asked)} was asked for"
    for one, other in zip(found.get("files", ()), asked.get("files", ()), strict=True):
        for key in other:
            if key != "path" and one[key] != other[key]:
                return (f"the file {other['path']} of its base has changed ({key}): the rows that "
                        f"were not trained would be others; copy it from where it is whole")
    return ""


def verify(kept: dict[str, Any]) -> None:
    """Read the files of a base to their end, and record their SHA-256 if a manifest has none.

    Raises
    ------
    Error
        A file has changed.
    """
    for file in kept.get("files", ()):
        try:
            with open(file["path"], "rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(Path(file["path"]), error) from error
        if file.setdefault("sha256", digest) != digest:
            raise Error(f"the file {file['path']} of a base has changed since it was verified: "
                        f"copy it from where it is whole")


def _named(kept: dict[str, Any]) -> str:
    if kept["kind"] == "seed":
        return "a seed"
    return f"{kept['kind']} {[Path(file['path']).name for file in kept['files']]}" + (
        f" tensor {kept['tensor']!r}" if "tensor" in kept else "")


def _begin(path: Path, size: int) -> bytes:
    """The first bytes of a file."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no file")
        with open(path, "rb") as file:
            return file.read(size)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> Error:
    return Error(f"the file {path} of a base cannot be read: {error}: name the file where it is")
