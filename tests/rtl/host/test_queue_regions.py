"""The region check of two queues: rings and lists of each, while the other one is restarted."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import COMMAND_BYTES, Status
from hotrow_rtl.host.queue_regions import QueueRegions

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

CONFIG = preset("tiny")
ENTRIES_LOG2, LIST_BYTES = 2, 4096
RING_BYTES = COMMAND_BYTES << ENTRIES_LOG2
# Handles of queue q: its commands, its completions and its lists, from 1 + 3 * q on.
KINDS = ("command", "completion", "operands")


def base(queue, kind):
    return 0x1_0000 * (1 + 3 * queue + KINDS.index(kind))


def address(queue, kind, offset=0):
    return {"handle": 1 + 3 * queue + KINDS.index(kind), "offset": offset}


def bench_of():
    """A check with two queues, whose rings are set, and its bench; the commands are read-only."""
    dut = built(QueueRegions, CONFIG, queues=2)
    bench = StreamBench(dut)

    async def prepare(ctx):
        await ctx.tick().until(dut.ready)
        ctx.set(dut.region_update.enable, 1)
        for number, queue in enumerate(dut.queues):
            ctx.set(queue.last, (1 << ENTRIES_LOG2) - 1)
            for kind in KINDS:
                ctx.set(dut.region_update.index, address(number, kind)["handle"])
                ctx.set(dut.region_update.entry, {
                    "valid": 1, "writable": kind != "command", "base16": base(number, kind) >> 4,
                    "size": LIST_BYTES if kind == "operands" else RING_BYTES})
                await ctx.tick()
            for kind in ("command", "completion"):
                ctx.set(getattr(queue, f"{kind}_ring"), address(number, kind))
        ctx.set(dut.region_update.enable, 0)
    return dut, bench, prepare


async def entry(ctx, port, number):
    """The address and status of an entry."""
    ctx.set(port.numbers.p, number)
    ctx.set(port.numbers.valid, 1)
    await ctx.tick().until(port.numbers.ready)
    ctx.set(port.numbers.valid, 0)
    found, = await ctx.tick().sample(port.addresses.p).until(port.addresses.valid)
    return found.address, found.status


async def operand(ctx, port, where, size):
    """The address of a list and whether it lies outside of its region."""
    ctx.set(port.accesses.p, {"address": where, "bytes": size, "write": 1})
    ctx.set(port.accesses.valid, 1)
    await ctx.tick().until(port.accesses.ready)
    ctx.set(port.accesses.valid, 0)
    found, = await ctx.tick().sample(port.verdicts.p).until(port.verdicts.valid)
    return found.address, found.region


async def disturb(ctx, queue, rng):
    """Numbers and lists of a queue that is restarted again and again; some are withdrawn."""
    streams = [queue.command.numbers, queue.completion.numbers, queue.operands.accesses]
    while True:
        for stream in streams:
            ctx.set(stream.valid, int(rng.integers(4) != 0))
        for cycle in range(int(rng.integers(2, 14))):
            _, _, *accepted = await ctx.tick().sample(*(stream.ready for stream in streams))
            for stream, fire in zip(streams, accepted, strict=True):
                if fire or (cycle == 3 and stream is streams[0]):
                    ctx.set(stream.valid, 0)
        ctx.set(queue.restart, 1)
        await ctx.tick()
        ctx.set(queue.restart, 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_gets_its_addresses_while_the_other_one_is_restarted(seed):
    """Numbers of entries and lists of both queues at random."""
    dut, bench, prepare = bench_of()
    rng, ready, finished = np.random.default_rng(seed), [], []

    def user(kind):
        async def use(ctx):
            await ctx.tick().until(dut.ready)
            while not ready:
                await ctx.tick()
            for number in range(60):
                await ctx.tick().repeat(1 + int(rng.integers(6)))
                port = getattr(dut.queues[1], kind)
                offset = int(rng.integers(2 * LIST_BYTES)) // 64 * 64
                if kind == "operands":
                    found, outside = await operand(ctx, port, address(1, kind, offset), 64)
                    assert outside == (offset >= LIST_BYTES)
                    assert outside or found == base(1, kind) + offset
                else:
                    assert await entry(ctx, port, number) == (
                        base(1, kind) + number % (1 << ENTRIES_LOG2) * COMMAND_BYTES, Status.OK)
            finished.append(kind)
        return use

    async def others(ctx):
        await prepare(ctx)
        ready.append(True)
        await disturb(ctx, dut.queues[0], rng)
    bench.background(others)
    for kind in KINDS:
        bench.process(kind, user(kind))
    bench.run(8000)
    assert sorted(finished) == sorted(KINDS)


@pytest.mark.parametrize("kind", ["command", "completion"])
@pytest.mark.parametrize("after", range(1, 13))
def test_no_address_follows_a_restart(kind, after):
    """After a restart in any cycle the next number gets its own address, and only that one."""
    dut, bench, prepare = bench_of()
    found = []

    async def scenario(ctx):
        await prepare(ctx)
        port = getattr(dut.queues[0], kind)
        ctx.set(port.numbers.p, 1)
        ctx.set(port.numbers.valid, 1)
        for _ in range(after):
            _, _, accepted = await ctx.tick().sample(port.numbers.ready)
            if accepted:
                ctx.set(port.numbers.valid, 0)
        ctx.set(dut.queues[0].restart, 1)
        await ctx.tick()
        ctx.set(dut.queues[0].restart, 0)
        found.append(await entry(ctx, port, 2))
        for _ in range(20):
            _, _, valid = await ctx.tick().sample(port.addresses.valid)
            assert not valid
    bench.process("scenario", scenario)
    bench.run(300)
    assert found == [(base(0, kind) + 2 * COMMAND_BYTES, Status.OK)]


@pytest.mark.parametrize("kind, change, status", [
    ("command", {"handle": CONFIG.handles - 1}, Status.REGION),
    ("command", {"offset": 16}, Status.REGION),
    ("completion", {"handle": 1}, Status.READ_ONLY)])
def test_a_ring_outside_its_region(kind, change, status):
    dut, bench, prepare = bench_of()

    async def scenario(ctx):
        await prepare(ctx)
        queue = dut.queues[0]
        ctx.set(getattr(queue, f"{kind}_ring"), address(0, kind) | change)
        _, found = await entry(ctx, getattr(queue, kind), (1 << ENTRIES_LOG2) - 1)
        assert found == status
        assert (await entry(ctx, dut.queues[1].command, 0))[1] == Status.OK
    bench.process("scenario", scenario)
    bench.run(300)
