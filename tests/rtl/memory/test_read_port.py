"""The list port with the memory model: contents, order, faults and rate."""

from dataclasses import replace
from gc import collect

import numpy as np
import pytest
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR, LIST_BYTES_WIDTH
from hotrow_rtl.memory.read_port import DmaReadPort
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.rtl.memory.read_port_bench import (
    BASE,
    ECP5,
    MEMORIES,
    SIZE,
    TINY,
    WIDE,
    Bench,
    random_requests,
)
from tests.support.benches.stream_bench import RAGGED, STEADY


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_every_client_receives_its_words(memory, gaps, pauses):
    seed = 3
    rng = np.random.default_rng(seed)
    bench = Bench(TINY, 3, replace(MEMORIES[memory], seed=seed), depth=16)
    requests = [random_requests(rng, 8, TINY) for _ in range(3)]
    taken = [bench.read(i, requests[i], gaps, pauses) for i in range(3)]
    bench.run(20_000)
    for client in range(3):
        assert taken[client] == bench.expected(requests[client]), f"seed {seed}, client {client}"
    bench.model.check()


@pytest.mark.parametrize("config, clients, seed", [
    (WIDE, 6, 11), (replace(WIDE, bus_bytes=32), 2, 12), (ECP5, 1, 13)],
    ids=["64-byte bus, 6 clients", "32-byte bus, 2 clients", "16-byte bus, 1 client"])
def test_geometries(config, clients, seed):
    rng = np.random.default_rng(seed)
    bench = Bench(config, clients, replace(MEMORIES["interleaved"], seed=seed))
    requests = [random_requests(rng, 2, config) for _ in range(clients)]
    taken = [bench.read(i, requests[i], pauses=RAGGED) for i in range(clients)]
    bench.run(20_000)
    assert taken == [bench.expected(mine) for mine in requests], f"seed {seed}"
    bench.model.check()


@pytest.mark.parametrize("offset, words, bursts", [
    (0x0FC0, 8, 2), (0x0FC0, 4, 1), (0x1000, 4, 1), (0x1000, 1, 1), (0x0000, 12, 3), (0x0FC0, 5, 2),
])
def test_bursts_at_page_boundaries(offset, words, bursts):
    bench = Bench(TINY, 1)
    requests = [(BASE + offset, 16 * words)]
    taken = bench.read(0, requests)
    bench.run(200)
    assert taken == bench.expected(requests)
    assert bench.memory.statistics.bursts == bursts
    bench.model.check()


def test_first_burst_ends_at_the_boundary():
    """A list that starts between boundaries has one short burst at its start."""
    bench = Bench(replace(TINY, burst_beats=16), 1)
    requests = [(BASE + 0x40, 16 * 40)]
    taken = bench.read(0, requests)
    bench.run(200)
    assert taken == bench.expected(requests)
    assert bench.memory.statistics.bursts == 3  # 12, 16 and 12 beats
    bench.model.check()


@pytest.mark.parametrize("word", [0, 5, 15], ids=["first", "middle", "last"])
@pytest.mark.parametrize("response, fault", [(SLVERR, FAULT_SLVERR), (DECERR, FAULT_DECERR)])
def test_bus_faults_belong_to_their_word(word, response, fault):
    bench = Bench(TINY, 2, MEMORIES["out-of-order"])
    bad = BASE + 0x400 + 16 * word
    bench.memory.fail_range(bad, 16, response)
    requests = [[(BASE + 0x400, 256), (BASE, 64)], [(BASE + 0x800, 256)]]
    taken = [bench.read(client, mine) for client, mine in enumerate(requests)]
    bench.run(2000)
    for client, mine in enumerate(requests):
        assert taken[client] == bench.expected(mine, lambda at: fault * (at == bad))
    assert [fault for _, fault, _ in taken[0]].count(fault) == 1


def test_unmapped_memory_is_a_decode_error():
    bench = Bench(TINY, 1)
    taken = bench.read(0, [(BASE + SIZE - 64, 128)])
    bench.run(200)
    assert [fault for _, fault, _ in taken] == [0] * 4 + [FAULT_DECERR] * 4


def test_a_client_that_stalls_delays_no_other():
    bench = Bench(TINY, 3, Behaviour(latency=10), depth=16)
    for stalled in (0, 2):
        bench.request(stalled, [(BASE, 8192)])
    requests = [(BASE + 256 * i, 256) for i in range(32)]
    taken = bench.read(1, requests)
    cycles = bench.run(2000)
    assert taken == bench.expected(requests)
    assert cycles < 1.1 * 512 * (10 + DmaReadPort.turnaround + 4) / 16


