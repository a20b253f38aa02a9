"""A list port whose memory falls silent, and one that is restarted."""

from dataclasses import replace
from itertools import chain

import pytest
from hotrow_rtl.interfaces.records import FAULT_TIMEOUT
from hotrow_sim.memory import Behaviour
from hotrow_sim.testing.benches.stream_bench import pulse

from tests.rtl.memory.read_port_bench import BASE, TINY, Bench, fetch, idle


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
