"""Reading separated text, plain or gzip, and converting its columns to numbers."""

import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..contract.extras import advice
from .trace import TraceError

if TYPE_CHECKING:  # which takes long to load
    import polars

LARGEST_ID, LARGEST_HASHED = 2**32 - 1, 2**63 - 1
_PACKED = {b"PK\3\4": "a zip archive or a spreadsheet", b"BZh": "packed by bzip2",
           b"\xfd7zXZ": "packed by xz", b"\x28\xb5\x2f\xfd": "packed by zstd"}
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
        String columns; an empty cell is null. Nested columns of Parquet, and bytes that
        are no UTF-8, are as they are.
    """
    path = Path(path)
    if path.is_dir():
        raise TraceError(f"{path} is a folder: name a file in it")
    if not path.is_file():
        raise TraceError(f"no trace file {path}" + (
            ": a trace is a file of this machine, download it first" * (":/" in str(path))))
    try:
        import polars
    except ModuleNotFoundError as missing:
        raise TraceError(f"reading a trace file {advice(missing)}") from missing
    try:
        first = _first_line(path)
        frame = (_parquet(path) if first.startswith(b"PAR1") else
                 _separated(path, _checked(path, first), header))
    except polars.exceptions.NoDataError:
        raise TraceError(f"{path} is empty: expected a line for each sample") from None
    except (OSError, EOFError, zlib.error) as error:
        if getattr(error, "errno", None):  # of the system: no permission, for example
            raise
        raise TraceError(f"{path} is no complete gzip file: copy or pack it again ({error})"
                         ) from None
    except polars.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        if "utf-8" in reason:
            raise _no_text(path) from None
        raise TraceError(f"{path} is no table of columns: a line has more cells than the first, a "
                         f"quote has no end, or the file is cut ({reason})") from None
    if not frame.height:
        raise TraceError(f"{path} is empty: it has a header and no rows" if header
                         else f"{path} is empty: expected a line for each sample")
    return frame


def _parquet(path: Path) -> "polars.DataFrame":
    import polars

    frame = polars.read_parquet(path)
    columns = []
    for column in frame.iter_columns():
        with suppress(polars.exceptions.PolarsError):  # bytes that are no text
            if not column.dtype.is_nested():
                column = _with_exponents(column, column.cast(polars.String))
        columns.append(column)
    return polars.DataFrame(columns)


def _with_exponents(column: "polars.Series", text: "polars.Series") -> "polars.Series":
    """Numbers as text, with an exponent where a float is too large for all integers: as an id it
    would be another one's."""
    exact = {"Float16": 2.0 ** 11, "Float32": 2.0 ** 24, "Float64": 2.0 ** 53}.get(
        str(column.dtype))
    if exact is None:
        return text
    large = (column.abs() >= exact) & column.is_finite() & ~text.str.contains("e")
    return (text + "e0").zip_with(large.fill_null(False), text)


def _separated(path: Path, first: str, header: bool) -> "polars.DataFrame":
    import polars

    separator = next(filter(first.count, "\t;,"), "\t")
    frame = polars.read_csv(path, separator=separator, has_header=header, infer_schema=False,
                            quote_char=None if separator == "\t" else '"')
    names = [name.strip() for name in frame.columns]
    return frame.rename(dict(zip(frame.columns, names, strict=True))
                        ) if len({*names}) == len(names) else frame


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with (gzip.open if packed else open)(path, "rb") as file:
        return file.readline(1 << 20)


def _checked(path: Path, first: bytes) -> str:
    """The first line as text."""
    for magic, kind in _PACKED.items():
        if first.startswith(magic):
            raise TraceError(f"{path} is {kind}: unpack it, or save it as text or Parquet")
    try:
        text = first.decode()
    except UnicodeDecodeError:
        raise _no_text(path) from None
    if "\0" in text:
        raise _no_text(path)
    if "\r" in text.rstrip("\r\n"):
        raise TraceError(f"{path} has lines that end with a carriage return alone: end them with a "
                         "line feed, as tr '\\r' '\\n' does")
    return text


