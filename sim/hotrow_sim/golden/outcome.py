"""What an engine reports of a command, and the status of bus faults."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import Status

FAULT_SLVERR, FAULT_DECERR = 1, 2  # fault of a bus word, as in `hotrow_rtl.interfaces.records`


@dataclass
class Outcome:
    """The fields of a completion that an engine fills; see ``contract.encoding.COMPLETION``."""

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


def fault_status(fault):
    """SLVERR, DECERR or TIMEOUT of a bus fault; OK of 0. Scalars or arrays, uint8."""
    return np.where(fault, Status.SLVERR - 1 + fault, Status.OK).astype(np.uint8)


def first_error(errors):
    """Outcome with the first error of a list, by position; `errors` is a status per element."""
    at = np.flatnonzero(errors)
    return Outcome(status=Status(int(errors[at[0]])), error_index=int(at[0])) if len(at) else (
        Outcome())
