"""Ram and ClearedRam: collisions, parts, and the sweep after reset and on request."""

from gc import collect

import pytest
from amaranth.lib import data
from hotrow_rtl.primitives.ram import ClearedRam, Ram

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

ENTRY = data.StructLayout({"valid": 1, "number": 7})
DEPTH = 6


def run(dut, scenario, limit=100):
    bench = StreamBench(dut)
    bench.process("scenario", lambda ctx: scenario(ctx))
    bench.run(limit)


async def write(ctx, ram, address, value, enable=1):
    ctx.set(ram.write_address, address)
    ctx.set(ram.write_data, value)
    ctx.set(ram.write_enable, enable)
    await ctx.tick()
    ctx.set(ram.write_enable, 0)


async def read(ctx, ram, address):
    ctx.set(ram.read_address, address)
    ctx.set(ram.read_enable, 1)
    await ctx.tick()
    ctx.set(ram.read_enable, 0)
    return ctx.get(ram.read_data)


@pytest.mark.parametrize("reads_old, expected", [(True, 3), (False, 0xFC)])
def test_a_read_of_the_row_being_written(reads_old, expected):
    """The old row, or data that shows that the read is undefined."""
    ram = built(Ram, 8, DEPTH, reads_old=reads_old)

    async def scenario(ctx):
        await write(ctx, ram, 2, 3)
        ctx.set(ram.read_address, 2)
        await write(ctx, ram, 2, 9)
        assert ctx.get(ram.read_data) == expected
        assert await read(ctx, ram, 2) == 9
    run(ram, scenario)


def test_parts_and_read_clear():
    ram = built(Ram, 8, DEPTH, parts=2, clears=True)

    async def scenario(ctx):
        await write(ctx, ram, 1, 0x21, 0b11)
        await write(ctx, ram, 1, 0xFF, 0b10)
        assert await read(ctx, ram, 1) == 0xF1
        ctx.set(ram.read_clear, 1)
        assert await read(ctx, ram, 1) == 0
    run(ram, scenario)


@pytest.mark.parametrize("valid_only", [False, True], ids=["all bits", "valid only"])
def test_sweeps(valid_only):
    """Every row is cleared, after reset and on request; a write during a sweep is ignored."""
    ram = built(ClearedRam, ENTRY, DEPTH, valid_only=valid_only)

    async def scenario(ctx):
        for _ in range(2):
            for _ in range(DEPTH):
                assert not ctx.get(ram.ready)
                await write(ctx, ram, 4, {"valid": 1, "number": 99})
            assert ctx.get(ram.ready)
            for row in range(DEPTH):
                entry = await read(ctx, ram, row)
                assert not entry.valid and (valid_only or not entry.number), row
            for row in range(DEPTH):
                await write(ctx, ram, row, {"valid": 1, "number": row})
            entry = await read(ctx, ram, 5)
            assert (entry.valid, entry.number) == (1, 5)
            ctx.set(ram.clear, 1)
            await ctx.tick()
            ctx.set(ram.clear, 0)
    run(ram, scenario)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("depth, parts, message", [
    (1, 1, "a memory needs at least 2 rows, not 1"), (8, 3, "8 bits have no 3 equal parts")])
def test_illegal_geometries_are_refused(depth, parts, message):
    with pytest.raises(ValueError, match=message):
        Ram(8, depth, parts=parts)
    collect()  # the component's warning is filtered only inside this test
