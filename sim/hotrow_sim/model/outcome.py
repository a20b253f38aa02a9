"""What an engine reports of a command, and how the errors of a list become one."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import Status

from .memory import SLVERR


@dataclass
class Outcome:
    """The fields of a completion that an engine fills."""

    status: int = Status.OK
    error_index: int = 0
    error_address: int = 0
    lookups: int = 0
    hits: int = 0
    misses: int = 0
    unique: int = 0
    popular: int = 0
    entries: int = 0
    refused: int = 0
    bytes: int = 0
    evictions: int = 0
    bypasses: int = 0
    wait_for: int = 0


def lowest(errors):
    """An outcome with the first error of a list, by position; `errors` is a status per element."""
    at = np.flatnonzero(errors)
    return Outcome(status=Status(int(errors[at[0]])), error_index=int(at[0])) if len(at) else (
        Outcome())


def list_errors(entries, faults, tables):
    """Status of each listed row: fault of its bus word, table unknown, row out of range, or OK.

    Parameters
    ----------
    entries : ROW_RECORD[n]
    faults : uint8[n]
    tables : dict of int to Table
    """
    errors = np.zeros(len(entries), np.uint8)
    for table in np.unique(entries["table"]):
        here = entries["table"] == table
        descriptor = tables.get(int(table))
        errors[here] = Status.TABLE_UNKNOWN if descriptor is None else np.where(
            entries["row"][here] > descriptor.last_row, Status.ROW_OUT_OF_RANGE, Status.OK)
    return np.where(faults > 0, faults + np.uint8(Status.SLVERR - SLVERR), errors)
