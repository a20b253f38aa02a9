"""Overlap of the two queues: SPLIT of a batch during GATHER of the previous batch's missed rows.

Four runs: all SPLITs; all GATHERs of missed rows; both in turn, batch by batch; and both with each
GATHER concurrent with the next SPLIT. Events order the queues. All commands wait for one event,
which the host sets once they are in their rings, so that the time of the host is not measured.
"""

import numpy as np
from hotrow.bench import lookups
from hotrow.bench.options import device_of
from hotrow.contract.errors import Error
from hotrow.memory.buffer import empty

START, SPLIT, GATHERED = 0, 1, 2  # events; their values count batches
COMMANDS_PER_BATCH, OTHERS = 3, 2  # in a ring


def overlap(options, trace, steps) -> dict:
    """Cycles of the four runs.

    Raises
    ------
    Error
        The card moves no such rows, or every lookup of the trace hits.
    """
    count = lookups.batch_count(trace, options.batch, options.lookups)
    entries = 1 << (COMMANDS_PER_BATCH * count + OTHERS - 1).bit_length()
    with device_of(options, ring_entries=max(64, entries)) as device:
        longest = device.geometry.row_bytes
        if options.row_bytes % 16 or options.row_bytes > longest:
            raise Error(f"--row-bytes must be a multiple of 16 up to {longest}, the longest row of "
                        f"this card, not {options.row_bytes}")
        steps.begin("loading")
        workload = lookups.load_some(trace, options.batch, options.lookups, options.row_bytes)
        workload.register(device)
        steps.begin("learning hot rows")
        hot = lookups.learn(device, workload, options.hot_rows)
        pipeline = _Pipeline(device, workload, options.row_bytes)
        steps.begin("the four runs")
        pipeline.find_misses()
        cycles = {
            "split_cycles": pipeline.run(splits=True),
            "gather_cycles": pipeline.run(gathers=True),
            "in_turn_cycles": pipeline.run(splits=True, gathers=True, in_turn=True),
            "overlapped_cycles": pipeline.run(splits=True, gathers=True),
        }
        alone = cycles["split_cycles"], cycles["gather_cycles"]
        return {
            "bus_bytes": device.geometry.bus_bytes,
            "row_bytes": options.row_bytes,
            "batches": len(workload.batches),
            "lookups": workload.lookups,
            "hot_rows": len(hot),
            "rows_gathered": sum(map(len, pipeline.misses)),
            **cycles,
            "of_larger": cycles["overlapped_cycles"] / max(alone),
            "of_sum": cycles["overlapped_cycles"] / sum(alone),
            "agrees": pipeline.agrees,
        }


class _Pipeline:
    """The commands of some batches.

    Attributes
    ----------
    misses : list of RowList
        Missed rows of each batch.
    agrees : bool
        Every SPLIT found the same misses, and every GATHER copied the rows of the tables.
    """

    def __init__(self, device, workload, row_bytes):
        self.device, self.workload, self.row_bytes = device, workload, row_bytes
        self.agrees = True

    def find_misses(self):
        """Split once; give each missed row its own elements, and allocate memory for the rows."""
        self.misses = [self.device.split(batch).misses for batch in self.workload.batches]
        if not any(map(len, self.misses)):
            raise Error("every lookup hits: lower --hot-rows, so that some row is missed")
        self.rows = [empty((len(misses), self.row_bytes // 4), np.float32)
                     for misses in self.misses]
        self.buffers = [self.device.register(rows) if len(rows) else None for rows in self.rows]
        self.expected = []
        for misses in self.misses:
            for number in np.unique(misses.table):
                rows = misses.row[misses.table == number]
                self.workload.tables[number][rows] = (rows[:, None] % 65521 + number / 64
                                                      + np.arange(self.row_bytes // 4) / 1024)
        for misses in self.misses:
            expected = np.empty((len(misses), self.row_bytes // 4), np.float32)
            for number in np.unique(misses.table):
                chosen = misses.table == number
                expected[chosen] = self.workload.tables[number][misses.row[chosen]]
            self.expected.append(expected)

    def run(self, splits=False, gathers=False, in_turn=False) -> int:
        """Cycles from the start event to the end of the last command."""
        device, both = self.device, splits and gathers
        for event in (START, SPLIT, GATHERED):
            device.write_event(event, 0)
        for rows in self.rows:
            rows[:] = 0
        queues = ["lookup"] * splits + ["move"] * gathers
        starts = [device.wait_event_async(START, 1, queue=queue) for queue in queues]
        split, gathered, last = [], [], []
        for number, batch in enumerate(self.workload.batches):
            if splits:
                if in_turn and number:
                    last.append(device.wait_event_async(GATHERED, number, queue="lookup"))
                split.append(device.split_async(batch))
            if both:
                last.append(device.signal_async(SPLIT, number + 1, queue="lookup"))
                last.append(device.wait_event_async(SPLIT, number + 1, queue="move"))
            if gathers and len(self.misses[number]):
                gathered.append(device.gather_async(self.misses[number], self.buffers[number]))
            if both and in_turn:
                last.append(device.signal_async(GATHERED, number + 1, queue="move"))
        device.write_event(START, 1)
        everything = split + gathered + last
        for future in everything:
            future.result()
        self._compare([future.result().misses for future in split], gathers)
        return (max(future.span[1] for future in everything)
                - min(future.span[1] for future in starts))

    def _compare(self, misses, gathers):
        for found, known in zip(misses, self.misses, strict=False):  # none without splits
            self.agrees &= (np.array_equal(found.table, known.table)
                            and np.array_equal(found.row, known.row))
        if gathers:
            self.agrees &= all(map(np.array_equal, self.rows, self.expected))
