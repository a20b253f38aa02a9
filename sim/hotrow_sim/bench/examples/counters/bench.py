"""Count lookups in hardware and in NumPy, and compare the rows with the highest counts."""

import cocotb
import numpy as np
from hotrow_rtl.units.counters import ScanOp
from hotrow_sim.bench.unit_bench import UnitBench
from hotrow_sim.golden.lookup.counters import Counters


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def the_hottest_rows_are_those_of_the_model(dut):
    # A driver or monitor for each stream: `bench.lookups`, `bench.reports`, ...
    bench = await UnitBench.start(dut, idle=0.1, stall=0.2, seed=1)
    lanes, golden = bench.config.lanes, Counters(bench.config)
    rng = np.random.default_rng(1)
    for _ in range(10):
        row = rng.zipf(1.3, 50 * lanes) % 10_000
        table = row % bench.config.tables
        for first in range(0, len(row), lanes):
            bench.lookups.put({
                "lanes": [{"row": int(row[at]), "table": int(table[at]), "present": 1}
                          for at in range(first, first + lanes)],
                "last": first + lanes == len(row)})
        report = await bench.reports.get()
        hits = golden.observe(table, row, np.arange(len(row)) // lanes)
        assert (report.lookups, report.hits) == (len(row), hits)

    bench.commands.put({"op": ScanOp.HARVEST, "count": 10, "threshold": 1, "shift": 0})
    found, last = [], False
    while not last:
        entry = await bench.harvested.get()
        found.append((entry.table, entry.row, entry.count))
        last = entry.last
    for table, row, count in sorted(found, key=lambda each: -each[2]):
        dut._log.info(f"table {table}, row {row}: {count} lookups")
    assert found == list(zip(*(each.tolist() for each in golden.harvest(10, 1)), strict=True))
