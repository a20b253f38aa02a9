"""A geometry for proofs: the smallest legal parameters, without planner and arithmetic."""

from hotrow_rtl.config import Config

SMALL = Config(
    name="small", bus_bytes=16, address_width=32, handles=8, tables=2, counter_sets=16,
    counter_ways=2, directory_sets=64, directory_ways=2, batch_samples=64, miss_entries=64,
    burst_beats=2, outstanding=2, row_bytes=64, result_ports=1, events=2, arithmetic=0,
    clock_mhz=50)
