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

from .batch import Batch
from .cold_samples import ColdSamples, why_cold
from .contract import MISS_FLAG, NO_SLOT, BatchFlag, Opcode, Status
from .device import Device, open
from .errors import (
    BatchError,
    CommandError,
    DeviceError,
    Error,
    HostWriteError,
    PaddedCopyWarning,
    RegistrationError,
    TimeoutError,
    TransportError,
)
from .futures import Future
from .memory import Buffer, empty
from .results import HotRows, Installed, Observation, PlacedRows, Plan, Removed, RowList, Split
from .table import Table
from .timeline import Timeline
from .transport import Transport, transports
from .whole_tables import with_whole_tables

__version__ = "0.1.0"

__all__ = [
    "MISS_FLAG",
    "NO_SLOT",
    "Batch",
    "BatchError",
    "BatchFlag",
    "Buffer",
    "ColdSamples",
    "CommandError",
    "Device",
    "DeviceError",
    "Error",
    "Future",
    "HostWriteError",
    "HotRows",
    "Installed",
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
    "transports",
    "why_cold",
    "with_whole_tables",
]
