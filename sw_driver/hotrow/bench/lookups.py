"""Rates at which a card counts and splits batches, by its cycle counter."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import Error
from ..device import Device
from ..memory.buffer import empty
from ..operands.batch import Batch
from ..operands.results import Observation, RowList, Split
from ..queues.futures import Future
from ..traces import Samples, Trace

IN_FLIGHT = 8  # commands in the ring, so that the card does not wait for the host
R = TypeVar("R")
LEARNING_SHARE = 0.05  # of the batches, at least one, from which hot rows are learned
ROW_BYTES = 16  # the shortest row: lookups do not read rows


@dataclass(frozen=True)
class Workload:
    """Tables and batches of a trace, in memory that a device uses in place.

    Attributes
    ----------
    tables : list of float32[rows, row_bytes / 4]
        Untouched elements take no memory.
    memory : uint8[n]
        Holds the ids and lengths of all batches.
    batches : list of Batch
    lookups : int
        Of all batches.
    input_bytes : int
        Of their ids and lengths.
    samples : int
    """

    tables: list[NDArray[np.float32]]
    memory: NDArray[np.uint8]
    batches: list[Batch]
    lookups: int
    input_bytes: int
    samples: int

    def register(self, device: Device) -> None:
        """Register the tables and the batches with a device without tables.

        Raises
        ------
        Error
            The card holds fewer tables.
        """
        if len(self.tables) > device.geometry.tables:
            raise Error(f"the trace has {len(self.tables)} tables: this card holds at most "
                        f"{device.geometry.tables}")
        for number, weights in enumerate(self.tables):
            device.register_table(weights, f"table {number}")
        device.register(self.memory, writable=False)
        device.check_ids = False  # the card checks them


def batch_count(trace: Trace, batch_size: int, lookups: int) -> int:
    """Number of batches of a trace with at least `lookups` lookups; all if there are fewer.

    Raises
    ------
    Error
        The trace has no batch.
    """
    count = trace.batch_count(batch_size)
    if count is None:
        return -(-lookups // (batch_size * len(trace.cardinalities)))
    found = 0
    for number in range(count):
        found += trace.batch(number, batch_size).ids.size
        if found >= lookups:
            return number + 1
    if not found:
        raise Error(f"trace {trace.name} has no lookups")
    return count


def load(trace: Trace, taken: Sequence[Samples], row_bytes: int = ROW_BYTES) -> Workload:
    """Tables of a trace, and some samples as one batch each.

    Parameters
    ----------
    trace : Trace
    taken : list of Samples
    row_bytes : int
        A multiple of 4.
    """
    # All arrays in one buffer, each aligned to 64 bytes.
    arrays = [array for samples in taken for array in (samples.ids, samples.lengths)
              if array is not None]
    memory = empty(sum(-array.nbytes % 64 + array.nbytes for array in arrays), np.uint8)
    at = 0

    def placed(array: NDArray[Any]) -> NDArray[Any]:
        nonlocal at
        there = memory[at:at + array.nbytes].view(array.dtype).reshape(array.shape)
        there[...] = array
        at += -array.nbytes % 64 + array.nbytes
        return there

    batches = []
    for samples in taken:
        ids = placed(samples.ids)
        batches.append(Batch.dense(ids) if samples.lengths is None else Batch.jagged(
            ids, placed(samples.lengths).ravel(), len(samples)))
    tables = [empty((rows, row_bytes // 4), np.float32) for rows in trace.cardinalities]
    return Workload(tables, memory, batches, sum(samples.ids.size for samples in taken),
                    sum(samples.nbytes for samples in taken), sum(map(len, taken)))


def load_some(trace: Trace, batch_size: int, lookups: int, row_bytes: int = ROW_BYTES) -> Workload:
    """The first batches of a trace, with at least `lookups` lookups if there are so many."""
    count = batch_count(trace, batch_size, lookups)
    return load(trace, [trace.batch(number, batch_size) for number in range(count)], row_bytes)


def observe(device: Device, workload: Workload, advance: Callable[[], None],
            threads: int | None = None) -> dict[str, Any]:
    """Count every batch once; call `advance()` as each completes. `threads`: of a card that is this
    machine's cores."""
    results = run(device.observe_async, workload.batches, advance)
    return _figures(device, workload, results, 0, threads)


def learn(device: Device, workload: Workload, slots: int | None = None) -> RowList:
    """Give slots to the hottest rows of the first batches; return the rows with a slot.

    Parameters
    ----------
    slots : int, optional
        Default: all slots of the card.
    """
    learning = max(1, int(LEARNING_SHARE * len(workload.batches)))
    for batch in workload.batches[:learning]:
        device.observe(batch)
    hot = device.harvest(slots or device.geometry.slots)
    kept = device.install(hot).slots < device.geometry.slots
    return RowList(hot.table[kept], hot.row[kept])


def split(device: Device, workload: Workload, hot: RowList, advance: Callable[[], None],
          threads: int | None = None) -> dict[str, Any]:
    """Split every batch once; `hot` are the rows with slots. `threads` as for `observe`."""
    results = run(device.split_async, workload.batches, advance)
    misses = sum(len(result.misses) for result in results)
    written = 4 * workload.lookups + 4 * workload.samples + 8 * misses
    popular = sum(result.n_popular for result in results)
    return _figures(device, workload, results, written, threads) | {
        "hot_rows": len(hot), "misses_listed": misses,
        "popular_fraction": popular / workload.samples}


def run(submit: Callable[[Batch], Future[R]], batches: Iterable[Batch],
        advance: Callable[[], None]) -> list[R]:
    """Results of one command per batch, with several commands in flight."""
    waiting: deque[Future[R]] = deque()
    results = []
    for batch in batches:
        waiting.append(submit(batch))
        if len(waiting) == IN_FLIGHT:
            results.append(waiting.popleft().result())
            advance()
    for future in waiting:
        results.append(future.result())
        advance()
    return results


def span(results: Sequence[Observation] | Sequence[Split]) -> int:
    """Cycles from the start of the first command to the end of the last."""
    return results[-1].end - (results[0].end - results[0].cycles)


def engine_seconds(device: Device, results: Sequence[Observation] | Sequence[Split]) -> list[float]:
    """Seconds that each command took on a card that is this machine's cores."""
    return [each.cycles / (device.geometry.clock_mhz * 1e6) for each in results]


def engine_rate(lookups: int, seconds: float, threads: int) -> dict[str, Any]:
    """Lookups per second, and per second and thread."""
    return {"threads": threads, "seconds": seconds, "lookups_per_s": lookups / seconds,
            "lookups_per_s_core": lookups / seconds / threads}


def _figures(device: Device, workload: Workload, results: Sequence[Observation] | Sequence[Split],
             bytes_written: int, threads: int | None) -> dict[str, Any]:
    figures = {"batches": len(results), "lookups": workload.lookups,
               "bytes_written": bytes_written, "hits": sum(result.hits for result in results)}
    if threads:
        return engine_rate(
            workload.lookups, sum(engine_seconds(device, results)), threads) | figures
    geometry, cycles = device.geometry, span(results)
    rate = workload.lookups / cycles
    return {
        "lanes": geometry.lanes,
        "bus_bytes": geometry.bus_bytes,
        "cycles": cycles,
        "lookups_per_cycle": rate,
        "fraction_of_lanes": rate / geometry.lanes,
        "fraction_of_bus": workload.input_bytes / cycles / geometry.bus_bytes,
    } | figures
