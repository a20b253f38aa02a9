"""Traces from tab- or comma-separated files with a header."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import files
from .scaling import signed_log1p
from .trace import (
    Ids,
    StoredTrace,
    TraceError,
    by_first_appearance,
    check_most_rows,
    rows_for_any,
)

if TYPE_CHECKING:  # which takes long to load
    import polars

LONGEST_BAG = np.iinfo(np.uint16).max
FIRST_LINE = 2  # the header is line 1


def group(key: NDArray[Any], ids: Ids, dense: NDArray[np.float32],
          label: NDArray[np.float32] | None) -> tuple[
              Ids, NDArray[np.uint16], NDArray[np.float32],
              NDArray[np.float32] | None]:
    """Combine each run of rows with the same key into one sample.

    A column's bag holds the distinct ids of the run in order of first appearance: a value that the
    whole run shares (the customer of an invoice) is looked up once. Dense features are the mean
    over the run; the label is 1 if the label of any row is 1.

    Parameters
    ----------
    key : array[N]
        The bag column.
    ids : uint32[N, T], or int64[N, T] where ids may be any
    dense : float32[N, D]
    label : float32[N] or None

    Returns
    -------
    values : [n], as the ids
        Sample after sample, column after column.
    lengths : uint16[S, T]
    dense : float32[S, D]
    label : float32[S] or None
    """
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    rows = np.diff(np.r_[starts, len(key)])
    sample = np.repeat(np.arange(len(starts)), rows)
    columns = ids.shape[1]

    bag = (sample[:, None] * columns + np.arange(columns)).ravel()
    values = ids.ravel()
    order = np.lexsort((np.arange(len(bag)), values, bag))
    repeated = np.zeros(len(bag), bool)
    one, following = order[:-1], order[1:]
    repeated[following] = (bag[one] == bag[following]) & (values[one] == values[following])
    kept = np.flatnonzero(~repeated)
    kept = kept[np.argsort(bag[kept], kind="stable")]

    lengths = np.bincount(bag[kept], minlength=len(starts) * columns)
    if lengths.max() > LONGEST_BAG:
        at = int(lengths.argmax()) // columns
        raise TraceError(f"a bag holds {lengths.max():,} ids of one column (value {key[starts[at]]}"
                         f" of the bag column): the device serves at most {LONGEST_BAG:,}")
    dense = np.add.reduceat(dense, starts, axis=0, dtype=np.float64) / rows[:, None]
    return (
        values[kept],
        lengths.reshape(-1, columns).astype(np.uint16),
        dense.astype(np.float32),
        None if label is None else np.maximum.reduceat(label, starts),
    )


def open_log(path: str, ids: Sequence[str] = (), label: str | None = None,
             dense: Sequence[str] = (), bag: str | None = None, rows: Sequence[int] | None = None,
             hash_rows: int | None = None, any_ids: int | None = None,
             numbered: bool = False) -> StoredTrace:
    """Read a file, gzip or not, whose first line names its columns, or Parquet.

    The columns are separated by tabs; by semicolons if the first line has no tab; else by commas.

    Parameters
    ----------
    path : str
    ids : sequence of str
        Columns of row ids, integers from 0; one table each.
    label : str, optional
        Column of 0 and 1.
    dense : sequence of str
        Columns of numbers, scaled by `signed_log1p`; an empty cell is 0.
    bag : str, optional
        Column whose equal consecutive values form one multi-hot sample, see `group`.
    rows : sequence of int, optional
        Rows of each table; default: the largest id of its column plus one.
    hash_rows : int, optional
        The row of an id of 0 to 2**63 - 1 is the id modulo this number, 1 to 2**32.
    any_ids : int, optional
        Cells are integers or strings, whose ids are `files.any_ids`; most rows of a table.
    numbered : bool
        Number the ids of a column that are no rows (strings, for example) from 0 by their first
        occurrence, for a study of one file; not with `hash_rows`.

    Returns
    -------
    StoredTrace

    Raises
    ------
    TraceError
    """
    check_most_rows("hash_rows", hash_rows)
    check_most_rows("any_ids", any_ids)
    frame = files.read_text(path, header=True)
    there = ", ".join(frame.columns)
    if not ids:
        raise TraceError(f"no id columns of {path} were named: choose some with --ids; there are "
                         f"{there}")
    _check_columns(path, frame, ids, dense, label, bag)
    numbers: Ids
    if any_ids is not None:
        numbers = np.stack([files.any_ids(frame[name], FIRST_LINE) for name in ids], axis=1)
        rows = rows_for_any(numbers, any_ids)
    else:
        numbers = np.stack([_rows(frame[name], name, hash_rows, numbered) for name in ids], axis=1)
        if rows is not None:
            _check_rows(ids, numbers, rows)
    features = np.empty((frame.height, len(dense)), np.float32)
    for column, name in enumerate(dense):
        features[:, column] = signed_log1p(files.floats(frame[name], name, FIRST_LINE))
    clicks = files.labels(frame[label], label, FIRST_LINE) if label else None
    lengths = None
    if bag:
        files.refuse_floats(frame[bag], bag, FIRST_LINE)  # bags of other keys would be one
        key = frame[bag].fill_null("").to_numpy()
        numbers, lengths, features, clicks = group(key, numbers, features, clicks)
    return StoredTrace(str(path), ids, numbers, features, clicks, lengths, rows)


def _rows(text: "polars.Series", name: str, hash_rows: int | None,
          numbered: bool) -> NDArray[np.uint32]:
    try:
        return files.ids(text, name, FIRST_LINE, hash_rows)
    except TraceError:
        if hash_rows or not numbered:
            raise
    return by_first_appearance(files.any_ids(text, FIRST_LINE))


def _check_columns(path: str, frame: "polars.DataFrame", ids: Sequence[str], dense: Sequence[str],
                   label: str | None, bag: str | None) -> None:
    for name in (*ids, *dense, *filter(None, (label, bag))):
        if name not in frame.columns:
            raise TraceError(f"{path} has no column {name!r}: there are {', '.join(frame.columns)}"
                             + (": separate columns by tabs, commas or semicolons"
                                * (frame.width == 1)))
        if frame.schema[name].is_nested():
            raise TraceError(f"column {name!r} of {path} has lists: write a line for each element, "
                             "and let --bag group the lines of a sample")
        if frame.schema[name].to_python() is bytes:
            raise TraceError(f"column {name!r} of {path} has bytes that are no UTF-8: write them "
                             f"as strings, such as hex values")
    for option, names in (("--ids", ids), ("--dense", dense)):
        if twice := [name for name in names if names.count(name) > 1]:
            raise TraceError(f"{option} names column {twice[0]!r} twice: leave one of them out")
        if label in names:
            raise TraceError(f"column {label!r} is the label: leave it out of {option}, since a "
                             "model that reads it has nothing to learn")


def _check_rows(ids: Sequence[str], numbers: Ids, rows: Sequence[int]) -> None:
    if len(rows) != len(ids):
        raise TraceError(f"{len(rows)} row counts for {len(ids)} id columns")
    for column, name in enumerate(ids):
        beyond = np.flatnonzero(numbers[:, column] >= rows[column])
        if len(beyond):
            raise TraceError(f"column {name!r}, line {FIRST_LINE + beyond[0]}: id "
                             f"{numbers[beyond[0], column]} in a table of {rows[column]} rows")