def test_clients_share_fairly():
    bench = Bench(TINY, 4, depth=16)
    shares = [bench.read(i, [(BASE + 8192 * i, 1600)]) for i in range(4)]
    spread = []

    async def watch(ctx):
        while min(map(len, shares)) < 100:
            await ctx.tick()
            spread.append(max(map(len, shares)) - min(map(len, shares)))
    bench.process("shares", watch)
    cycles = bench.run(500)
    assert max(spread) <= 2 * 4, "no client is more than two bursts ahead"
    assert cycles <= 400 + 20, "one word a cycle in all"


@pytest.mark.parametrize("latency, depth", [(1, None), (64, None), (64, 64), (64, 16), (200, None)])
def test_rate(latency, depth):
    """words / cycles = min(1, depth / (latency + turnaround + burst_beats))."""
    bench = Bench(TINY, 1, Behaviour(latency=latency), depth=depth)
    words = 600
    taken = bench.read(0, [(BASE, 16 * words)])
    cycles = bench.run(20_000)
    assert taken == bench.expected([(BASE, 16 * words)])
    port = bench.port
    rate = min(1, port.depth / (latency + port.turnaround + TINY.burst_beats))
    expected = words / rate + latency + port.latency
    assert expected * 0.99 <= cycles <= expected + 5, f"{cycles} cycles, expected {expected}"


@pytest.mark.slow
def test_shallow_clients_read_in_short_bursts():
    config = ECP5
    bench = Bench(config, 3, Behaviour(latency=200), shallow={0: 16, 2: 32})
    requests = [[(BASE + 64 * i, config.bus_bytes * words)]
                for i, words in enumerate((8, 100, 600))]
    taken = [bench.read(i, mine) for i, mine in enumerate(requests)]
    cycles = bench.run(6000)
    assert taken == [bench.expected(mine) for mine in requests]
    assert cycles <= 1.05 * (600 * (200 + DmaReadPort.turnaround + 8) / 32 + 200)
    bench.model.check()


def test_lists_overlap():
    """The words of the first list hide the latency of the second."""
    bench = Bench(TINY, 1, Behaviour(latency=64))
    requests = [(BASE + 4096 * i, 4096) for i in range(4)]
    taken = bench.read(0, requests)
    cycles = bench.run(2000)
    assert taken == bench.expected(requests)
    assert cycles <= 4 * 256 + 64 + DmaReadPort.latency + 10


def test_idle_means_that_nothing_is_in_flight():
    """As many bursts are in flight as there is space for, then one after another arrives."""
    bench = Bench(TINY, 1, Behaviour(latency=100, jitter=50, stall_data=0.7), depth=64)
    requests = [(BASE + 4096, 64 * 40), (BASE, 16), (BASE + 16, 64)]
    taken = bench.read(0, requests)
    bus, counts = bench.port.bus, [0]

    async def watch(ctx):
        async for _, _, idle, valid, ready, arrives, last in ctx.tick().sample(
                bench.port.idle, bus.arvalid, bus.arready, bus.rvalid, bus.rlast):
            assert idle == (not counts[-1] and not valid), f"{counts[-1]} bursts are in flight"
            counts.append(counts[-1] + (valid & ready) - (arrives & last))
    bench.background(watch)
    bench.run(4000)
    assert taken == bench.expected(requests) and max(counts) == 64 / TINY.burst_beats


def test_longest_list_is_not_truncated():
    bench = Bench(TINY, 1)
    bench.model.map(np.zeros(1, np.uint8), 0)
    bench.request(0, [(BASE, (1 << LIST_BYTES_WIDTH) - 1)])
    taken = bench.receive(0, 600, more=True)
    bench.run(1000)
    assert taken == [(*word[:2], 0) for word in bench.expected([(BASE, 9600)])]


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("clients, options, message", [
    (0, {}, "at least one client is needed, not 0"),
    (1, {"depth": 4}, "depth must be a power of two of at least 8, two bursts, not 4"),
    (1, {"depth": 24}, "depth must be a power of two of at least 8, two bursts, not 24"),
])
def test_errors_name_the_legal_values(clients, options, message):
    with pytest.raises(ValueError, match=message):
        DmaReadPort(TINY, clients, **options)
    collect()  # the component's warning is filtered only inside this test
