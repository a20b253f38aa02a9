"""How fast a card counts and splits batches, by its own cycle counter."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from ..batch import Batch
from ..device import Device
from ..errors import Error
from ..memory import empty
from ..traces import Trace

IN_FLIGHT = 8  # commands that wait in the ring, so that the card never waits for the host
LEARNING_SHARE = 0.05  # of the batches, at least one: what a split's hot rows are learned on
ROW_ELEMENTS = 4  # 16 bytes, the shortest row: lookups do not touch the rows


@dataclass(frozen=True)
class Workload:
    """Batches of a trace, in memory of the device.

    Members
    -------
    batches : list of Batch
    lookups : int
        Of all batches.
    input_bytes : int
        Of their ids and lengths.
    samples : int
    """

    batches: list
    lookups: int
    input_bytes: int
    samples: int


def load(device: Device, trace: Trace, batch_size, lookups) -> Workload:
    """Register the tables of a trace, and batches of it with at least so many lookups.

    A trace that ends before gives the batches that it has.

    Raises
    ------
    Error
        If the trace has no full batch.
    """
    for number, rows in enumerate(trace.cardinalities):
        device.register_table(empty((rows, ROW_ELEMENTS), np.float32), f"table {number}")
    taken, found = [], 0
    count = trace.batch_count(batch_size)
    while found < lookups and (count is None or len(taken) < count):
        taken.append(trace.batch(len(taken), batch_size))
        found += taken[-1].ids.size
    if not taken:
        raise Error(f"trace {trace.name} has no batch of {batch_size} samples")

    # All of them in one buffer, each from a multiple of 64 bytes on.
    arrays = [array for samples in taken for array in (samples.ids, samples.lengths)
              if array is not None]
    memory = empty(sum(-array.nbytes % 64 + array.nbytes for array in arrays), np.uint8)
    device.register(memory, writable=False)
    at = 0

    def placed(array):
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
    return Workload(batches, found, sum(samples.nbytes for samples in taken),
                    sum(map(len, taken)))


def observe(device: Device, workload: Workload, slots, advance) -> dict:
    """Count every batch once; `advance()` is called as each completes. `slots` is not used."""
    results = _run(device.observe_async, workload.batches, advance)
    return _figures(device, workload, results, bytes_written=0)


def split(device: Device, workload: Workload, slots, advance) -> dict:
    """Learn the hot rows on the first batches, give them slots, then split every batch."""
    learning = max(1, int(LEARNING_SHARE * len(workload.batches)))
    for batch in workload.batches[:learning]:
        device.observe(batch)
    hot = device.harvest(slots or device.geometry.slots)
    installed = device.install(hot)
    results = _run(device.split_async, workload.batches, advance)
    misses = sum(len(result.misses) for result in results)
    written = 4 * workload.lookups + 4 * workload.samples + 8 * misses
    popular = sum(result.n_popular for result in results)
    return _figures(device, workload, results, bytes_written=written) | {
        "hot_rows": installed.entries, "misses_listed": misses,
        "popular_fraction": popular / workload.samples}


def _run(submit, batches, advance):
    """Results of a command per batch, several under way all the time."""
    waiting, results = deque(), []
    for batch in batches:
        waiting.append(submit(batch))
        if len(waiting) == IN_FLIGHT:
            results.append(waiting.popleft().result())
            advance()
    for future in waiting:
        results.append(future.result())
        advance()
    return results


def _figures(device, workload, results, bytes_written):
    """From the start of the first command to the end of the last."""
    geometry = device.geometry
    cycles = results[-1].end - (results[0].end - results[0].cycles)
    rate = workload.lookups / cycles
    read = workload.input_bytes / cycles / geometry.bus_bytes
    return {
        "lanes": geometry.lanes,
        "bus_bytes": geometry.bus_bytes,
        "batches": len(results),
        "lookups": workload.lookups,
        "cycles": cycles,
        "lookups_per_cycle": rate,
        "fraction_of_lanes": rate / geometry.lanes,
        "fraction_of_bus": read,
        "bytes_written": bytes_written,
        "hits": sum(result.hits for result in results),
    }
