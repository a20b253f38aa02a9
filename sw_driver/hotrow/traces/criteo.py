"""Criteo's click logs: label, 13 integer features, 26 categorical features as 32-bit hex."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from . import files
from .scaling import signed_log1p
from .trace import StoredTrace, TraceError, by_first_appearance, check_most_rows, rows_for_any

DENSE = tuple(f"I{i}" for i in range(1, 14))
CATEGORICAL = tuple(f"C{i}" for i in range(1, 27))
FIRST_LINE = 1

# Rows of the 26 tables of Criteo's Kaggle data set, C1 to C26: 33,762,577 together.
KAGGLE_CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
    5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572)


def open_criteo(path: str, hash_rows: int | None = None,
                any_ids: int | None = None) -> StoredTrace:
    """Read a file in the format of the Kaggle and 1TB data sets, gzip or not.

    Categorical values are numbered by first appearance in their column, or modulo `hash_rows`; with
    `any_ids`, the most rows of a table, they are the ids. A missing value is one of them. Integer
    features are scaled by `signed_log1p`; a missing feature is 0.

    Returns
    -------
    StoredTrace

    Raises
    ------
    TraceError
    """
    check_most_rows("hash_rows", hash_rows)
    check_most_rows("any_ids", any_ids)
    frame = files.read_text(path, header=False)
    expected = 1 + len(DENSE) + len(CATEGORICAL)
    if frame.width != expected:
        raise TraceError(f"{path} has {frame.width} columns, Criteo's format has "
                         f"{expected}: a label, 13 integers, 26 hex values")
    columns = dict(zip(("label", *DENSE, *CATEGORICAL), frame.iter_columns(), strict=True))
    dense = np.stack([signed_log1p(files.floats(columns[name], name, FIRST_LINE))
                      for name in DENSE], axis=1)
    values = [files.integers(columns[name], name, FIRST_LINE, base=16) for name in CATEGORICAL]
    label = files.labels(columns["label"], "label", FIRST_LINE)
    if any_ids is not None:
        ids = np.stack(values, axis=1)
        return StoredTrace(f"criteo:{path}", CATEGORICAL, ids, dense, label,
                           cardinalities=rows_for_any(ids, any_ids))
    number = by_first_appearance if hash_rows is None else partial(hashed, rows=hash_rows)
    numbers = np.stack([number(column) for column in values], axis=1)
    return StoredTrace(f"criteo:{path}", CATEGORICAL, numbers, dense, label)


def hashed(values: NDArray[np.int64], rows: int) -> NDArray[np.uint32]:
    """Values int64[N] modulo `rows`: uint32[N]; a missing value, -1, is the last row."""
    return (values % rows).astype(np.uint32)
