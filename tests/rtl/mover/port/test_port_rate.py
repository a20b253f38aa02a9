"""How fast several row ports are together: as many times as fast as one."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.mover.addressing.port_interleave import row_port
from hotrow_sim.cycles.mover import move_cycles
from hotrow_sim.golden.region_check import Table
from hotrow_sim.memory import Behaviour

from tests.support.benches.row_bench import BASE, REGIONS, TABLES, TINY, Gather, RowBench

SLOW, LONG = pytest.mark.slow, pytest.mark.long
LATENCY = 64
ROWS = 256  # of 64 bytes, from the first multiple of 4 KiB in region 0 on
ROW_BASE = 0x1000
WIDE = replace(TINY, counter_sets=256, directory_sets=256, miss_entries=1024, bus_bytes=64,
               outstanding=128, row_bytes=256)
NARROW = replace(TINY, outstanding=32)


def run(monkeypatch, config, per_port, seed=1):
    """Gather `per_port` rows of 64 bytes over each port, in a random order; return the bench, the
    cycles, and the port of each row."""
    table = Table(ROWS - 1, packed_address(0, ROW_BASE - (REGIONS[0].base - BASE)), 64, 64)
    monkeypatch.setitem(TABLES, 0, table)
    rng = np.random.default_rng(seed)
    by_port = row_port(config, BASE + ROW_BASE + 64 * np.arange(ROWS))
    rows = rng.permutation(np.concatenate([
        rng.choice(np.flatnonzero(by_port == port), per_port)
        for port in range(config.row_ports)]))
    command = Gather(seed, [0], len(rows), stride=0, destination=packed_address(1, 0xFF0))
    command.entries["row"] = rows
    command.stride = 64
    command.flags = 1  # listed: destinations within the region, which they share
    command.targets = (np.arange(len(rows)) % 64).astype("<u4")
    memory = Behaviour(latency=LATENCY)
    bench = RowBench(config, memory, memory)
    (got,), cycles = bench.run([command], limit=50_000)
    assert (got.status, got.entries, got.bytes) == (Status.OK, len(rows), 64 * len(rows))
    return bench, cycles, by_port[rows].tolist()


@pytest.mark.parametrize("base, ports, rows", [
    pytest.param(WIDE, 2, 300, id="64-2", marks=SLOW), *(
        pytest.param(base, ports, 600, id=f"{base.bus_bytes}-{ports}-600", marks=LONG)
        for base in (WIDE, NARROW) for ports in (1, 2, 4, 8))])
def test_ports_work_side_by_side(monkeypatch, base, ports, rows):
    """Each port's data channel carries rows in 0.95 of the cycles from its first beat to its
    last."""
    config = replace(base, row_ports=ports)
    bench, _, _ = run(monkeypatch, config, rows)
    for port in bench.reads:
        found = port.statistics
        share = found.beats / (found.last_beat - found.first_request - LATENCY + 1)
        assert share >= 0.95, f"{found.beats} beats, {share:.3f} of the cycles"


@pytest.mark.parametrize("base, ports", [
    pytest.param(base, ports, id=f"{base.bus_bytes}-{ports}",
                 marks=SLOW if (base, ports) == (NARROW, 2) else LONG)
    for base in (WIDE, NARROW) for ports in (2, 4, 8)])
def test_cycles_follow_the_model(monkeypatch, base, ports):
    config = replace(base, row_ports=ports)
    _, cycles, port_of = run(monkeypatch, config, 120)
    words = [64 // config.bus_bytes] * len(port_of)
    model = move_cycles(config, words, LATENCY, LATENCY, first_word=1, ports=port_of)
    assert model == cycles
