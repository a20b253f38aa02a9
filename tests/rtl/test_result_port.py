"""The result port before the memory model: contents, outcomes, faults, silence, restart, rate."""

from dataclasses import replace
from gc import collect

import numpy as np
import pytest
from hotrow_rtl.config import PRESETS
from hotrow_rtl.layouts import FAULT_DECERR, FAULT_SLVERR, FAULT_TIMEOUT
from hotrow_rtl.result_port import ResultPort
from hotrow_sim.memory import DECERR, SLVERR, Behaviour, MemoryModel
from hotrow_sim.memory.amaranth import write_responder
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY, WIDE = PRESETS["tiny"], PRESETS["alveo-u55c"]
BASE, SIZE = 0xA_0000_0000, 1 << 16
ECP5 = replace(PRESETS["ecp5-85f"], address_width=40)  # such as reach BASE
STALLS = {"jitter": 12, "stall_address": 0.4, "stall_data": 0.3, "stall_response": 0.3}
MEMORIES = {
    "ideal": Behaviour(),
    "latency": Behaviour(latency=40),
    "stalls": Behaviour(latency=7, **STALLS),
    "out-of-order": Behaviour(latency=7, out_of_order=True, **STALLS),
}


class Bench(StreamBench):
    """A result port with a memory behind it, and what that memory must hold in the end."""

    def __init__(self, config, clients, behaviour=MEMORIES["ideal"], **options):
        self.config, self.port = config, ResultPort(config, clients, **options)
        super().__init__(self.port)
        self.model = MemoryModel()
        self.array = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
        self.expected = self.array.copy()
        self.model.map(self.array, BASE)
        self.memory = self.model.write_port(config.bus_bytes, behaviour)
        self.background(write_responder(self.port.bus, self.memory))
        self.rng = np.random.default_rng(2)
        self.empty_beats = 0  # delivered only because they had been promised
        self.background(self._watch_promised_beats)

    async def _watch_promised_beats(self, ctx):
        """While the port is stopped or drains, only the beat already offered may have strobes."""
        port, bus = self.port, self.port.bus
        restarted = offered = False
        while True:
            _, _, stopped, restart, idle, valid, ready, strobe = await ctx.tick().sample(
                port.stopped, port.restart, port.idle, bus.wvalid, bus.wready, bus.wstrb)
            if not (stopped or restarted):
                offered = True
            elif valid:
                assert offered or not strobe, "a beat of a dropped sequence carries data"
                self.empty_beats += ready and not offered
                offered &= not ready
            else:
                offered = False
            restarted = restart or (restarted and not idle)

    def words(self, address, count, ending="partial", striped=False):
        """Payloads of one sequence, noted as expected in memory.

        ending : "full", "partial" (strobes for the first bytes only) or "empty" (none).
        striped : to every second block, from the one in which the sequence starts.
        """
        bus, payloads = self.config.bus_bytes, []
        block = self.config.burst_beats * bus
        for i in range(count):
            last, data = i == count - 1, self.rng.bytes(bus)
            held = bus
            if last and ending != "full":
                held = 0 if ending == "empty" else int(self.rng.integers(1, bus))
            at = address - BASE + bus * i
            if striped:
                at += (at // block - (address - BASE) // block) * block
            self.expected[at:at + held] = np.frombuffer(data[:held], np.uint8)
            payloads.append({"data": int.from_bytes(data, "little"), "last": last,
                             "strobe": (1 << held) - 1})
        return payloads

    def deposit(self, client, sequences, gaps=STEADY, pauses=STEADY, whole=False):
        """Write (address, words[, ending]) sequences; return the list their outcomes fill."""
        port, striped = self.port.clients[client], client in self.port.striped and not whole
        self.source(port.request, [{"address": address} for address, *_ in sequences], gaps)
        self.source(port.words, [word for sequence in sequences
                                 for word in self.words(*sequence, striped=striped)], gaps)
        return self.sink(port.outcome, len(sequences), pauses, name=f"outcomes of {client}",
                         read=lambda outcome: outcome.fault)


def random_sequences(rng, client, count, config):
    """Sequences of up to five bursts that do not overlap, with every kind of ending."""
    room = SIZE // 8 // count // 64 * 64  # up to 8 clients
    longest = min(5 * config.burst_beats, room // config.bus_bytes - 64 // config.bus_bytes)
    starts = BASE + SIZE // 8 * client + room * np.arange(count) + 64 * rng.integers(0, 2, count)
    return [(int(start), int(rng.integers(1, longest)), ("full", "partial", "empty")[i % 3])
            for i, start in enumerate(starts)]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_every_client_writes_its_words(memory, gaps, pauses):
    seed = 3
    rng = np.random.default_rng(seed)
    bench = Bench(TINY, 3, replace(MEMORIES[memory], seed=seed))
    outcomes = [bench.deposit(i, random_sequences(rng, i, 7, TINY), gaps, pauses)
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
    outcomes = [bench.deposit(i, random_sequences(rng, i, 3, config), RAGGED)
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
    outcomes = bench.deposit(0, [(BASE + offset, words)])
    bench.run(200)
    assert outcomes == [0] and (bench.array == bench.expected).all()
    assert bench.memory.statistics.bursts == bursts
    bench.model.check()


def test_long_bursts_meet_the_boundary():
    bench = Bench(replace(TINY, burst_beats=16), 1)
    outcomes = bench.deposit(0, [(BASE + 0x40, 40)])
    bench.run(200)
    assert outcomes == [0] and (bench.array == bench.expected).all()
    assert bench.memory.statistics.bursts == 3  # 12, 16 and 12 beats


@pytest.mark.parametrize("words, beats", [(1, 0), (2, 1), (5, 4), (6, 5), (9, 8)])
def test_an_ending_without_data_does_not_reach_memory(words, beats):
    """The results may end at the last byte of a region."""
    bench = Bench(TINY, 1)
    start = BASE + SIZE - 16 * beats if words in (5, 9) else BASE
    outcomes = bench.deposit(0, [(start, words, "empty")])
    bench.run(200)
    assert outcomes == [0] and (bench.array == bench.expected).all()
    assert bench.memory.statistics.beats == beats
    bench.model.check()


class TestStripe:
    @pytest.mark.parametrize("memory", MEMORIES)
    @pytest.mark.parametrize("config", [replace(TINY, burst_beats=16), WIDE,
                                        replace(WIDE, burst_beats=2)],
                             ids=["16 of 16 bytes", "16 of 64 bytes", "2 of 64 bytes"])
    def test_two_clients_fill_memory_by_turns(self, memory, config):
        """From every start in a block, each with sequences that end in every way; between them
        runs a client that skips nothing."""
        seed, bus = 5, config.bus_bytes
        block = config.burst_beats * bus
        rng = np.random.default_rng(seed)
        bench = Bench(config, 3, replace(MEMORIES[memory], seed=seed), striped={0, 2})
        sides = [], []
        for number in range(6):  # regions that the two share, of four blocks or more
            offset = 64 * int(rng.integers(0, block // 64))
            region = BASE + SIZE // 16 * number
            longest = min(4, SIZE // 16 // block // 2 - 1) * config.burst_beats
            for side, start in enumerate((region + offset, region + block)):
                used = offset // bus if side == 0 else 0
                words = int(rng.integers(1, longest - used + 1))
                sides[side].append((start, words, ("full", "partial", "empty")[number % 3]))
        plain = [(address + SIZE // 2, words, ending) for address, words, ending in
                 random_sequences(rng, 0, 4, config)]
        outcomes = [bench.deposit(0, sides[0], RAGGED), bench.deposit(1, plain),
                    bench.deposit(2, sides[1])]
        bench.run(20_000)
        assert outcomes == [[0] * 6, [0] * 4, [0] * 6]
        assert (bench.array == bench.expected).all(), f"seed {seed}"
        bench.model.check()

    @pytest.mark.parametrize("offset, words, ending, bursts, beats", [
        (0x0FC0, 4, "full", 1, 4), (0x0FC0, 5, "full", 2, 5), (0x0FC0, 21, "full", 3, 21),
        (0x0FC0, 5, "empty", 1, 4), (0, 16, "partial", 1, 16), (0, 33, "full", 3, 33),
        (0, 33, "empty", 2, 32), (0x40, 12, "partial", 1, 12), (0x40, 1, "empty", 0, 0),
    ])
    def test_a_burst_is_the_rest_of_its_block(self, offset, words, ending, bursts, beats):
        bench = Bench(replace(TINY, burst_beats=16), 1, striped={0})
        outcomes = bench.deposit(0, [(BASE + offset, words, ending)])
        bench.run(300)
        assert outcomes == [0] and (bench.array == bench.expected).all()
        assert bench.memory.statistics.bursts == bursts
        assert bench.memory.statistics.beats == beats
        bench.model.check()

    @pytest.mark.parametrize("offset, words, bursts", [(0x0FC0, 5, 2), (0, 33, 3), (0x40, 60, 4)])
    def test_a_whole_sequence_fills_every_block(self, offset, words, bursts):
        bench = Bench(replace(TINY, burst_beats=16, planner=True), 1, striped={0})

        async def set_whole(ctx):
            ctx.set(bench.port.whole, 1)
        bench.process("whole", set_whole)
        outcomes = bench.deposit(0, [(BASE + offset, words, "full")], whole=True)
        bench.run(300)
        assert outcomes == [0] and (bench.array == bench.expected).all()
        assert bench.memory.statistics.bursts == bursts
        bench.model.check()

    def test_a_sequence_may_end_with_memory(self):
        """In the last block but one: the address behind it is nobody's."""
        bench = Bench(TINY, 1, striped={0})
        outcomes = bench.deposit(0, [(BASE + SIZE - 4 * 64, 9, "empty")])
        bench.run(100)
        assert outcomes == [0] and (bench.array == bench.expected).all()
        bench.model.check()

    def test_faults_stay_with_their_client(self):
        """Of two that share a range, the one tells whose block it is."""
        bench = Bench(TINY, 2, MEMORIES["out-of-order"], striped={0, 1})
        bench.memory.fail_range(BASE + 3 * 64, 64, DECERR)
        outcomes = [bench.deposit(0, [(BASE, 12), (BASE + 0x400, 12)]),
                    bench.deposit(1, [(BASE + 64, 12), (BASE + 0x440, 12)])]
        bench.run(1000)
        assert outcomes == [[0, 0], [FAULT_DECERR, 0]]

    def test_a_word_a_cycle(self):
        bench = Bench(WIDE, 1, Behaviour(latency=64), striped={0})
        bench.deposit(0, [(BASE + 64, 400)])
        bench.run(400 + 64 + WIDE.burst_beats + ResultPort.latency + 8)
        assert (bench.array == bench.expected).all()
        statistics = bench.memory.statistics
        assert statistics.last_beat - statistics.first_request <= 400 + 8


def test_outcome_comes_after_the_last_answer():
    bench = Bench(TINY, 1, Behaviour(latency=50))
    outcomes = bench.deposit(0, [(BASE, 9)])

    async def watch(ctx):
        await ctx.tick().until(bench.port.clients[0].outcome.valid)
        assert (bench.array == bench.expected).all()
        assert bench.cycles > bench.memory.statistics.last_beat + 50
    bench.process("watch", watch)
    bench.run(200)
    assert outcomes == [0]


@pytest.mark.parametrize("beat", [0, 5, 10], ids=["first", "middle", "last"])
@pytest.mark.parametrize("response, fault", [(SLVERR, FAULT_SLVERR), (DECERR, FAULT_DECERR)])
def test_bus_faults_stay_with_their_sequence(beat, response, fault):
    bench = Bench(TINY, 2, MEMORIES["out-of-order"])
    bench.memory.fail_range(BASE + 0x400 + 16 * beat, 16, response)
    first = bench.deposit(0, [(BASE, 11), (BASE + 0x400, 11), (BASE + 0x800, 11)])
    second = bench.deposit(1, [(BASE + 0x1000, 30)])
    bench.run(2000)
    assert first == [0, fault, 0] and second == [0]


def test_the_worst_fault_of_a_sequence_is_told():
    bench = Bench(TINY, 1)
    for beat, response in ((0, SLVERR), (5, DECERR), (9, SLVERR)):
        bench.memory.fail_beat(beat, response)
    outcomes = bench.deposit(0, [(BASE, 12), (BASE, 3)])
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


def test_a_client_that_pauses_delays_nobody():
    """Client 0 stays in the middle of a burst; client 2 leaves its outcomes."""
    bench = Bench(TINY, 3)
    for client, words in ((0, 6), (2, 8)):
        port = bench.port.clients[client]
        bench.source(port.request, [{"address": BASE + 0x8000 * client // 2}])
        bench.source(port.words, [{"data": i, "strobe": 0, "last": client and i == words - 1}
                                  for i in range(words)])
    outcomes = bench.deposit(1, [(BASE + 0x100 * i, 10) for i in range(20)])
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
        assert bench.deposit(client, [(BASE + SIZE // 4 * client % SIZE, 200 // clients)]) == []
    cycles = bench.run(words + latency + 100)
    total = 200 // clients * clients
    assert bench.memory.statistics.beats == total
    statistics = bench.memory.statistics
    assert statistics.last_beat - statistics.first_request <= total + 8
    assert cycles <= total + latency + WIDE.burst_beats + ResultPort.latency + 8


def test_sequences_overlap():
    """The next sequence goes out while the answers to the one before are awaited."""
    bench = Bench(TINY, 1, Behaviour(latency=100))
    outcomes = bench.deposit(0, [(BASE + 4096 * i, 128) for i in range(4)])
    cycles = bench.run(1000)
    assert outcomes == [0] * 4 and (bench.array == bench.expected).all()
    assert cycles <= 4 * 128 + 100 + 30


def test_latency():
    bench = Bench(TINY, 1)
    port, bus = bench.port.clients[0], bench.port.bus
    bench.deposit(0, [(BASE, 4)])
    seen = []

    async def watch(ctx):
        await ctx.tick().until(port.words.valid & port.words.ready & port.words.p.last)
        seen.append(bench.cycles)
        await ctx.tick().until(bus.wvalid)
        seen.append(bench.cycles)
    bench.process("watch", watch)
    bench.run(100)
    assert seen[1] - seen[0] == ResultPort.latency


async def pulse(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


async def deposit(ctx, client, address, words):
    """One sequence on an idle client; returns its fault."""
    ctx.set(client.request.payload, {"address": address})
    ctx.set(client.request.valid, 1)
    await ctx.tick().until(client.request.ready)
    ctx.set(client.request.valid, 0)
    ctx.set(client.words.valid, 1)
    for word in words:
        ctx.set(client.words.payload, word)
        await ctx.tick().until(client.words.ready)
    ctx.set(client.words.valid, 0)
    ctx.set(client.outcome.ready, 1)
    (outcome,) = await ctx.tick().sample(client.outcome.payload).until(client.outcome.valid)
    ctx.set(client.outcome.ready, 0)
    return outcome.fault


class TestSilence:
    @pytest.mark.parametrize("accept", [False, True], ids=["nothing taken", "all taken"])
    @pytest.mark.parametrize("first", [0, 12, 25, 38])
    def test_every_sequence_ends(self, first, accept):
        bench = Bench(TINY, 2, Behaviour(latency=5))
        bench.memory.silence(first, accept=accept)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 50)
            await ctx.tick().until(bench.port.stopped)
        bench.process("stop", configure)
        outcomes = [bench.deposit(0, [(BASE, 5), (BASE + 0x400, 9, "full"), (BASE, 2, "empty"),
                                      (BASE, 40)], pauses=RAGGED),
                    bench.deposit(1, [(BASE + 0x1000, 70), (BASE, 4)])]
        bench.run(1000)
        for mine in outcomes:
            good = mine.index(FAULT_TIMEOUT)
            assert mine == [0] * good + [FAULT_TIMEOUT] * (len(mine) - good)
        assert (first >= 25) == (outcomes[0][0] == 0), "silence in the middle"
        assert not bench.memory.violations

    @pytest.mark.parametrize("timeout, stops", [(0, False), (40, True), (80, False)])
    def test_patience(self, timeout, stops):
        bench = Bench(TINY, 1, Behaviour(latency=60))

        async def configure(ctx):
            ctx.set(bench.port.timeout, timeout)
        bench.process("timeout", configure)
        outcomes = bench.deposit(0, [(BASE, 4)])
        bench.run(200)
        assert outcomes == [FAULT_TIMEOUT * stops]

    def test_every_beat_is_progress(self):
        """A burst that takes longer than `timeout` does not stop the port."""
        bench = Bench(replace(TINY, burst_beats=64), 1, Behaviour(latency=5))

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        outcomes = bench.deposit(0, [(BASE, 64)])
        bench.run(300)
        assert bench.memory.statistics.bursts == 1
        assert outcomes == [0] and (bench.array == bench.expected).all()

    def test_a_client_that_pauses_does_not_stop_the_port(self):
        bench = Bench(TINY, 1, Behaviour(latency=5))

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        outcomes = bench.deposit(0, [(BASE, 12)], gaps=(70,))
        bench.run(2000)
        assert outcomes == [0] and (bench.array == bench.expected).all()

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing taken", "all taken"])
    @pytest.mark.parametrize("late", [130, 250, 350])
    def test_promised_beats_after_the_stop_carry_nothing(self, accept, late):
        """The memory comes back while the port is stopped (130), or after the restart (350)."""
        bench = Bench(TINY, 1, Behaviour(latency=5, outstanding=3, stall_data=0.3, seed=late))
        bench.memory.silence(25, late, accept)
        port, client = bench.port, bench.port.clients[0]
        before = bench.array.copy()
        lost = bench.words(BASE, 60, "full")
        bench.expected[:] = before

        async def stop_and_restart(ctx):
            ctx.set(port.timeout, 40)
            assert await deposit(ctx, client, BASE, lost) == FAULT_TIMEOUT
            assert ctx.get(port.stopped)
            assert await deposit(ctx, client, BASE, lost[-3:]) == FAULT_TIMEOUT
            while bench.cycles < 250:
                await ctx.tick()
            await pulse(ctx, port.restart)
            ctx.set(port.timeout, 200)
            if not ctx.get(port.idle):
                await ctx.tick().until(port.idle)
            assert bench.cycles >= late
            seen = bench.array.copy()
            assert await deposit(ctx, client, BASE + 0x4000,
                                 bench.words(BASE + 0x4000, 30)) == 0
            assert (bench.array[:0x4000] == seen[:0x4000]).all()
        bench.process("stop and restart", stop_and_restart)
        bench.run(1500)
        assert (bench.array[0x4000:] == bench.expected[0x4000:]).all()
        written = (bench.array[:960] != before[:960]).reshape(60, 16).any(axis=1)
        assert 0 < written.sum() < 60, "some words landed before the silence, none after the stop"
        assert not written[written.sum():].any()
        assert (bench.empty_beats > 0) == (not accept)
        bench.model.check()


class TestRestart:
    @pytest.mark.slow
    @pytest.mark.parametrize("when", [*range(6, 30), 45, 60])
    def test_in_flight(self, when):
        """After a restart at any moment the next sequences are whole, and only they are written."""
        bench = Bench(TINY, 2, Behaviour(latency=12, jitter=9, out_of_order=True, seed=when,
                                         stall_address=0.5, stall_data=0.3))
        port = bench.port

        async def client(ctx, number):
            mine = port.clients[number]
            ctx.set(mine.request.payload, {"address": BASE + 0x4000 * number})
            ctx.set(mine.request.valid, 1)
            ctx.set(mine.words.valid, 1)
            ctx.set(mine.words.payload, {"data": 7, "strobe": 0xFFFF, "last": 0})
            while bench.cycles < when:
                await ctx.tick()
            ctx.set(mine.words.valid, 0)
            ctx.set(mine.request.valid, 0)
            if number == 0:
                ctx.set(port.restart, 1)
            _, _, *swallowed = await ctx.tick().sample(mine.request.ready, mine.words.ready)
            assert not any(swallowed), "something was taken in the cycle of the restart"
            ctx.set(port.restart, 0)
            for start in (0x2000 + 0x4000 * number, 0x3000 + 0x4000 * number):
                words = bench.words(BASE + start, 9 + number)
                assert await deposit(ctx, mine, BASE + start, words) == 0
        for number in range(2):
            bench.process(f"client {number}", lambda ctx, number=number: client(ctx, number))
        bench.run(2000)
        for number in range(2):
            part = slice(0x2000 + 0x4000 * number, 0x4000 + 0x4000 * number)
            assert (bench.array[part] == bench.expected[part]).all(), f"restart at {when}"
        bench.model.check()

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing taken", "all taken"])
    def test_of_a_dead_memory(self, accept):
        """Nothing is taken and nothing is said to be idle until the memory has answered."""
        bench = Bench(TINY, 1, Behaviour(latency=5))
        bench.memory.silence(0, 500, accept)
        port, client = bench.port, bench.port.clients[0]

        async def drive(ctx):
            ctx.set(port.timeout, 30)
            assert await deposit(ctx, client, BASE, bench.words(BASE, 6)) == FAULT_TIMEOUT
            await pulse(ctx, port.restart)
            ctx.set(client.request.valid, 1)
            while bench.cycles < 500:
                _, _, taken, calm, stopped = await ctx.tick().sample(
                    client.request.ready, port.idle, port.stopped)
                assert not taken and not calm and not stopped
            await ctx.tick().until(port.idle)
            assert await deposit(ctx, client, BASE + 256, bench.words(BASE + 256, 6)) == 0
        bench.process("drive", drive)
        bench.run(1000)
        assert (bench.array[256:] == bench.expected[256:]).all()
        bench.model.check()

    def test_with_closed_bursts_and_nothing_in_flight(self):
        """Bursts that wait for their turn are forgotten, however short the restart is."""
        bench = Bench(TINY, 1, Behaviour(stall_address=0.0))
        port, client = bench.port, bench.port.clients[0]
        before = bench.array.copy()

        async def drive(ctx):
            ctx.set(client.request.valid, 1)
            ctx.set(client.request.payload, {"address": BASE})
            await ctx.tick().until(client.request.ready)
            ctx.set(client.request.valid, 0)
            ctx.set(client.words.payload, {"data": 5, "strobe": 0xFFFF, "last": 0})
            ctx.set(client.words.valid, 1)
            await ctx.tick().repeat(4)  # one burst is complete and has not been granted
            ctx.set(client.words.valid, 0)
            assert ctx.get(port.idle)
            await pulse(ctx, port.restart)
            assert ctx.get(port.idle)
            words = bench.words(BASE + 0x1000, 5)
            assert await deposit(ctx, client, BASE + 0x1000, words) == 0
        bench.process("drive", drive)
        bench.run(200)
        assert (bench.array[:0x1000] == before[:0x1000]).all()
        assert (bench.array == bench.expected).all()
        bench.model.check()


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("clients, options, message", [
    (0, {}, "at least one client is needed, not 0"),
    (1, {"depth": 4}, "depth must be a power of two of at least 8, two bursts, not 4"),
    (2, {"striped": {1, 2}}, r"striped clients must be numbers below 2, not \[2\]"),
])
def test_parameters_teach(clients, options, message):
    with pytest.raises(ValueError, match=message):
        ResultPort(TINY, clients, **options)
    collect()  # the refused component goes while its warning is filtered
