"""Tensors as a safetensors file, written piece after piece: no tensor need fit memory."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import Error
from .rows import flat_rows
from .table import Table

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8}

CHUNK = 1 << 15  # rows of a ticket, and of a piece
Tensor = tuple[str, str, tuple[int, ...], Iterator[NDArray[Any]]]  # name, dtype, shape, pieces


def write_safetensors(file: str | os.PathLike[str], tensors: Sequence[Tensor],
                      metadata: dict[str, str]) -> None:
    """Write a file that the safetensors library reads, in one step.

    Parameters
    ----------
    file : str or Path
    tensors : sequence of (name, dtype, shape, pieces)
        Pieces, one after the other, are the tensor's bytes.
    metadata : dict

    Raises
    ------
    Error
        The file cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, dtype, shape, _ in tensors:
        size = int(np.prod(shape)) * _BYTES[DTYPES[dtype]]
        header[name] = {"dtype": DTYPES[dtype], "shape": list(shape),
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pieces: Iterable[bytes] = (np.ascontiguousarray(piece).tobytes()
                               for *_, each in tensors for piece in each)
    path = Path(file)
    new = path.with_name(path.name + ".new")
    try:
        with open(new, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.writelines(pieces)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if not isinstance(error, OSError):
            raise
        raise Error(f"the file {path} could not be written: {error}: make space, or name another "
                    f"file") from error


class _Readable(Protocol):
    @property
    def number(self) -> int: ...

    def rows(self, table: str, ids: ArrayLike) -> Any: ...


def export_table(reader: _Readable, about: Table, file: str | os.PathLike[str],
                 ids: ArrayLike | None) -> None:
    """Write a table of a reader, or some of its rows, to a safetensors file."""
    name = about.name
    listed = np.arange(about.rows) if ids is None else flat_rows(ids)
    pieces = (reader.rows(name, listed[first:first + CHUNK])
              for first in range(0, listed.size, CHUNK))
    tensors: list[Tensor] = [(name, about.dtype, (listed.size, about.dim), pieces)]
    if ids is not None:
        whole = iter([listed])
        tensors.append((f"{name}.ids", "int64", (listed.size,), whole))
    write_safetensors(file, tensors, {"commit": str(reader.number), "table": name})