def _no_text(path: Path) -> TraceError:
    return TraceError(f"{path} is no text in UTF-8: expected columns separated by tabs, commas or "
                      "semicolons, or Parquet; iconv -f latin1 -t utf-8 converts older text")


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
        Naming the line of a cell that is not an integer, or that is a float which has lost digits.
    """
    if base == 10:
        refuse_floats(text, name, first_line)
    cells = _whole(text) if base == 10 else text.str.strip_chars()
    numbers = cells.str.to_integer(base=base, strict=False)
    wrong = (numbers.is_null() & text.is_not_null()).arg_true()
    if len(wrong):
        kind = "an integer of 64 bits" if base == 10 else f"a base-{base} number"
        raise _cell(name, first_line, wrong[0], text[int(wrong[0])], f"expected {kind}",
                    f": {_ANY_IDS}; or number the values from 0, as pandas.factorize does"
                    if base == 10 else "")
    return numbers.fill_null(-1).to_numpy().astype(np.int64)


def refuse_floats(text: "polars.Series", name: str, first_line: int) -> None:
    """Raise TraceError if all cells are numbers, or empty, and one is a float that may have lost
    digits of an id: 2^53 and above, or with an exponent."""
    import polars

    text = text.str.strip_chars()
    floats = text.cast(polars.Float64, strict=False)
    digits = floats.abs()
    lost = (((digits >= 2.0 ** 53) & text.str.contains("[.eE]"))
            | ((digits >= 2.0 ** 11) & text.str.contains("[eE]"))).arg_true()
    if len(lost) and not (floats.is_null() & text.is_not_null()).any():
        raise _cell(name, first_line, lost[0], text[int(lost[0])],
                    "a float has lost digits of an id", ": write integers or strings; pandas keeps "
                    "integers beside empty cells as Int64")


def _whole(text: "polars.Series") -> "polars.Series":
    """Cells without what surrounds an integer: pandas writes 24.0 in a column with empty cells."""
    return text.str.strip_chars().str.replace(r"\.0+$", "")


def any_ids(text: "polars.Series", first_line: int) -> NDArray[np.int64]:
    """Cells as ids of 64 bits, which need not be rows: int64[N].

    An integer is its own id, if all cells are integers of 64 bits, without zeros before them, or
    empty, or NaN. Else the ids are those that `hotrow.torch.ids_of` gives strings. An empty cell
    has the id of the empty string.

    Raises
    ------
    TraceError
        All cells are numbers, and one is a float that has lost digits of an id.
    """
    import polars

    from ..ids.initial import string_ids  # with PyTorch, whose loading takes seconds

    refuse_floats(text, text.name, first_line)
    # Other zeros and signs would give two strings one id.
    cells = _whole(text.replace(["NaN", "nan"], [None, None]))
    written = cells.filter(cells.is_not_null())
    plain = written.str.contains(r"^(0|-?[1-9]\d*)$").all()
    signed, unsigned = (cells.cast(dtype, strict=False)
                        for dtype in (polars.Int64, polars.UInt64))
    numbers = signed.zip_with(signed.is_not_null(), unsigned.reinterpret(signed=True))
    if not plain or (numbers.is_null() & cells.is_not_null()).any():
        return string_ids([(cell or "").encode() for cell in text])
    return numbers.fill_null(int(string_ids([b""])[0])).to_numpy().astype(np.int64)


def ids(text: "polars.Series", name: str, first_line: int,
        hash_rows: int | None = None) -> NDArray[np.uint32]:
    """Cells as row ids 0 to 2**32 - 1, modulo `hash_rows` if given: uint32[N]; see `integers`."""
    numbers = integers(text, name, first_line)
    missing = text.is_null().to_numpy()
    checks = (
        (missing, "expected an id, the cell is empty"),
        (numbers < 0, "an id is at least 0"),
        (numbers > (LARGEST_ID if hash_rows is None else LARGEST_HASHED),
         f"an id is at most {LARGEST_ID}, unless --hash-rows N hashes the ids"),
    )
    for wrong, complaint in checks:
        if wrong.any():
            at = int(wrong.argmax())
            raise _cell(name, first_line, at, text[at], complaint, f": {_ANY_IDS}")
    return (numbers if hash_rows is None else numbers % hash_rows).astype(np.uint32)


def labels(text: "polars.Series", name: str, first_line: int) -> NDArray[np.float32]:
    """Cells as labels, as float32[N] of 0 and 1, which may be written false, False, true, True."""
    numbers = _floats(text.replace(["true", "True", "false", "False"], ["1", "1", "0", "0"]))
    wrong = ~np.isin(numbers, (0.0, 1.0))
    if wrong.any():
        at = int(wrong.argmax())
        raise _cell(name, first_line, at, text[at],
                    "a label is 0 or 1" + ("" if text[at] else ", the cell is empty"),
                    ": name another column with --label, or map its values to 0 and 1")
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
