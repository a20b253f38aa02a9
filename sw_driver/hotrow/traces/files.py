"""Reading separated text, plain or gzip, and converting its columns to numbers."""

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..contract.extras import advice
from .trace import TraceError

if TYPE_CHECKING:  # which takes long to load
    import polars

LARGEST_ID, LARGEST_HASHED = 2**32 - 1, 2**63 - 1
_ANY_IDS = "hotrow train takes any id with --any-ids ROWS --mode scratchpipe"


def read_text(path: str | Path, header: bool) -> "polars.DataFrame":
    """All cells of a file separated by tabs, commas or semicolons, or of Parquet, as text.

    Parameters
    ----------
    path : str or Path
        Plain or gzip; Parquet as it is.
    header : bool
        Whether the first line of a text names the columns.

    Returns
    -------
    polars.DataFrame
        String columns; an empty cell is null. Nested columns of Parquet are left out.
    """
    path = Path(path)
    if path.is_dir():
        raise TraceError(f"{path} is a folder: name a file in it")
    if not path.is_file():
        raise TraceError(f"no trace file {path}")
    try:
        import polars
    except ModuleNotFoundError as missing:
        raise TraceError(f"reading a trace file {advice(missing)}") from missing
    try:
        if (first := _first_line(path)).startswith(b"PAR1"):
            frame = polars.read_parquet(path)
            frame = frame.select(name for name, dtype in frame.schema.items()
                                 if not dtype.is_nested()).cast(polars.String)
        else:
            if b"\0" in first:
                raise TraceError(f"{path} is no text: expected columns separated by tabs, commas "
                                 "or semicolons, or Parquet")
            separator = next(filter(first.decode().count, "\t;,"), "\t")
            frame = polars.read_csv(path, separator=separator, has_header=header,
                                    infer_schema=False,
                                    quote_char=None if separator == "\t" else '"')
    except polars.exceptions.NoDataError:
        raise TraceError(f"{path} is empty") from None
    except (polars.exceptions.PolarsError, OSError, EOFError, zlib.error,
            UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise TraceError(f"{path} is no table of columns separated by tabs, commas "
                         f"or semicolons: {reason}") from None
    if not frame.height:
        raise TraceError(f"{path} is empty: it has a header and no rows" if header
                         else f"{path} is empty")
    return frame


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with (gzip.open if packed else open)(path, "rb") as file:
        return file.readline(1 << 20)


def integers(text: "polars.Series", name: str, first_line: int,
             base: int = 10) -> NDArray[np.int64]:
    """Cells as integers.

    Parameters
    ----------
    text : polars.Series of str
    name : str
        Name of the column, for messages.
    first_line : int
        Line of the first cell in the file.
    base : int

    Returns
    -------
    int64[N]
        -1 where a cell is empty.

    Raises
    ------
    TraceError
        Naming the line of a cell that is not an integer.
    """
    cells = _whole(text) if base == 10 else text.str.strip_chars()
    numbers = cells.str.to_integer(base=base, strict=False)
    wrong = (numbers.is_null() & text.is_not_null()).arg_true()
    if len(wrong):
        kind = "an integer" if base == 10 else f"a base-{base} number"
        raise _cell(name, first_line, wrong[0], text[int(wrong[0])], f"expected {kind}",
                    f": {_ANY_IDS}; or number the values from 0, as pandas.factorize does"
                    if base == 10 else "")
    return numbers.fill_null(-1).to_numpy().astype(np.int64)


def _whole(text: "polars.Series") -> "polars.Series":
    """Cells without what surrounds an integer: pandas writes 24.0 in a column with empty cells."""
    return text.str.strip_chars().str.replace(r"\.0+$", "")


def any_ids(text: "polars.Series") -> NDArray[np.int64]:
    """Cells as ids of 64 bits, which need not be rows: int64[N].

    An integer is its own id, if all cells are integers of 64 bits or empty. Else the ids are those
    that `hotrow.torch.ids_of` gives strings. An empty cell has the id of the empty string.
    """
    import polars

    from ..ids.initial import string_ids  # with PyTorch, whose loading takes seconds

    signed, unsigned = (_whole(text).cast(dtype, strict=False)
                        for dtype in (polars.Int64, polars.UInt64))
    numbers = signed.zip_with(signed.is_not_null(), unsigned.reinterpret(signed=True))
    if (numbers.is_null() & text.is_not_null()).any():
        return string_ids([(cell or "").encode() for cell in text])
    return numbers.fill_null(int(string_ids([b""])[0])).to_numpy().astype(np.int64)


def ids(text: "polars.Series", name: str, first_line: int,
        hash_rows: int | None = None) -> NDArray[np.uint32]:
    """Cells as row ids 0 to 2**32 - 1, modulo `hash_rows` if given: uint32[N]; see `integers`."""
    numbers = integers(text, name, first_line)
    missing = text.is_null().to_numpy()
    checks = (
        (missing, "expected an id, the cell is empty"),
        (numbers < 0, "an id cannot be negative"),
        (numbers > (LARGEST_ID if hash_rows is None else LARGEST_HASHED),
         f"an id is at most {LARGEST_ID}, unless --hash-rows N hashes the ids"),
    )
    for wrong, complaint in checks:
        if wrong.any():
            at = int(wrong.argmax())
            raise _cell(name, first_line, at, text[at], complaint, f": {_ANY_IDS}")
    return (numbers if hash_rows is None else numbers % hash_rows).astype(np.uint32)


def labels(text: "polars.Series", name: str, first_line: int) -> NDArray[np.float32]:
    """Cells as labels, as float32[N] of 0 and 1, which may be written false and true."""
    numbers = _floats(text.replace(["true", "True", "false", "False"], ["1", "1", "0", "0"]))
    wrong = ~np.isin(numbers, (0.0, 1.0))
    if wrong.any():
        at = int(wrong.argmax())
        raise _cell(name, first_line, at, text[at],
                    "a label is 0 or 1" + ("" if text[at] else ", the cell is empty"))
    return numbers.astype(np.float32)


def floats(text: "polars.Series", name: str, first_line: int) -> NDArray[np.float64]:
    """Cells as float64[N], NaN where a cell is empty."""
    numbers = _floats(text)
    wrong = ~np.isfinite(numbers) & text.is_not_null().to_numpy()
    if wrong.any():
        at = int(wrong.argmax())
        raise _cell(name, first_line, at, text[at], "expected a finite number")
    return numbers


def _floats(text: "polars.Series") -> NDArray[np.float64]:
    import polars

    numbers = text.str.strip_chars().cast(polars.Float64, strict=False)
    return numbers.fill_null(float("nan")).to_numpy().copy()


def _cell(name: str, first_line: int, at: int, value: str | None, complaint: str,
          remedy: str = "") -> TraceError:
    shown = "" if value is None else f", not {value!r}"
    return TraceError(f"column {name!r}, line {first_line + int(at)}: {complaint}{shown}"
                      f"{remedy}")
