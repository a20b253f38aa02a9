"""Options that benchmarks share, and the traces and devices that they name."""

from argparse import ArgumentParser, Namespace
from typing import Any

from .. import open as open_device
from ..command import options as shared
from ..command.options import add_json, natural, positive
from ..contract.errors import Error
from ..contract.geometry import Preset
from ..device import Device
from ..memory.transport import find_transport
from ..traces import Trace, open_trace

# Memories of `sim`, with their default latency in cycles.
MEMORIES = {"ideal": 200, "ddr3": 20, "hbm": 20}
_TIMEOUT = 3600.0  # seconds per command: simulation is slow, and the figures are cycles


def add_trace(parser: ArgumentParser, lookups: int, rows: int = 2**20,
              total_rows: int | None = None, labelled: bool = False) -> None:
    """Add the options of the batches.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    lookups : int
        Default number of lookups.
    rows, total_rows : int
        Default rows of a generated table, or of all of them together.
    labelled : bool
        Also the columns of the label and of dense features.
    """
    shared.add_trace(parser, "zipf:1.05", labelled)
    parser.add_argument("--tables", type=positive, default=26, help="tables of a generated trace")
    parser.add_argument(
        "--rows", type=positive, default=None if total_rows else rows,
        help="rows of a table of a generated trace; default "
        + (f"{total_rows:,} over all of them" if total_rows else f"{rows:,}"))
    shared.add_batch_size(parser, 2048, dest="batch")
    parser.add_argument("--lookups", type=positive, default=lookups,
                        help="lookups of the run, at least")
    parser.add_argument("--seed", type=natural, default=0, help="of generated data")
    add_json(parser)
    parser.set_defaults(total_rows=total_rows)


def _installed(spec: str) -> str:
    find_transport(spec)
    return spec


def add_device(parser: ArgumentParser) -> None:
    """Add the options of the card."""
    shared.add_preset(parser)
    parser.add_argument("--transport", type=_installed, default="sim",
                        help="sim; model, whose cycles are formulas; or cpu, this machine's "
                             "cores, which claims no cycles")
    parser.add_argument("--memory", choices=MEMORIES, default="ideal",
                        help="memory at all ports of transport sim")
    parser.add_argument("--latency", type=positive,
                        help="cycles of that memory, for DRAM in addition to its own; default "
                        + ", ".join(f"{cycles} ({name})" for name, cycles in MEMORIES.items()))


def add_engine_threads(parser: ArgumentParser) -> None:
    """Add the threads of a card that is this machine's cores."""
    parser.add_argument("--threads", type=positive, default=1, help="of transport cpu; default 1")


def add_hot_rows(parser: ArgumentParser) -> None:
    parser.add_argument("--hot-rows", type=positive,
                        help="rows with a slot, at most; default one per slot of the card")


def trace_of(options: Namespace) -> Trace:
    """The trace that the options name."""
    rows = options.rows or max(1, options.total_rows // options.tables)
    return open_trace(options.trace, seed=options.seed, tables=options.tables, table_rows=rows,
                      numbered=True, **shared.columns_of(options))


def device_of(options: Namespace, config: Preset | None = None, **more: Any) -> Device:
    """Open the card that the options name, or a variant; `more` goes to its transport."""
    if options.transport == "cpu" and getattr(options, "threads", None):
        more["threads"] = options.threads
    if options.transport == "sim":
        more |= memory_of(options) | {"timeout": _TIMEOUT}
    elif options.latency or options.memory != "ideal":
        raise Error(f"--latency and --memory set the simulated memory: transport "
                    f"{options.transport!r} has none")
    return open_device(options.transport, config or options.preset, **more)


def engine_threads(options: Namespace) -> int | None:
    """Threads of the card in software that the options name; None if they name another card."""
    return options.threads if options.transport == "cpu" else None


def memory_of(options: Namespace) -> dict[str, Any]:
    """Arguments of the transport for the simulated memory that the options name."""
    return {"memory": options.memory, "latency": options.latency or MEMORIES[options.memory]}


def named(options: Namespace) -> dict[str, Any]:
    """Options that a result repeats."""
    repeated = ("preset", "trace", "transport", "batch", "seed")
    memory = memory_of(options) if options.transport == "sim" else {}
    return {name: getattr(options, name) for name in repeated
            if getattr(options, name, None) is not None} | memory
