"""The result port with the memory model: contents, outcomes, faults, rate."""

from dataclasses import replace
from gc import collect

import numpy as np
import pytest
from hotrow_rtl.interfaces.records import FAULT_DECERR, FAULT_SLVERR
from hotrow_rtl.memory.write_client import OUTSTANDING_BURSTS
from hotrow_rtl.memory.write_port import DmaWritePort
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.rtl.memory.write_port_bench import (
    BASE,
    ECP5,
    MEMORIES,
    SIZE,
    TINY,
    WIDE,
    Bench,
    random_sequences,
)
from tests.support.benches.stream_bench import RAGGED, STEADY


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_every_client_writes_its_words(memory, gaps, pauses):
    seed = 3
    rng = np.random.default_rng(seed)
    bench = Bench(TINY, 3, replace(MEMORIES[memory], seed=seed))
    outcomes = [bench.write(i, random_sequences(rng, i, 7, TINY), gaps, pauses)
                for i in range(3)]
    bench.run(20_000)
    assert outcomes == [[0] * 7] * 3
    assert (bench.array == bench.expected).all(), f"seed {seed}"
    bench.model.check()


@pytest.mark.parametrize("config, clients, seed", [
    (WIDE, 5, 11), (replace(WIDE, bus_bytes=32), 2, 12), (ECP5, 1, 13)],
    ids=["64-byte bus, 5 clients", "32-byte bus, 2 clients", "16-byte bus, 1 client"])
def test_geometries(config, clients, seed):
    rng = np.random.default_rng(seed)
    bench = Bench(config, clients, replace(MEMORIES["out-of-order"], seed=seed))
    outcomes = [bench.write(i, random_sequences(rng, i, 3, config), RAGGED)
                for i in range(clients)]
    bench.run(20_000)
    assert outcomes == [[0] * 3] * clients
    assert (bench.array == bench.expected).all(), f"seed {seed}"
    bench.model.check()


@pytest.mark.parametrize("offset, words, bursts", [
    (0x0FC0, 8, 2), (0x0FC0, 4, 1), (0x1000, 1, 1), (0x0FC0, 5, 2), (0x0FF0 - 0x30, 12, 3),
])
def test_bursts_at_page_boundaries(offset, words, bursts):
    bench = Bench(TINY, 1)
    outcomes = bench.write(0, [(BASE + offset, words)])
    bench.run(200)
    assert outcomes == [0] and (bench.array == bench.expected).all()
    assert bench.memory.statistics.bursts == bursts
    bench.model.check()


def test_first_burst_ends_at_the_boundary():
    bench = Bench(replace(TINY, burst_beats=16), 1)
    outcomes = bench.write(0, [(BASE + 0x40, 40)])
    bench.run(200)
    assert outcomes == [0] and (bench.array == bench.expected).all()
    assert bench.memory.statistics.bursts == 3  # 12, 16 and 12 beats


@pytest.mark.parametrize("words, beats", [(1, 0), (2, 1), (5, 4), (6, 5), (9, 8)])
def test_a_last_word_without_strobes_is_not_written(words, beats):
    """The word after the last result may lie beyond the region."""
    bench = Bench(TINY, 1)
    start = BASE + SIZE - 16 * beats if words in (5, 9) else BASE
    outcomes = bench.write(0, [(start, words, "empty")])
    bench.run(200)
    assert outcomes == [0] and (bench.array == bench.expected).all()
    assert bench.memory.statistics.beats == beats
    bench.model.check()


@pytest.mark.slow
@pytest.mark.parametrize("words, latency", [(9, 50), (4 * (OUTSTANDING_BURSTS + 40), 2000)],
                         ids=["three bursts", "more bursts than may be in flight"])
def test_outcome_follows_the_last_answer(words, latency):
    bench = Bench(TINY, 1, Behaviour(latency=latency))
    outcomes = bench.write(0, [(BASE, words)])

    async def watch(ctx):
        await ctx.tick().until(bench.port.clients[0].outcome.valid)
        assert (bench.array == bench.expected).all()
        assert bench.cycles > bench.memory.statistics.last_beat + latency
    bench.process("watch", watch)
    bench.run(4 * latency)
    assert outcomes == [0]


