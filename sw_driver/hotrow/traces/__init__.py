"""Click logs and generators of click logs: `open_trace` opens a `Trace`."""

from .specification import open_trace
from .trace import Samples, Trace, TraceError

__all__ = ["Samples", "Trace", "TraceError", "open_trace"]
