"""The list port before the memory model: contents, order, faults, silence, restart and rate."""

from dataclasses import replace
from gc import collect
from itertools import chain
from math import ceil

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS
from hotrow_rtl.layouts import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT, LIST_BYTES_WIDTH
from hotrow_rtl.list_port import ListPort
from hotrow_sim.memory import DECERR, SLVERR, Behaviour, MemoryModel
from hotrow_sim.memory.amaranth import read_responder
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY, WIDE = PRESETS["tiny"], PRESETS["alveo-u55c"]
BASE, SIZE = 0xA_0000_0000, 1 << 16
ECP5 = replace(PRESETS["ecp5-85f"], address_width=40)  # such as reach BASE
STALLS = {"jitter": 12, "stall_address": 0.4, "stall_data": 0.3}
MEMORIES = {
    "ideal": Behaviour(),
    "latency": Behaviour(latency=40),
    "stalls": Behaviour(latency=7, **STALLS),
    "out-of-order": Behaviour(latency=7, out_of_order=True, **STALLS),
    "interleaved": Behaviour(latency=7, out_of_order=True, interleave=True, **STALLS),
}


class Bench(StreamBench):
    """A list port, a memory behind it, and the words that each client got."""

    def __init__(self, config, clients, behaviour=MEMORIES["ideal"], **options):
        self.config, self.port = config, ListPort(config, clients, **options)
        super().__init__(self.port)
        self.model = MemoryModel()
        self.array = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
        self.model.map(self.array, BASE)
        self.memory = self.model.read_port(config.bus_bytes, behaviour)
        self.background(read_responder(self.port.bus, self.memory))

    def expected(self, requests, fault=lambda address: 0):
        """(data, fault, last) of every word of (address, bytes) requests; no data with a fault."""
        bus, words = self.config.bus_bytes, []
        for address, size in requests:
            for at in range(address, address + size, bus):
                data = int.from_bytes(self.array[at - BASE:][:bus].tobytes(), "little")
                end = at + bus >= address + size
                words.append((None if fault(at) else data, fault(at), int(end)))
        return words

    def ask(self, client, requests, gaps=STEADY):
        self.source(self.port.clients[client].request,
                    [{"address": address, "bytes": size} for address, size in requests], gaps)

    def take(self, client, count, pauses=STEADY):
        return self.sink(self.port.clients[client].words, count, pauses, name=f"client {client}",
                         read=lambda word: (None if word.fault else word.data, word.fault,
                                            word.last))

    def fetch(self, client, requests, gaps=STEADY, pauses=STEADY):
        self.ask(client, requests, gaps)
        count = sum(ceil(size / self.config.bus_bytes) for _, size in requests)
        return self.take(client, count, pauses)


