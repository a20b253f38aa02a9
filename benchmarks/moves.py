"""Rate of a card's row mover over the rate of its memory ports, in cycles that the card counts.

One command moves random rows of one table. The ports of the simulated memory count beats and
cycles, which must agree with the cycles in the completion. A card that is this machine's cores
claims no cycles: its figure is rows per second, of the fastest of several equal commands.
"""

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from hotrow.bench.options import device_of, engine_threads
from hotrow.contract.errors import Error
from hotrow.contract.geometry import preset
from hotrow.memory.buffer import empty

from .move_kinds import KINDS

ROUNDS = 7
BEATS = 2**18  # per port, by default
LARGEST_TABLE = 2**28  # bytes, by default
TABLE_ROWS = 2**20
ELEMENT = np.dtype(np.float32)
LEAST_ROW = 16  # bytes


@dataclass(frozen=True)
class Work:
    """Random rows of a table.

    Parameters
    ----------
    kind : Kind
    row_bytes, table_rows, count, bag, seed : int

    Attributes
    ----------
    table : float32[table_rows, row_bytes / 4]
    rows : int64[count]
        Row of each lookup.
    dense : float32[dense_rows, row_bytes / 4]
        The moved rows, the pooled bags, or the gradients.
    """

    kind: Any
    row_bytes: int
    table_rows: int
    count: int
    bag: int
    seed: int

    @cached_property
    def table(self):
        return self._filled(self.table_rows, 0)

    @cached_property
    def dense(self):
        return self._filled(self.kind.dense_rows(self), self.table_rows)

    @cached_property
    def rows(self):
        return self.kind.draw(np.random.default_rng(self.seed), self)

    def _filled(self, rows, first):
        array = empty((rows, self.row_bytes // ELEMENT.itemsize), ELEMENT)
        self.kind.fill(array, first)
        return array


def measure(kind_name, options, steps) -> dict:
    """Move the rows on the card, then by NumPy and PyTorch."""
    kind: Any = KINDS[kind_name]
    config = _config(kind, options)
    work = _work(kind, options, config)
    steps.begin("making the table")
    expected = kind.expected(work)
    steps.begin(kind_name.upper())
    card = _card(kind, options, config, work, expected)
    seconds = _cpu_seconds(kind, work, steps.begin("CPU", None))

    cpu = {name: work.count / least for name, least in seconds.items()}
    if not engine_threads(options):
        card |= {
            "clock_mhz": config.clock_mhz,
            "clock_is": "given" if options.clock_mhz else "assumed",
            "rows_per_s_projected": work.count / card["cycles"] * config.clock_mhz * 1e6,
        }
    rate = card.get("rows_per_s", card.get("rows_per_s_projected"))
    return card | {"cpu_rows_per_s": cpu,
                   "ratio": {name: rate / each for name, each in cpu.items()}}


def _config(kind, options):
    """Geometry of the card that the options name."""
    try:
        config = preset(options.preset)
        given = {"row_ports": options.ports, "outstanding": options.outstanding,
                 "clock_mhz": options.clock_mhz,
                 "bag_units": getattr(options, "bag_units", None)
                 or (options.ports and min(options.ports, config.bag_units))}
        return replace(config, **{name: value for name, value in given.items() if value})
    except ValueError as wrong:
        raise Error(str(wrong)) from wrong


def _work(kind, options, config):
    size = options.row_bytes
    if size % LEAST_ROW or not LEAST_ROW <= size <= config.row_bytes:
        raise Error(f"--row-bytes must be a multiple of {LEAST_ROW} up to {config.row_bytes}, the "
                    f"longest row of preset {config.name}, not {size}")
    bag = options.bag if kind.arithmetic else 1
    count = options.rows or BEATS * config.row_ports // -(-size // config.bus_bytes)
    count = max(1, count // bag) * bag
    least = count // bag if kind.distinct else 1
    table_rows = options.table_rows or max(least, min(TABLE_ROWS, LARGEST_TABLE // size))
    if least > table_rows:
        raise Error(f"--moved-rows {count} of a table of {table_rows} rows would write a row "
                    "twice: raise --table-rows")
    return Work(kind, size, table_rows, count, bag, options.seed)


def _card(kind, options, config, work, expected):
    """Figures of the card's run."""
    threads = engine_threads(options)
    with device_of(options, config=config) as device:
        table = device.register_table(work.table, "table")
        dense = device.register(work.dense)
        device.check_ids = False  # the card checks them

        def cycles_of_one():
            future = kind.submit(device, table, work.rows, dense, work.bag)
            future.result()
            return future.cycles

        cycles, bus = cycles_of_one(), device.geometry.bus_bytes
        read, written = kind.traffic(work)
        moved = (written if kind.channel == "write" else read) * work.row_bytes
        ports = config.row_ports
        figures = {
            "agrees": bool((kind.result(work) == expected).all()),
            "rows": work.count, "row_bytes": work.row_bytes, "table_rows": work.table_rows,
            **({"bag": work.bag, "rows_read": read, "rows_written": written}
               if kind.arithmetic else {}),
        }
        if threads:
            least = min(cycles, *(cycles_of_one() for _ in range(ROUNDS - 1)))
            seconds = least / (device.geometry.clock_mhz * 1e6)
            return figures | {
                "threads": threads, "seconds": seconds, "rows_per_s": work.count / seconds,
                "rows_per_s_core": work.count / seconds / threads}
        if kind.arithmetic:
            figures |= {"bag_units": config.bag_units, "rows_per_cycle": read / cycles}
        figures |= {"ports": ports, "bus_bytes": bus, "cycles": cycles,
                    "bytes_per_cycle": moved / cycles}
        if options.transport != "sim":
            return figures | {"useful_beat_fraction": moved / bus / ports / cycles}
        figures |= _ports(device.transport, kind.channel, cycles)
        if kind.arithmetic:
            figures["written_beat_fraction"] = _ports(
                device.transport, "write", cycles)["useful_beat_fraction"]
        if options.memory == "ideal":
            return figures
        bare = _bare(device.transport, kind, work, table.buffers[0], dense, ports)
        return figures | {"bare_cycles": bare, "fraction_of_bare_requests": bare / cycles}


def _bare(transport, kind, work, table, dense, ports):
    """Cycles of the same requests without the card, with the rows spread round-robin over the
    ports."""
    sides = kind.addresses(work, *(
        lambda rows, first=buffer.device_address: first + rows * work.row_bytes
        for buffer in (table, dense)))
    return transport.bare_cycles(
        *([side[port::ports] for port in range(ports)] for side in sides), work.row_bytes)


def _ports(transport, channel, cycles):
    """Counts of the ports, which must agree with the completion."""
    counted = {name: transport.statistics(name) for name in transport.ports
               if name.startswith(f"row_{channel}")}
    used = [each for each in counted.values() if each.beats]
    spans = [each.last_beat - each.first_request + 1 for each in used]
    whole = (max(each.last_beat for each in used)
             - min(each.first_request for each in used) + 1)
    broken = transport.violations()
    if broken or whole > cycles:
        raise Error(f"the ports counted {whole} cycles and the card {cycles}; "
                    f"{'; '.join(broken) or 'no rule was broken'}")
    return {
        "beats": sum(each.beats for each in used),
        "beat_cycles": whole,
        "most_outstanding": max(each.worst_outstanding for each in used),
        "useful_beat_fraction": sum(
            each.beats / span for each, span in zip(used, spans, strict=True)) / len(counted),
    }


def _cpu_seconds(kind, work, advance):
    """Least time of each implementation on this machine by name, on one thread and on all."""
    import torch

    found: dict[str, float] = {}
    before = torch.get_num_threads()
    works = [(name, function) for name, function in kind.on_cpu(work)]
    try:
        for threads, where in ((1, "core"), (before, "machine")):
            torch.set_num_threads(threads)
            least = np.full(len(works), np.inf)
            for _ in range(ROUNDS):
                for at, (_, function) in enumerate(works):
                    started = time.perf_counter()
                    function()
                    least[at] = min(least[at], time.perf_counter() - started)
                advance()
            found |= {f"{name}_{where}": float(each) for (name, _), each in zip(
                works, least, strict=True)
                      if where == "core" or name.startswith("torch")}
    finally:
        torch.set_num_threads(before)
    return found
