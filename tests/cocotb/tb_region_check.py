"""Region check under cocotb: verdicts equal those of the golden model."""

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status, packed_address
from hotrow_rtl.interfaces.records import packed_address as address_layout
from hotrow_rtl.memory.region_check import RegionCheck
from hotrow_sim.golden.region_check import Region, check_operand

from tests.support.cosim.memory_ports import number
from tests.support.cosim.streams import RAGGED, STEADY, offer, reset, take

CONFIG = preset("tiny")
REGIONS = {3: Region(0x1000, 256, True), 4: Region(0x2000, 100, False),
           63: Region((1 << 64) - 4096, 4096, True)}


def accesses(count, seed):
    """Random accesses, half of them around the end of a region."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        handle = int(rng.choice([3, 4, 63, 5, 64]))
        size = int(rng.choice([1, 16, 64, 256]))
        end = REGIONS[handle].size if handle in REGIONS else 4096
        offset = max(0, end - size + int(rng.integers(-2, 3))) if rng.random() < 0.5 else int(
            rng.integers(0, 1 << 48))
        yield packed_address(handle, offset), size, bool(rng.integers(2))


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(gaps=[STEADY, RAGGED], pauses=[STEADY, RAGGED])
async def verdicts_equal_golden(dut, gaps, pauses):
    check = RegionCheck(CONFIG)
    dut.accesses__valid.value = dut.verdicts__ready.value = dut.update__enable.value = 0
    dut.stall.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    await reset(dut)
    while number(dut.ready) != 1:
        await RisingEdge(dut.clk)
    for handle, region in REGIONS.items():
        dut.update__index.value = handle
        dut.update__entry.value = check.update.entry.shape().const({
            "valid": 1, "writable": region.writable, "base16": region.base >> 4,
            "size": region.size}).as_bits()
        dut.update__enable.value = 1
        await RisingEdge(dut.clk)
    dut.update__enable.value = 0
    await RisingEdge(dut.clk)

    wanted = list(accesses(200, seed=7))
    shape = check.accesses.payload.shape()
    payloads = [shape.const({
        "address": address_layout.from_bits(address), "bytes": size, "write": write}).as_bits()
        for address, size, write in wanted]
    driver = cocotb.start_soon(offer(dut, "accesses", payloads, gaps))
    verdicts = await take(dut, "verdicts", len(wanted), pauses)
    await driver
    seen = set()
    for access, bits in zip(wanted, verdicts, strict=True):
        verdict = check.verdicts.payload.shape().from_bits(bits)
        status, address = check_operand(REGIONS, *access)
        assert (verdict.region, verdict.read_only) == (
            status is Status.REGION, status is Status.READ_ONLY), access
        assert status is not Status.OK or verdict.address == address % (1 << 64), access
        seen.add(status)
    assert seen == {Status.OK, Status.REGION, Status.READ_ONLY}