def random_requests(rng, count, config):
    """Lists of up to six bursts, at any multiple of 64, with an odd number of bytes."""
    longest = 6 * config.burst_beats * config.bus_bytes
    sizes = rng.integers(1, longest, count)
    addresses = BASE + 64 * rng.integers(0, (SIZE - longest) // 64, count)
    return [(int(address), int(size)) for address, size in zip(addresses, sizes)]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_every_client_gets_its_words(memory, gaps, pauses):
    seed = 3
    rng = np.random.default_rng(seed)
    bench = Bench(TINY, 3, replace(MEMORIES[memory], seed=seed), depth=16)
    requests = [random_requests(rng, 8, TINY) for _ in range(3)]
    taken = [bench.fetch(i, requests[i], gaps, pauses) for i in range(3)]
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
    taken = [bench.fetch(i, requests[i], pauses=RAGGED) for i in range(clients)]
    bench.run(20_000)
    assert taken == [bench.expected(mine) for mine in requests], f"seed {seed}"
    bench.model.check()


@pytest.mark.parametrize("offset, words, bursts", [
    (0x0FC0, 8, 2), (0x0FC0, 4, 1), (0x1000, 4, 1), (0x1000, 1, 1), (0x0000, 12, 3), (0x0FC0, 5, 2),
])
def test_bursts_at_page_boundaries(offset, words, bursts):
    bench = Bench(TINY, 1)
    requests = [(BASE + offset, 16 * words)]
    taken = bench.fetch(0, requests)
    bench.run(200)
    assert taken == bench.expected(requests)
    assert bench.memory.statistics.bursts == bursts
    bench.model.check()


def test_bursts_shorter_than_64_bytes_meet_the_boundary():
    """A list may start in the middle of a burst's reach: only the first burst is short."""
    bench = Bench(replace(TINY, burst_beats=16), 1)
    requests = [(BASE + 0x40, 16 * 40)]
    taken = bench.fetch(0, requests)
    bench.run(200)
    assert taken == bench.expected(requests)
    assert bench.memory.statistics.bursts == 3  # 12, 16 and 12 beats
    bench.model.check()


@pytest.mark.parametrize("word", [0, 5, 15], ids=["first", "middle", "last"])
@pytest.mark.parametrize("response, fault", [(SLVERR, FAULT_SLVERR), (DECERR, FAULT_DECERR)])
def test_bus_faults_stay_with_their_word(word, response, fault):
    bench = Bench(TINY, 2, MEMORIES["out-of-order"])
    bad = BASE + 0x400 + 16 * word
    bench.memory.fail_range(bad, 16, response)
    requests = [[(BASE + 0x400, 256), (BASE, 64)], [(BASE + 0x800, 256)]]
    taken = [bench.fetch(client, mine) for client, mine in enumerate(requests)]
    bench.run(2000)
    for client, mine in enumerate(requests):
        assert taken[client] == bench.expected(mine, lambda at: fault * (at == bad))
    assert [fault for _, fault, _ in taken[0]].count(fault) == 1


def test_unmapped_memory_is_a_decode_error():
    bench = Bench(TINY, 1)
    taken = bench.fetch(0, [(BASE + SIZE - 64, 128)])
    bench.run(200)
    assert [fault for _, fault, _ in taken] == [0] * 4 + [FAULT_DECERR] * 4


def test_a_client_that_takes_nothing_delays_nobody():
    bench = Bench(TINY, 3, Behaviour(latency=10), depth=16)
    for deaf in (0, 2):
        bench.ask(deaf, [(BASE, 8192)])
    requests = [(BASE + 256 * i, 256) for i in range(32)]
    taken = bench.fetch(1, requests)
    cycles = bench.run(2000)
    assert taken == bench.expected(requests)
    assert cycles < 1.1 * 512 * (10 + ListPort.turnaround + 4) / 16


def test_clients_share_fairly():
    bench = Bench(TINY, 4, depth=16)
    shares = [bench.fetch(i, [(BASE + 8192 * i, 1600)]) for i in range(4)]
    spread = []

    async def watch(ctx):
        while min(map(len, shares)) < 100:
            await ctx.tick()
            spread.append(max(map(len, shares)) - min(map(len, shares)))
    bench.process("fair", watch)
    cycles = bench.run(500)
    assert max(spread) <= 2 * 4, "no client may be two bursts ahead"
    assert cycles <= 400 + 20, "one word a cycle in all"


@pytest.mark.parametrize("latency, depth", [(1, None), (64, None), (64, 64), (64, 16), (200, None)])
def test_rate(latency, depth):
    """words / cycles = min(1, depth / (latency + turnaround + burst_beats))."""
    bench = Bench(TINY, 1, Behaviour(latency=latency), depth=depth)
    words = 600
    taken = bench.fetch(0, [(BASE, 16 * words)])
    cycles = bench.run(20_000)
    assert taken == bench.expected([(BASE, 16 * words)])
    port = bench.port
    rate = min(1, port.depth / (latency + port.turnaround + TINY.burst_beats))
    expected = words / rate + latency + port.latency
    assert expected * 0.95 - 5 < cycles <= expected + 5, f"{cycles} cycles, expected {expected}"


def test_shallow_clients_read_in_short_bursts():
    config = ECP5
    bench = Bench(config, 3, Behaviour(latency=200), shallow={0: 16, 2: 32})
    requests = [[(BASE + 64 * i, 16 * words)] for i, words in enumerate((8, 100, 600))]
    taken = [bench.fetch(i, mine) for i, mine in enumerate(requests)]
    cycles = bench.run(6000)
    assert taken == [bench.expected(mine) for mine in requests]
    assert cycles <= 1.05 * (600 * (200 + ListPort.turnaround + 8) / 32 + 200)
    bench.model.check()


def test_lists_overlap():
    """The second list's latency hides behind the first: no gap of a memory's latency between."""
    bench = Bench(TINY, 1, Behaviour(latency=64))
    requests = [(BASE + 4096 * i, 4096) for i in range(4)]
    taken = bench.fetch(0, requests)
    cycles = bench.run(2000)
    assert taken == bench.expected(requests)
    assert cycles <= 4 * 256 + 64 + ListPort.latency + 10


def test_the_longest_list_is_not_cut_short():
    bench = Bench(TINY, 1)
    bench.model.map(np.zeros(1, np.uint8), 0)
    bench.ask(0, [(BASE, (1 << LIST_BYTES_WIDTH) - 1)])
    taken = bench.take(0, 600)
    bench.run(1000)
    assert taken == [(*word[:2], 0) for word in bench.expected([(BASE, 9600)])]


async def idle(ctx, port):
    """Until nothing is in flight."""
    if not ctx.get(port.idle):
        await ctx.tick().until(port.idle)


async def fetch(ctx, client, address, size):
    """One list on an idle client: its (data, fault, last) words."""
    ctx.set(client.request.payload, {"address": address, "bytes": size})
    ctx.set(client.request.valid, 1)
    await ctx.tick().until(client.request.ready)
    ctx.set(client.request.valid, 0)
    ctx.set(client.words.ready, 1)
    words = []
    while not words or not words[-1][2]:
        (word,) = await ctx.tick().sample(client.words.payload).until(client.words.valid)
        words.append((word.data, word.fault, word.last))
    ctx.set(client.words.ready, 0)
    return words


async def pulse(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


class TestSilence:
    @pytest.mark.parametrize("accept", [False, True], ids=["nothing taken", "requests taken"])
    @pytest.mark.parametrize("first", [0, 16, 20, 34])
    def test_every_word_is_answered(self, first, accept):
        """Each list gets its right number of words and its `last`; the good ones come first."""
        bench = Bench(TINY, 2, Behaviour(latency=5, stall_data=0.5), depth=16)
        bench.memory.silence(first, accept=accept)
        requests = [[(BASE, 200), (BASE + 1024, 100), (BASE, 64)], [(BASE + 512, 700)]]
        taken = [bench.fetch(client, mine) for client, mine in enumerate(requests)]

        async def configure(ctx):
            ctx.set(bench.port.timeout, 50)
            await ctx.tick().until(bench.port.stopped)
        bench.process("stop", configure)
        bench.run(1000)
        for client, mine in enumerate(requests):
            expected = bench.expected(mine)
            good = sum(not fault for _, fault, _ in taken[client])
            assert good < len(expected)
            assert taken[client] == expected[:good] + [
                (None, FAULT_TIMEOUT, last) for *_, last in expected[good:]]
        assert (first > 0) == any(data for data, *_ in chain(*taken)), "silence in the middle"
        assert not bench.memory.violations

    @pytest.mark.parametrize("seed", range(12))
    def test_little_patience_loses_no_order(self, seed):
        """Words that are on their way through the port when it stops still come first."""
        bench = Bench(TINY, 1, Behaviour(stall_data=0.2, seed=seed), depth=16)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 1)
        bench.process("timeout", configure)
        taken = bench.fetch(0, [(BASE, 800)])
        bench.run(300)
        expected = bench.expected([(BASE, 800)])
        good = sum(not fault for _, fault, _ in taken)
        assert good < 50, f"seed {seed}: the port must stop"
        assert taken == expected[:good] + [(None, FAULT_TIMEOUT, last)
                                           for *_, last in expected[good:]], f"seed {seed}"

    @pytest.mark.parametrize("timeout, stops", [(0, False), (40, True), (70, False)])
    def test_patience(self, timeout, stops):
        """A memory that is slower than `timeout` stops the port; 0 waits for ever."""
        bench = Bench(TINY, 1, Behaviour(latency=60))

        async def configure(ctx):
            ctx.set(bench.port.timeout, timeout)
        bench.process("timeout", configure)
        taken = bench.fetch(0, [(BASE, 64)])
        bench.run(200)
        assert [fault for _, fault, _ in taken] == [FAULT_TIMEOUT * stops] * 4

    def test_every_beat_is_progress(self):
        """A burst that takes longer than `timeout` does not stop the port."""
        bench = Bench(replace(TINY, burst_beats=64), 1, Behaviour(latency=5))

        async def configure(ctx):
            ctx.set(bench.port.timeout, 20)
        bench.process("timeout", configure)
        taken = bench.fetch(0, [(BASE, 1024)])
        bench.run(200)
        assert bench.memory.statistics.bursts == 1
        assert taken == bench.expected([(BASE, 1024)])

    def test_idle_time_does_not_count(self):
        bench = Bench(TINY, 1, Behaviour(latency=10))
        bench.ask(0, [(BASE, 64)] * 3, gaps=(100,))
        taken = bench.take(0, 12)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        bench.run(1000)
        assert taken == bench.expected([(BASE, 64)] * 3)

    def test_words_not_taken_do_not_count(self):
        bench = Bench(TINY, 1, Behaviour(latency=10), depth=16)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        taken = bench.fetch(0, [(BASE, 512)], pauses=(60,))
        bench.run(10_000)
        assert taken == bench.expected([(BASE, 512)])

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing taken", "requests taken"])
    @pytest.mark.parametrize("late", [100, 200, 300])
    def test_answers_after_the_stop_are_dropped(self, accept, late):
        """They come while stopped (100), after the restart (300), or around it (200)."""
        bench = Bench(TINY, 2, Behaviour(latency=5, jitter=20, seed=late), depth=16)
        bench.memory.silence(12, late, accept)
        port, wanted = bench.port, [(BASE + 0x2000, 500), (BASE + 0x4000, 100)]
        first = [bench.fetch(client, [(BASE, 300)]) for client in range(2)]
        second = []

        async def stop_and_restart(ctx):
            ctx.set(port.timeout, 20)
            await ctx.tick().until(port.stopped)
            while bench.cycles < 200:
                await ctx.tick()
            assert all(len(words) == 19 for words in first), "answered without the memory"
            await pulse(ctx, port.restart)
            ctx.set(port.timeout, 200)
            assert not ctx.get(port.stopped)
            await idle(ctx, port)
            assert bench.cycles >= late
            for address, size in wanted:
                second.extend(await fetch(ctx, port.clients[0], address, size))
        bench.process("stop and restart", stop_and_restart)
        bench.run(1500)
        assert second == bench.expected(wanted)
        bench.model.check()


class TestRestart:
    @pytest.mark.parametrize("when", [*range(4, 24), 40, 60])
    def test_in_flight(self, when):
        """After a restart at any moment the same clients read right words, and only those."""
        bench = Bench(TINY, 2, Behaviour(latency=12, jitter=9, stall_address=0.5, stall_data=0.3,
                                         out_of_order=True, interleave=True, seed=when), depth=16)
        port, wanted, seen = bench.port, [(BASE + 0x1000, 300), (BASE + 0x3000, 200)], [[], []]

        async def client(ctx, number):
            fetch = port.clients[number]
            ctx.set(fetch.request.payload, {"address": BASE + 0x5000 * number,
                                            "bytes": (4096, 80)[number]})
            ctx.set(fetch.request.valid, 1)  # again and again
            ctx.set(fetch.words.ready, number)  # one takes its words, the other does not
            while bench.cycles < when:
                await ctx.tick()
            if number == 0:
                ctx.set(port.restart, 1)
            ctx.set(fetch.request.payload, {"address": wanted[number][0],
                                            "bytes": wanted[number][1]})
            _, _, swallowed = await ctx.tick().sample(fetch.request.ready)
            assert not swallowed, "a request was taken in the cycle of the restart"
            ctx.set(port.restart, 0)
            ctx.set(fetch.words.ready, 1)
            drained = False
            while not seen[number] or not seen[number][-1][2]:
                _, _, valid, word, taken, calm = await ctx.tick().sample(
                    fetch.words.valid, fetch.words.payload,
                    fetch.request.valid & fetch.request.ready, port.idle)
                drained |= calm
                if taken:
                    assert drained, "a request was taken while beats were in flight"
                    ctx.set(fetch.request.valid, 0)
                if valid:
                    seen[number].append((word.data, word.fault, word.last))
        for number in range(2):
            bench.process(f"client {number}", lambda ctx, number=number: client(ctx, number))
        bench.run(2000)
        for number in range(2):
            assert seen[number] == bench.expected([wanted[number]]), f"restart at {when}"
        bench.model.check()

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing taken", "requests taken"])
    def test_of_a_dead_memory(self, accept):
        """Nothing is taken and nothing is said to be idle until what was asked for has come."""
        bench = Bench(TINY, 1, Behaviour(latency=5), depth=16)
        bench.memory.silence(10, 600, accept)
        port, client = bench.port, bench.port.clients[0]
        served = []

        async def drive(ctx):
            ctx.set(port.timeout, 30)
            ctx.set(client.request.payload, {"address": BASE, "bytes": 4096})
            ctx.set(client.request.valid, 1)
            await ctx.tick().until(client.request.ready)
            ctx.set(client.request.valid, 0)
            await ctx.tick().until(port.stopped)
            await pulse(ctx, port.restart)
            ctx.set(client.request.payload, {"address": BASE + 256, "bytes": 16})
            ctx.set(client.request.valid, 1)
            while bench.cycles < 600:
                _, _, taken, calm, stopped = await ctx.tick().sample(
                    client.request.ready, port.idle, port.stopped)
                assert not taken and not calm and not stopped
            served.extend(await fetch(ctx, client, BASE + 256, 16))
        bench.process("drive", drive)
        bench.run(1000)
        assert served == bench.expected([(BASE + 256, 16)])
        assert not bench.memory.violations

    def test_of_an_idle_port(self):
        bench = Bench(TINY, 1)
        taken = bench.fetch(0, [(BASE, 100)] * 2, gaps=(0, 30))

        async def drive(ctx):
            while bench.cycles < 25:
                await ctx.tick()
            assert ctx.get(bench.port.idle)
            await pulse(ctx, bench.port.restart)
            assert ctx.get(bench.port.idle)
        bench.process("restart", drive)
        bench.run(200)
        assert taken == bench.expected([(BASE, 100)] * 2)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("clients, options, message", [
    (0, {}, "at least one client is needed, not 0"),
    (1, {"depth": 4}, "depth must be a power of two of at least 8, two bursts, not 4"),
    (1, {"depth": 24}, "depth must be a power of two of at least 8, two bursts, not 24"),
])
def test_parameters_teach(clients, options, message):
    with pytest.raises(ValueError, match=message):
        ListPort(TINY, clients, **options)
    collect()  # the refused component goes while its warning is filtered
