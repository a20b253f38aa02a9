"""What a run needs, checked before it begins: memory, a card for its batches, its output file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from ..contract.errors import Error
from ..contract.geometry import PRESETS, preset

GB = 1e9
_CGROUP = Path("/sys/fs/cgroup")


class Trace(Protocol):
    """The part of `traces.trace.Trace` that is checked."""

    columns: tuple[str, ...]
    cardinalities: tuple[int, ...]
    synthetic: bool
    samples: int | None

    @property
    def rows(self) -> int:
        """Rows of all tables together."""

    def batch(self, index: int, batch_size: int) -> Any:
        """Batch number `index` of the trace in batches of `batch_size` samples."""


def check_batch(trace: Trace, batch_size: int, preset_name: str) -> None:
    """Refuse batches that the card does not take.

    Parameters
    ----------
    trace : Trace
        Its first batch counts as one of typical length.
    batch_size : int
        Samples.
    preset_name : str

    Raises
    ------
    Error
    """
    card = preset(preset_name)
    samples = min(batch_size, trace.samples or batch_size)
    if samples > card.batch_samples:
        others = [name for name, other in PRESETS.items() if other.batch_samples >= samples]
        raise Error(f"--batch-size {batch_size:,}: a card of preset {card.name} takes at most "
                    f"{card.batch_samples:,} samples in a batch"
                    + (f"; --preset {others[0]} takes as many" if others else ""))
    tables = len(trace.cardinalities)
    if tables > card.tables:
        raise Error(f"the trace has {tables} tables: this card holds at most {card.tables} "
                    f"(preset {card.name})")
    lookups = len(trace.batch(0, min(samples, 1024)).ids.ravel()) * max(1, samples / 1024)
    if lookups > card.batch_lookups:
        raise Error(f"--batch-size {batch_size:,} has about {lookups:,.0f} lookups: a card of "
                    f"preset {card.name} takes at most {card.batch_lookups:,} in a batch")


def check_memory(trace: Trace, row_bytes: int, copies: int = 1) -> None:
    """Refuse tables that this machine's free memory cannot hold.

    Parameters
    ----------
    trace : Trace
    row_bytes : int
        Of a row and its optimizer state.
    copies : int
        Of all tables.

    Raises
    ------
    Error
    """
    needed, free = trace.rows * row_bytes * copies, free_memory()
    if needed <= free:
        return
    at = max(range(len(trace.columns)), key=lambda column: trace.cardinalities[column])
    raise Error(
        f"{copies} x {trace.rows:,} rows of {row_bytes} bytes need {needed / GB:,.1f} GB and "
        f"{free / GB:,.1f} GB of memory are free; column {trace.columns[at]!r} alone has "
        f"{trace.cardinalities[at]:,} rows, one for every id up to its largest: "
        + ("choose a smaller trace or --dim" if trace.synthetic else
           "number the ids from 0, hash them with --hash-rows N, or let hotrow train take any id "
           "with --any-ids ROWS"))


def check_writable(path: str | Path) -> None:
    """Refuse a file that the run could not write at its end.

    Raises
    ------
    Error
    """
    path = Path(path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise Error(f"{path} cannot be written: there is no folder {folder}; make it, or name "
                    "another")
    if path.is_dir():
        raise Error(f"{path} cannot be written: it is a folder; name a file in it")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise Error(f"{path} cannot be written: permission denied; name a file elsewhere")


def check_folder(path: str | Path) -> None:
    """Refuse a folder that the run could not make or fill at its end.

    Raises
    ------
    Error
    """
    path = Path(path)
    above = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not above.is_dir():
        raise Error(f"{path} cannot be a folder: {above} is a file; name another folder")
    if not os.access(above, os.W_OK):
        raise Error(f"{path} cannot be written: permission denied; name a folder elsewhere")


def free_memory() -> int:
    """Bytes that a process can still allocate: of the machine, or of its control group."""
    free = [int(line.split()[1]) * 1024 for line in _lines(Path("/proc/meminfo"))
            if line.startswith("MemAvailable:")]
    limit, used = (next(_lines(_CGROUP / name), "") for name in ("memory.max", "memory.current"))
    if limit.isdecimal() and used.isdecimal():
        cached = [int(line.split()[1]) for line in _lines(_CGROUP / "memory.stat")
                  if line.startswith("inactive_file ")]
        free.append(int(limit) - int(used) + sum(cached))
    return min(free, default=1 << 62)


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return