@pytest.mark.parametrize("beat", [0, 5, 10], ids=["first", "middle", "last"])
@pytest.mark.parametrize("response, fault", [(SLVERR, FAULT_SLVERR), (DECERR, FAULT_DECERR)])
def test_bus_faults_belong_to_their_sequence(beat, response, fault):
    bench = Bench(TINY, 2, MEMORIES["out-of-order"])
    bench.memory.fail_range(BASE + 0x400 + 16 * beat, 16, response)
    first = bench.write(0, [(BASE, 11), (BASE + 0x400, 11), (BASE + 0x800, 11)])
    second = bench.write(1, [(BASE + 0x1000, 30)])
    bench.run(2000)
    assert first == [0, fault, 0] and second == [0]


def test_outcome_is_the_highest_fault_of_a_sequence():
    bench = Bench(TINY, 1)
    for beat, response in ((0, SLVERR), (5, DECERR), (9, SLVERR)):
        bench.memory.fail_beat(beat, response)
    outcomes = bench.write(0, [(BASE, 12), (BASE, 3)])
    bench.run(200)
    assert outcomes == [FAULT_DECERR, 0]


def test_read_only_memory_is_a_slave_error():
    bench = Bench(TINY, 1)
    bench.model.map(np.zeros(64, np.uint8), BASE + SIZE, writable=False)
    port = bench.port.clients[0]
    bench.source(port.request, [{"address": BASE + SIZE}])
    bench.source(port.words, [{"data": 1, "strobe": 1, "last": 1}])
    outcomes = bench.sink(port.outcome, 1, read=lambda outcome: outcome.fault)
    bench.run(200)
    assert outcomes == [FAULT_SLVERR]


def test_a_client_that_pauses_delays_no_other():
    """Client 0 stops in the middle of a burst; client 2 does not accept its outcomes."""
    bench = Bench(TINY, 3)
    for client, words in ((0, 6), (2, 8)):
        port = bench.port.clients[client]
        bench.source(port.request, [{"address": BASE + 0x8000 * client // 2}])
        bench.source(port.words, [{"data": i, "strobe": 0, "last": client and i == words - 1}
                                  for i in range(words)])
    outcomes = bench.write(1, [(BASE + 0x100 * i, 10) for i in range(20)])
    cycles = bench.run(600)
    assert outcomes == [0] * 20 and (bench.array == bench.expected).all()
    assert cycles < 300


@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("latency", [1, 64])
def test_rate(clients, latency):
    """One word a cycle over all clients, whatever the memory's latency."""
    bench = Bench(WIDE, clients, Behaviour(latency=latency))
    words = 512 // clients
    for client in range(clients):
        assert bench.write(client, [(BASE + SIZE // 4 * client % SIZE, 200 // clients)]) == []
    cycles = bench.run(words + latency + 100)
    total = 200 // clients * clients
    assert bench.memory.statistics.beats == total
    statistics = bench.memory.statistics
    assert statistics.last_beat - statistics.first_request <= total + 8
    assert cycles <= total + latency + WIDE.burst_beats + DmaWritePort.latency + 8


def test_sequences_overlap():
    """A sequence is sent while the answers to the previous one are awaited."""
    bench = Bench(TINY, 1, Behaviour(latency=100))
    outcomes = bench.write(0, [(BASE + 4096 * i, 128) for i in range(4)])
    cycles = bench.run(1000)
    assert outcomes == [0] * 4 and (bench.array == bench.expected).all()
    assert cycles <= 4 * 128 + 100 + 30


def test_latency():
    bench = Bench(TINY, 1)
    port, bus = bench.port.clients[0], bench.port.bus
    bench.write(0, [(BASE, 4)])
    seen = []

    async def watch(ctx):
        await ctx.tick().until(port.words.valid & port.words.ready & port.words.p.last)
        seen.append(bench.cycles)
        await ctx.tick().until(bus.wvalid)
        seen.append(bench.cycles)
    bench.process("watch", watch)
    bench.run(100)
    assert seen[1] - seen[0] == DmaWritePort.latency


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("clients, options, message", [
    (0, {}, "at least one client is needed, not 0"),
    (1, {"depth": 4}, "depth must be a power of two of at least 8, two bursts, not 4"),
    (2, {"striped": {1, 2}}, r"striped clients must be numbers below 2, not \[2\]"),
])
def test_errors_name_the_legal_values(clients, options, message):
    with pytest.raises(ValueError, match=message):
        DmaWritePort(TINY, clients, **options)
    collect()  # the component's warning is filtered only inside this test
