"""Two writers that share a client of a result port: memory, outcomes and order."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.memory.write_arbiter import WriteArbiter

from tests.support.benches.list_bench import ListMemory
from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIG = preset("tiny")
BUS = CONFIG.bus_bytes


async def write(ctx, writer, address, words, fills, gap, outcomes):
    """Write one sequence and wait for its outcome, as a completion writer does."""
    ctx.set(writer.request.p, {"address": address})
    ctx.set(writer.request.valid, 1)
    await ctx.tick().until(writer.request.ready)
    ctx.set(writer.request.valid, 0)
    for number in range(words):
        await ctx.tick().repeat(gap + 1)
        ctx.set(writer.words.p, {"data": fills + number, "strobe": (1 << BUS) - 1,
                                 "last": number == words - 1})
        ctx.set(writer.words.valid, 1)
        await ctx.tick().until(writer.words.ready)
        ctx.set(writer.words.valid, 0)
    ctx.set(writer.outcome.ready, 1)
    outcome, = await ctx.tick().sample(writer.outcome.p).until(writer.outcome.valid)
    ctx.set(writer.outcome.ready, 0)
    outcomes.append(outcome.fault)


@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "ragged"])
@pytest.mark.parametrize("latency", [1, 30])
def test_each_writer_gets_its_outcomes(gaps, latency):
    rng, dut = np.random.default_rng(4), built(WriteArbiter, CONFIG)
    bench = StreamBench(dut)
    memory = ListMemory(bench, CONFIG, pauses=gaps, latency=latency)
    memory.accept(dut.client)
    outcomes, wanted = ([], []), ([], [])
    sequences = [[(memory.room(8 * BUS), int(rng.integers(1, 9))) for _ in range(12)]
                 for _ in dut.writers]
    for side, mine in enumerate(sequences):
        for number, (address, _) in enumerate(mine):
            fault = int(rng.integers(0, 4)) if number % 3 == side else 0
            memory.write_faults[address] = fault
            wanted[side].append(fault)

        async def run(ctx, side=side, mine=mine):
            for number, (address, words) in enumerate(mine):
                await write(ctx, dut.writers[side], address, words,
                            1000 * side + 10 * number, gaps[number % len(gaps)], outcomes[side])
        bench.process(f"writer {side}", run)
    bench.run(6000)
    assert outcomes == wanted
    for side, mine in enumerate(sequences):
        for number, (address, words) in enumerate(mine):
            found = memory.array(address, words * BUS // 4).reshape(words, -1)
            assert found[:, 0].tolist() == [1000 * side + 10 * number + i for i in range(words)]


@pytest.mark.parametrize("side", [0, 1])
def test_a_writer_without_a_request_delays_no_other(side):
    dut = built(WriteArbiter, CONFIG)
    bench, outcomes = StreamBench(dut), []
    memory = ListMemory(bench, CONFIG, latency=1)
    memory.accept(dut.client)
    address = memory.room(2 * BUS)

    async def run(ctx):
        for _ in range(4):
            await ctx.tick().repeat(3)
            await write(ctx, dut.writers[side], address, 2, 0, 0, outcomes)
    bench.process("writer", run)
    bench.run(200)
    assert outcomes == [0] * 4


def test_second_writer_sends_while_the_first_waits_for_its_outcome():
    dut = built(WriteArbiter, CONFIG)
    bench, client, ended = StreamBench(dut), dut.client, ([], [])
    for side in range(2):
        async def run(ctx, side=side):
            await write(ctx, dut.writers[side], 64 * side, 2, 0, 0, ended[side])
        bench.process(f"writer {side}", run)

    async def serve(ctx):
        ctx.set(client.request.ready, 1)
        ctx.set(client.words.ready, 1)
        for _ in range(2):  # both writers send all words before the first outcome
            await ctx.tick().until(client.words.valid & client.words.p.last)
        for fault in (1, 2):
            ctx.set(client.outcome.p, {"fault": fault})
            ctx.set(client.outcome.valid, 1)
            await ctx.tick().until(client.outcome.ready)
            ctx.set(client.outcome.valid, 0)
    bench.process("serve", serve)
    bench.run(100)
    assert ended == ([1], [2])
