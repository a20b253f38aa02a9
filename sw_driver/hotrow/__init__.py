"""Host driver of the hotrow accelerator.

    import hotrow

    with hotrow.open("sim", preset="ecp5") as device:
        table = device.register_table(weights)      # [rows, dim], used in place
        device.observe(ids)                         # [samples, tables]
        hot = device.harvest(k=1024)
        device.install(hot)
        split = device.split(ids)
        rows = device.gather(split.misses)
"""

from .contract.errors import (
    BatchError,
    CommandError,
    DeviceError,
    Error,
    HostWriteError,
    IntegerError,
    PaddedCopyWarning,
    RegistrationError,
    TimeoutError,
    TransportError,
)
from .contract.generated import MISS_FLAG, NO_SLOT, BatchFlag, Opcode, Status
from .device import Device, open
from .memory.buffer import Buffer, empty
from .memory.transport import Transport
from .operands.batch import Batch
from .operands.results import (
    HotRows,
    Installed,
    Observation,
    PlacedRows,
    Plan,
    Removed,
    RowList,
    Split,
)
from .operands.table import Table
from .queues.futures import Future
from .timeline import Timeline

__version__ = "0.1.0"

__all__ = [
    "MISS_FLAG",
    "NO_SLOT",
    "Batch",
    "BatchError",
    "BatchFlag",
    "Buffer",
    "CommandError",
    "Device",
    "DeviceError",
    "Error",
    "Future",
    "HostWriteError",
    "HotRows",
    "Installed",
    "IntegerError",
    "Observation",
    "Opcode",
    "PaddedCopyWarning",
    "PlacedRows",
    "Plan",
    "RegistrationError",
    "Removed",
    "RowList",
    "Split",
    "Status",
    "Table",
    "Timeline",
    "TimeoutError",
    "Transport",
    "TransportError",
    "empty",
    "open",
]
