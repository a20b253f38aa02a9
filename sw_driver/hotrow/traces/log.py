"""Traces from tab- or comma-separated files with a header."""

import numpy as np

from . import bags, files
from .scaling import signed_log1p
from .trace import StoredTrace, TraceError

FIRST_LINE = 2  # the header is line 1


def open_log(path, ids=(), label=None, dense=(), bag=None, rows=None, hash_rows=None):
    """Read a file, gzip or not, whose first line names its columns.

    The columns are separated by tabs, or by commas if the first line has no tab.

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
        Column whose equal consecutive values form one multi-hot sample, see `bags.group`.
    rows : sequence of int, optional
        Rows of each table; default: the largest id of its column plus one.
    hash_rows : int, optional
        The row of an id is the id modulo this number, so that ids of 64 bits serve.

    Returns
    -------
    StoredTrace

    Raises
    ------
    TraceError
    """
    frame = files.read_text(path, header=True)
    there = ", ".join(frame.columns)
    if not ids:
        raise TraceError(f"no id columns of {path} were named: choose some with --ids; there are "
                         f"{there}")
    for name in (*ids, *dense, *((label,) if label else ()), *((bag,) if bag else ())):
        if name not in frame.columns:
            raise TraceError(f"{path} has no column {name!r}: there are {there}")
    numbers = np.stack([files.ids(frame[name], name, FIRST_LINE, hash_rows) for name in ids],
                       axis=1)
    if rows is not None:
        _check_rows(ids, numbers, rows)
    features = np.empty((frame.height, len(dense)), np.float32)
    for column, name in enumerate(dense):
        features[:, column] = signed_log1p(files.floats(frame[name], name, FIRST_LINE))
    clicks = files.labels(frame[label], label, FIRST_LINE) if label else None
    lengths = None
    if bag:
        key = frame[bag].fill_null("").to_numpy()
        numbers, lengths, features, clicks = bags.group(key, numbers, features, clicks)
    return StoredTrace(str(path), ids, numbers, features, clicks, lengths, rows)


def _check_rows(ids, numbers, rows):
    if len(rows) != len(ids):
        raise TraceError(f"{len(rows)} row counts for {len(ids)} id columns")
    for column, name in enumerate(ids):
        beyond = np.flatnonzero(numbers[:, column] >= rows[column])
        if len(beyond):
            raise TraceError(f"column {name!r}, line {FIRST_LINE + beyond[0]}: id "
                             f"{numbers[beyond[0], column]} in a table of {rows[column]} rows")
