"""Types and groups of options that commands share: an option means the same in each of them."""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ..contract.errors import Error
from ..contract.generated import DEFAULT_PRESET
from ..contract.geometry import PRESETS
from .limits import check_folder, check_writable

TRACES = ("zipf:S[:rows], drift:S[:rows[:period]], uniform[:rows], single, criteo-shape[:S], "
          "criteo:FILE, sample, Parquet, or a file with a header, separated by tabs, commas or "
          "semicolons, gzip or not")
HOT_SHARE = 0.25  # of all rows, by default
_UNITS = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


# Types.

def names(text: str) -> tuple[str, ...]:
    """Names separated by commas: tuple of str."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"expected names separated by commas, not {text!r}")
    return found


def natural(text: str, least: int = 0) -> int:
    """An integer of at least `least`."""
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {least}, not {text!r}")
    return number


def positive(text: str) -> int:
    """An integer of at least 1."""
    return natural(text, 1)


def positives(text: str) -> tuple[int, ...]:
    """Integers of at least 1, separated by commas: tuple of int."""
    return tuple(positive(part) for part in text.split(","))


def rate(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return number


def window(text: str) -> tuple[int, int]:
    """Two integers of at least 0, separated by a comma: (past, future)."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"expected PAST,FUTURE, two integers, not {text!r}")
    return int(parts[0]), int(parts[1])


def output_file(text: str) -> str:
    """A file that can be written."""
    return _checked(text, check_writable)


def output_folder(text: str) -> Path:
    """A folder that exists or can be made."""
    return Path(_checked(text, check_folder))


def _checked(text: str, check: Callable[[str], None]) -> str:
    try:
        check(text)
    except Error as refused:
        raise argparse.ArgumentTypeError(str(refused)) from None
    return text


@dataclass(frozen=True)
class HotBudget:
    """How much of the tables may be hot: `rows`, `bytes` of rows, or a `share` of all rows.

    `asked` is the user's option, for errors. With none of the three the default applies.
    """

    asked: str = ""
    rows: int | None = None
    bytes: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> "HotBudget":
        """From "512MB" (units of 1024), "4096" (bytes) or "20%" (of all rows).

        Raises
        ------
        ValueError
        """
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)\s*(%|[KMG]?B|)", text.strip().upper())
        if not match:
            raise ValueError(f"expected bytes such as 512MB, or a share of the rows such as 20%, "
                             f"not {text!r}")
        number, unit, asked = float(match[1]), match[2], f"--hot-budget {text}"
        if not isfinite(number):
            raise ValueError(f"no memory has so many bytes: {text!r}")
        if unit != "%":
            return cls(asked, bytes=int(number * _UNITS[unit]))
        if number > 100:
            raise ValueError(f"a share of the rows is at most 100%, not {text!r}")
        return cls(asked, share=number / 100)

    def wanted(self, table_rows: int, row_bytes: int) -> int | None:
        """Rows that the user asks for; None for the default."""
        if self.rows is not None:
            return self.rows
        if self.bytes is not None:
            return min(self.bytes // row_bytes, table_rows)
        return None if self.share is None else int(self.share * table_rows)

    def resolve(self, table_rows: int, row_bytes: int, slots: int) -> int:
        """Hot rows: an int, at least 1.

        Parameters
        ----------
        table_rows : int
            Rows of all tables.
        row_bytes : int
        slots : int
            Of the card's directory.

        Raises
        ------
        Error
            If the user asks for more than the directory holds. The default is cut to it.
        """
        wanted = self.wanted(table_rows, row_bytes)
        if wanted is None:
            wanted = max(1, min(int(HOT_SHARE * table_rows), slots))
        if not 1 <= wanted <= slots:
            raise Error(f"{self.asked} is {wanted:,} rows of {row_bytes} bytes, and the card's "
                        f"directory holds 1 to {slots:,}: ask for at most {slots * row_bytes:,} "
                        "bytes")
        return wanted


def hot_budget(text: str) -> HotBudget:
    """A `HotBudget` of bytes or of a share."""
    try:
        return HotBudget.parse(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def slots(text: str) -> HotBudget:
    """A `HotBudget` of rows."""
    return HotBudget(f"--slots {text}", rows=positive(text))


# Groups.

def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def add_preset(parser: argparse.ArgumentParser, default: str | None = DEFAULT_PRESET,
               **more: Any) -> None:
    """Add `--preset`, the geometry of a card."""
    parser.add_argument("--preset", default=default, metavar="PRESET", **more,
                        help=f"geometry of the card: one of {', '.join(PRESETS)}")


def add_batch_size(parser: argparse.ArgumentParser, default: int | None = None, otherwise: str = "",
                   **more: Any) -> None:
    """Add `--batch-size`, in samples; `otherwise` names the default where it is no number."""
    parser.add_argument("--batch-size", type=positive, default=default, metavar="SAMPLES",
                        help="samples of a batch" + otherwise, **more)


def add_trace(parser: argparse.ArgumentParser, default: str | None = None, labelled: bool = True,
              **more: Any) -> None:
    """Add `--trace` and the options of the columns of a log.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    default : str, optional
    labelled : bool
        Also the columns of the label and of dense features.
    """
    parser.add_argument("--trace", default=default, help=TRACES, **more)
    parser.add_argument("--ids", type=names, default=(), metavar="A,B",
                        help="id columns of a log, separated by commas")
    if labelled:
        parser.add_argument("--label", metavar="A", help="label column of a log, of 0 and 1")
        parser.add_argument("--dense", type=names, default=(), metavar="A,B",
                            help="columns of numbers of a log, taken as sign(x) log(1 + abs(x))")
    parser.add_argument("--bag", metavar="A", help="column of a log whose equal consecutive values "
                        "make one multi-hot sample: distinct ids, mean of the dense columns, "
                        "largest label")
    parser.add_argument("--hash-rows", type=positive, metavar="N",
                        help="number the rows of a log's columns by their id modulo N, for ids "
                        "that are hashes, such as Criteo's raw values")


def columns_of(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `open_trace` that the options of `add_trace` give: dict."""
    return {name: getattr(options, name) for name in ("ids", "label", "dense", "bag", "hash_rows")
            if hasattr(options, name)}
