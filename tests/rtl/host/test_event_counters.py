"""Event counters against a dictionary, with several clients."""

from itertools import cycle

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.host.event_counters import EventCounters

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

CONFIG = preset("tiny")


def client(dut, number, requests, replies, gaps=STEADY, pauses=STEADY):
    """Send (event, write, value) requests in order; append the replies."""
    async def run(ctx):
        port = dut.clients[number]
        for (event, write, value), gap, pause in zip(
                requests, cycle(gaps), cycle(pauses), strict=False):
            await ctx.tick().repeat(gap + 1)
            ctx.set(port.request.p, {"event": event, "write": write, "value": value})
            ctx.set(port.request.valid, 1)
            await ctx.tick().until(port.request.ready)
            ctx.set(port.request.valid, 0)
            for _ in range(pause):
                await ctx.tick()
            ctx.set(port.reply.ready, 1)
            reply, = await ctx.tick().sample(port.reply.p).until(port.reply.valid)
            ctx.set(port.reply.ready, 0)
            replies.append(reply)
    return run


def test_counters_start_at_zero():
    dut, replies = EventCounters(CONFIG, 3), []
    bench = StreamBench(dut)
    requests = [(event, 0, 0) for event in range(CONFIG.events)]
    bench.process("client", client(dut, 0, requests, replies))
    bench.run(limit=200)
    assert replies == [0] * CONFIG.events


@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["ready", "back-pressure"])
@pytest.mark.parametrize("seed", [1, 2])
def test_each_client_sees_its_own_counters(gaps, pauses, seed):
    """Clients without a common counter do not affect each other."""
    rng = np.random.default_rng(seed)
    dut = built(EventCounters, CONFIG, 3)
    bench = StreamBench(dut)
    expected, taken = [], []
    for number in range(3):
        mine = [event for event in range(CONFIG.events) if event % 3 == number]
        requests = [(int(rng.choice(mine)), int(rng.integers(2)), int(rng.integers(1 << 32)))
                    for _ in range(40)]
        state, replies = dict.fromkeys(mine, 0), []
        for event, write, value in requests:
            replies.append(state[event])
            if write:
                state[event] = value
        expected.append(replies)
        taken.append([])
        bench.process(f"client {number}", client(dut, number, requests, taken[-1], gaps, pauses))
    bench.run(limit=4000)
    assert taken == expected, f"seed {seed}"
    assert all(any(replies) for replies in expected)


def test_clients_are_served_round_robin():
    """Two clients without idle cycles do not starve the third."""
    dut = built(EventCounters, CONFIG, 3)
    bench = StreamBench(dut)
    order = []
    for number in range(3):
        async def greedy(ctx, number=number):
            port = dut.clients[number]
            ctx.set(port.request.valid, 1)
            ctx.set(port.reply.ready, 1)
            for _ in range(5):
                await ctx.tick().until(port.request.ready)
                order.append(number)
        bench.process(f"greedy {number}", greedy)
    bench.run(limit=200)
    rounds = [sorted(order[at:at + 3]) for at in range(0, 12, 3)]
    assert rounds == [[0, 1, 2]] * 4, order


@pytest.mark.parametrize("after", range(4))
def test_restart_drops_a_request_and_keeps_the_counters(after):
    """After a restart in any cycle the next client reads the value set before."""
    dut, before, replies = EventCounters(CONFIG, 3), [], []
    bench = StreamBench(dut)

    async def interrupted(ctx):
        await client(dut, 2, [(1, 1, 77)], before)(ctx)
        port = dut.clients[0]
        ctx.set(port.request.p, {"event": 2, "write": 0})
        ctx.set(port.request.valid, 1)
        for _ in range(after):
            _, _, accepted = await ctx.tick().sample(port.request.ready)
            if accepted:
                ctx.set(port.request.valid, 0)
        ctx.set(port.request.valid, 0)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        await client(dut, 1, [(1, 0, 0), (1, 0, 0)], replies)(ctx)
    bench.process("interrupted", interrupted)
    bench.run(limit=100)
    assert replies == [77, 77]


def test_few_clients_are_refused():
    with pytest.raises(ValueError, match="at least 2 clients, not 1"):
        EventCounters(CONFIG, 1)
