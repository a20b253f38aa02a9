"""Region check against its golden model: verdicts, addresses, rate."""

from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.memory.region_check import RegionCheck
from hotrow_sim.golden.region_check import Region, check_operand, unpack_address

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIG = replace(preset("tiny"), handles=8, address_width=40)
REGIONS = {
    0: Region(0x1000, 0x1000, True),
    1: Region(0x2000, 0x40, False),
    3: Region((1 << 40) - 0x100, 0x100, True),  # ends at the top of memory
    7: Region(0x10, (1 << 39) + 1, False),
}
REMOVED = 5  # registered, then removed
TOP = (1 << 48) - 1


def edges():
    """Accesses that fit exactly, or exceed by one byte, and handles that are not registered."""
    for handle, region in REGIONS.items():
        for offset, size in ((0, region.size), (0, region.size + 1), (1, region.size),
                             (region.size - 1, 1), (region.size, 1), (region.size, 0),
                             (TOP, TOP), (TOP, 1), (0, TOP)):
            for write in (False, True):
                yield packed_address(handle, offset), size, write
    for handle in (2, REMOVED, 8, 8 + 3, 0x8000, 0xFFFF):
        yield packed_address(handle, 0), 16, False
        yield packed_address(handle, 0), 16, True


def traffic(count, seed):
    """All of `edges`, then random accesses near the ends of the regions."""
    rng = np.random.default_rng(seed)
    accesses = list(edges())
    for handle, write in zip(rng.integers(0, 9, count), rng.random(count) < 0.5, strict=True):
        end = REGIONS.get(int(handle), REGIONS[0]).size
        offset, size = max(0, end - int(rng.integers(0, 96))), int(rng.integers(1, 96))
        accesses.append((packed_address(int(handle), offset), size, bool(write)))
    return accesses


def payload(address, size, write):
    handle, offset = unpack_address(address)
    return {"address": {"offset": offset, "handle": handle}, "bytes": size, "write": write}


def run(accesses, gaps, pauses):
    """Register the regions, check the accesses; return the verdicts and the number of cycles."""
    dut = built(RegionCheck, CONFIG)
    bench = StreamBench(dut)
    registered = {**REGIONS, REMOVED: Region(0x3000, 0x1000, True)}

    async def commit(ctx, handle, region, valid):
        ctx.set(dut.update.index, handle)
        ctx.set(dut.update.entry, {"valid": valid, "writable": region.writable,
                                   "base16": region.base >> 4, "size": region.size})
        ctx.set(dut.update.enable, 1)
        await ctx.tick()
        ctx.set(dut.update.enable, 0)

    async def register(ctx):
        await ctx.tick().until(dut.ready)
        for handle, region in registered.items():
            await commit(ctx, handle, region, 1)
        await commit(ctx, REMOVED, registered[REMOVED], 0)

    bench.process("registration", register)
    setup = CONFIG.handles + len(registered) + 4
    bench.source(dut.accesses, [payload(*access) for access in accesses],
                 gaps=[setup, *islice(cycle(gaps), len(accesses))])
    verdicts = bench.sink(dut.verdicts, len(accesses), pauses)
    return verdicts, bench.run(100 * len(accesses)) - setup


@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["ready", "back-pressure"])
def test_verdicts_equal_golden(gaps, pauses):
    accesses = traffic(200, seed=1)
    verdicts, _ = run(accesses, gaps, pauses)
    seen = set()
    for (address, size, write), verdict in zip(accesses, verdicts, strict=True):
        status, byte_address = check_operand(REGIONS, address, size, write)
        seen.add(status)
        refusals = (verdict.region, verdict.read_only)
        where = f"address {address:#x}, {size} bytes, write {write}"
        assert refusals == (status == Status.REGION, status == Status.READ_ONLY), where
        if status == Status.OK:
            assert verdict.address == byte_address & (1 << CONFIG.address_width) - 1, where
    assert seen == {Status.OK, Status.REGION, Status.READ_ONLY}


def test_one_access_per_cycle():
    accesses = traffic(200, seed=2)
    _, cycles = run(accesses, STEADY, STEADY)
    assert cycles <= len(accesses) + RegionCheck.latency + 2


def test_nothing_is_registered_after_reset():
    dut = built(RegionCheck, CONFIG)
    bench = StreamBench(dut)
    accesses = [(packed_address(handle, 0), 0, False) for handle in range(CONFIG.handles)]
    bench.source(dut.accesses, [payload(*access) for access in accesses],
                 gaps=[CONFIG.handles + 2, *[0] * CONFIG.handles])
    verdicts = bench.sink(dut.verdicts, CONFIG.handles)
    bench.run(100)
    assert all(verdict.region and not verdict.read_only for verdict in verdicts)
