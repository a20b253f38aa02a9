"""The region arbiter with a check that returns the offset of each access as its address."""

from itertools import cycle

import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.host.region_arbiter import RegionArbiter

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIG = preset("tiny")
CLIENTS = 3


def bench_of(latency=3):
    """Return an enabled arbiter, its bench, and the list of offsets that the check receives."""
    dut, seen = built(RegionArbiter, CONFIG, CLIENTS), []
    bench = StreamBench(dut)

    async def check(ctx):
        accesses, verdicts = dut.check.accesses, dut.check.verdicts
        ctx.set(dut.enable, 1)
        while True:
            ctx.set(accesses.ready, 1)
            _, _, valid, access = await ctx.tick().sample(accesses.valid, accesses.p)
            if not valid:
                continue
            ctx.set(accesses.ready, 0)
            seen.append(access.address.offset)
            for _ in range(latency):
                await ctx.tick()
            ctx.set(verdicts.p, {"address": access.address.offset, "region": access.write})
            ctx.set(verdicts.valid, 1)
            await ctx.tick()
            ctx.set(verdicts.valid, 0)
    bench.background(check)
    return dut, bench, seen


async def request(ctx, port, offset, write=0):
    ctx.set(port.accesses.p, {"address": {"offset": offset}, "write": write})
    ctx.set(port.accesses.valid, 1)
    await ctx.tick().until(port.accesses.ready)
    ctx.set(port.accesses.valid, 0)


async def verdict(ctx, port):
    payload, = await ctx.tick().sample(port.verdicts.p).until(port.verdicts.valid)
    return payload.address, payload.region


@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
def test_each_client_receives_its_verdicts(gaps):
    dut, bench, _ = bench_of()
    taken = {number: [] for number in range(CLIENTS)}
    for number in range(CLIENTS):
        async def client(ctx, number=number):
            port = dut.clients[number]
            for index, gap in zip(range(20), cycle(gaps)):
                await ctx.tick().repeat(gap + 1)
                await request(ctx, port, 100 * number + index, index % 2)
                taken[number].append(await verdict(ctx, port))
        bench.process(f"client {number}", client)
    bench.run(2000)
    assert taken == {number: [(100 * number + index, index % 2) for index in range(20)]
                     for number in range(CLIENTS)}


def test_lower_numbers_have_priority():
    dut, bench, seen = bench_of()

    async def together(ctx):
        for number, port in enumerate(dut.clients):
            ctx.set(port.accesses.p, {"address": {"offset": number}})
            ctx.set(port.accesses.valid, 1)
        while len(seen) < CLIENTS:
            _, _, *ready = await ctx.tick().sample(*(port.accesses.ready for port in dut.clients))
            for port, accepted in zip(dut.clients, ready, strict=True):
                if accepted:
                    ctx.set(port.accesses.valid, 0)
    bench.process("together", together)
    bench.run(100)
    assert seen == [0, 1, 2]


def test_no_access_is_accepted_while_disabled():
    dut, bench, seen = bench_of()

    async def scenario(ctx):
        await ctx.tick()
        ctx.set(dut.enable, 0)
        ctx.set(dut.clients[1].accesses.valid, 1)
        for _ in range(20):
            _, _, ready = await ctx.tick().sample(dut.clients[1].accesses.ready)
            assert not ready
    bench.process("scenario", scenario)
    bench.run(100)
    assert not seen


@pytest.mark.parametrize("after", range(9))
def test_a_restart_drops_the_verdict_in_progress(after):
    """After a restart in any cycle the clients receive the verdict of the next access alone."""
    dut, bench, _ = bench_of(latency=5)
    taken = []

    async def watch(ctx):
        async for _, _, *verdicts in ctx.tick().sample(*(
                part for port in dut.clients for part in (port.verdicts.valid, port.verdicts.p))):
            for number, (valid, payload) in enumerate(zip(
                    verdicts[::2], verdicts[1::2], strict=True)):
                if valid:
                    taken.append((number, payload.address, payload.region))

    async def scenario(ctx):
        port = dut.clients[0]
        ctx.set(port.accesses.p, {"address": {"offset": 1}})
        ctx.set(port.accesses.valid, 1)
        for _ in range(after):
            _, _, ready = await ctx.tick().sample(port.accesses.ready)
            if ready:
                ctx.set(port.accesses.valid, 0)
        ctx.set(port.accesses.valid, 0)
        ctx.set(dut.restart, 0b001)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        taken.clear()
        await request(ctx, dut.clients[1], 2)
        await verdict(ctx, dut.clients[1])
        await ctx.tick().repeat(10)
    bench.background(watch)
    bench.process("scenario", scenario)
    bench.run(100)
    assert taken == [(1, 2, 0)]


@pytest.mark.parametrize("after", range(9))
def test_a_restart_leaves_the_accesses_of_others(after):
    """A client keeps its place and verdict while another restarts in any cycle."""
    dut, bench, seen = bench_of(latency=5)

    async def restart(ctx):
        await ctx.tick().repeat(1 + after)
        ctx.set(dut.restart, 0b101)
        await ctx.tick()
        ctx.set(dut.restart, 0)

    async def scenario(ctx):
        await request(ctx, dut.clients[1], 7)
        assert await verdict(ctx, dut.clients[1]) == (7, 0)
    bench.background(restart)
    bench.process("scenario", scenario)
    bench.run(100)
    assert seen == [7]
