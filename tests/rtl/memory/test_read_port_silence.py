"""A list port whose memory stops answering, and one that is restarted."""

from dataclasses import replace
from itertools import chain

import pytest
from hotrow_rtl.interfaces.records import FAULT_TIMEOUT
from hotrow_sim.memory import Behaviour

from tests.rtl.memory.read_port_bench import BASE, TINY, Bench, idle, read
from tests.support.benches.stream_bench import pulse


async def stop_within_a_list(ctx, port, client):
    """Request 4096 bytes of a memory that falls silent, and wait until the port stops."""
    ctx.set(port.timeout, 30)
    ctx.set(client.request.payload, {"address": BASE, "bytes": 4096})
    ctx.set(client.request.valid, 1)
    await ctx.tick().until(client.request.ready)
    ctx.set(client.request.valid, 0)
    await ctx.tick().until(port.stopped)


class TestSilence:
    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "requests accepted"])
    @pytest.mark.parametrize("first", [0, 16, 20, 34])
    def test_every_word_is_returned(self, first, accept):
        """Each list has the right number of words and a `last`; words without fault come first."""
        bench = Bench(TINY, 2, Behaviour(latency=5, stall_data=0.5), depth=16)
        bench.memory.silence(first, accept=accept)
        requests = [[(BASE, 200), (BASE + 1024, 100), (BASE, 64)], [(BASE + 512, 700)]]
        taken = [bench.read(client, mine) for client, mine in enumerate(requests)]

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
        assert (first > 0) == any(data for data, *_ in chain(*taken)), "a stop midway"
        assert not bench.memory.violations

    @pytest.mark.parametrize("seed", range(12))
    def test_short_timeout_keeps_the_order(self, seed):
        """Words that are inside the port when it stops are returned before the faults."""
        bench = Bench(TINY, 1, Behaviour(stall_data=0.2, seed=seed), depth=16)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 1)
        bench.process("timeout", configure)
        taken = bench.read(0, [(BASE, 800)])
        bench.run(300)
        expected = bench.expected([(BASE, 800)])
        good = sum(not fault for _, fault, _ in taken)
        assert good < 50, f"seed {seed}: the port did not stop"
        assert taken == expected[:good] + [(None, FAULT_TIMEOUT, last)
                                           for *_, last in expected[good:]], f"seed {seed}"

    @pytest.mark.parametrize("timeout, stops", [(0, False), (40, True), (70, False)])
    def test_timeout(self, timeout, stops):
        """A memory latency above `timeout` stops the port; 0 waits without limit."""
        bench = Bench(TINY, 1, Behaviour(latency=60))

        async def configure(ctx):
            ctx.set(bench.port.timeout, timeout)
        bench.process("timeout", configure)
        taken = bench.read(0, [(BASE, 64)])
        bench.run(200)
        assert [fault for _, fault, _ in taken] == [FAULT_TIMEOUT * stops] * 4

    def test_every_beat_is_progress(self):
        """A burst that takes longer than `timeout` does not stop the port."""
        bench = Bench(replace(TINY, burst_beats=64), 1, Behaviour(latency=5))

        async def configure(ctx):
            ctx.set(bench.port.timeout, 20)
        bench.process("timeout", configure)
        taken = bench.read(0, [(BASE, 1024)])
        bench.run(200)
        assert bench.memory.statistics.bursts == 1
        assert taken == bench.expected([(BASE, 1024)])

    def test_idle_time_does_not_count(self):
        bench = Bench(TINY, 1, Behaviour(latency=10))
        bench.request(0, [(BASE, 64)] * 3, gaps=(100,))
        taken = bench.receive(0, 12)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        bench.run(1000)
        assert taken == bench.expected([(BASE, 64)] * 3)

    @pytest.mark.slow
    def test_stalls_of_the_client_do_not_count(self):
        bench = Bench(TINY, 1, Behaviour(latency=10), depth=16)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        taken = bench.read(0, [(BASE, 512)], pauses=(60,))
        bench.run(10_000)
        assert taken == bench.expected([(BASE, 512)])

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "requests accepted"])
    @pytest.mark.parametrize("late", [100, 200, 300])
    def test_answers_after_the_stop_are_dropped(self, accept, late):
        """Answers arrive before the restart (100), around it (200), or after it (300)."""
        bench = Bench(TINY, 2, Behaviour(latency=5, jitter=20, seed=late), depth=16)
        bench.memory.silence(12, late, accept)
        port, wanted = bench.port, [(BASE + 0x2000, 500), (BASE + 0x4000, 100)]
        first = [bench.read(client, [(BASE, 300)]) for client in range(2)]
        second = []

        async def stop_and_restart(ctx):
            ctx.set(port.timeout, 20)
            await ctx.tick().until(port.stopped)
            while bench.cycles < 200:
                await ctx.tick()
            assert all(len(words) == 19 for words in first), "returned without the memory"
            await pulse(ctx, port.restart)
            ctx.set(port.timeout, 200)
            assert not ctx.get(port.stopped)
            await idle(ctx, port)
            assert bench.cycles >= late
            for address, size in wanted:
                second.extend(await read(ctx, port.clients[0], address, size))
        bench.process("stop and restart", stop_and_restart)
        bench.run(1500)
        assert second == bench.expected(wanted)
        bench.model.check()


class TestRestart:
    @pytest.mark.parametrize("when", [*range(4, 24), 40, 60])
    def test_in_flight(self, when):
        """After a restart in any cycle the clients read the right words, and no others."""
        bench = Bench(TINY, 2, Behaviour(latency=12, jitter=9, stall_address=0.5, stall_data=0.3,
                                         out_of_order=True, interleave=True, seed=when), depth=16)
        port, wanted, seen = bench.port, [(BASE + 0x1000, 300), (BASE + 0x3000, 200)], [[], []]

        async def drive(ctx, number):
            client = port.clients[number]
            ctx.set(client.request.payload, {"address": BASE + 0x5000 * number,
                                            "bytes": (4096, 80)[number]})
            ctx.set(client.request.valid, 1)
            ctx.set(client.words.ready, number)  # one client accepts its words, the other stalls
            while bench.cycles < when:
                await ctx.tick()
            if number == 0:
                ctx.set(port.restart, 1)
            ctx.set(client.request.payload, {"address": wanted[number][0],
                                            "bytes": wanted[number][1]})
            _, _, accepted = await ctx.tick().sample(client.request.ready)
            assert not accepted, "a request was accepted in the cycle of the restart"
            ctx.set(port.restart, 0)
            ctx.set(client.words.ready, 1)
            drained = False
            while not seen[number] or not seen[number][-1][2]:
                _, _, valid, word, accepted, is_idle = await ctx.tick().sample(
                    client.words.valid, client.words.payload,
                    client.request.valid & client.request.ready, port.idle)
                drained |= is_idle
                if accepted:
                    assert drained, "a request was accepted while beats were in flight"
                    ctx.set(client.request.valid, 0)
                if valid:
                    seen[number].append((word.data, word.fault, word.last))
        for number in range(2):
            bench.process(f"client {number}", lambda ctx, number=number: drive(ctx, number))
        bench.run(2000)
        for number in range(2):
            assert seen[number] == bench.expected([wanted[number]]), f"restart in cycle {when}"
        bench.model.check()

    @pytest.mark.slow
    def test_a_restart_in_any_cycle_leaves_the_whole_buffer(self):
        """As many words as fit are read for a client that stalls, after each of many restarts."""
        bench = Bench(TINY, 1, depth=16)
        port, client = bench.port, bench.port.clients[0]

        async def begin(ctx):
            ctx.set(client.request.payload, {"address": BASE, "bytes": 4096})
            ctx.set(client.request.valid, 1)
            await ctx.tick().until(client.request.ready)
            ctx.set(client.request.valid, 0)

        async def restart(ctx):
            await pulse(ctx, port.restart)
            await idle(ctx, port)

        async def drive(ctx):
            for cycles in range(1, 24):
                await begin(ctx)
                await ctx.tick().repeat(cycles)
                await restart(ctx)
                await begin(ctx)
                beats = 0
                for _ in range(50):
                    _, _, valid = await ctx.tick().sample(port.bus.rvalid)
                    beats += valid
                assert beats == 16, f"{beats} words after a restart {cycles} cycles after a request"
                await restart(ctx)
        bench.process("restarts", drive)
        bench.run(3000)

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "requests accepted"])
    def test_with_a_memory_that_stopped(self, accept):
        """Without a limit the port accepts nothing, and is not idle, until all beats have come."""
        bench = Bench(TINY, 1, Behaviour(latency=5), depth=16)
        bench.memory.silence(10, 600, accept)
        port, client = bench.port, bench.port.clients[0]
        words = []

        async def drive(ctx):
            await stop_within_a_list(ctx, port, client)
            ctx.set(port.timeout, 0)
            await pulse(ctx, port.restart)
            ctx.set(client.request.payload, {"address": BASE + 256, "bytes": 16})
            ctx.set(client.request.valid, 1)
            while bench.cycles < 600:
                _, _, accepted, is_idle, stopped = await ctx.tick().sample(
                    client.request.ready, port.idle, port.stopped)
                assert not accepted and not is_idle and not stopped
            words.extend(await read(ctx, client, BASE + 256, 16))
        bench.process("drive", drive)
        bench.run(1000)
        assert words == bench.expected([(BASE + 256, 16)])
        assert not bench.memory.violations

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "requests accepted"])
    def test_with_a_memory_that_stays_silent(self, accept):
        """The port stops again; late beats belong to no later list; a later restart recovers."""
        bench = Bench(TINY, 2, Behaviour(latency=5), depth=16)
        bench.memory.silence(10, 600, accept)
        port, client = bench.port, bench.port.clients[0]
        lists = []

        async def drive(ctx):
            await stop_within_a_list(ctx, port, client)
            for _ in range(2):
                ctx.set(port.restart, 1)
                assert ctx.get(port.stopped) and not ctx.get(port.idle)
                await pulse(ctx, port.restart)
                before = bench.cycles
                await idle(ctx, port)
                assert 30 <= bench.cycles - before < 40 and ctx.get(port.stopped)
                lists.extend([await read(ctx, each, BASE + 256, 40) for each in port.clients])
            await ctx.tick().repeat(640 - bench.cycles)
            lists.append(await read(ctx, client, BASE + 256, 40))
            await pulse(ctx, port.restart)
            await idle(ctx, port)
            assert not ctx.get(port.stopped)
            lists.append(await read(ctx, client, BASE + 256, 40))
        bench.process("drive", drive)
        bench.run(1000)
        assert lists.pop() == bench.expected([(BASE + 256, 40)])
        late = [(FAULT_TIMEOUT, last) for last in (0, 0, 1)]
        assert [[word[1:] for word in words] for words in lists] == [late] * 5
        assert not bench.memory.violations

    def test_with_an_idle_port(self):
        bench = Bench(TINY, 1)
        taken = bench.read(0, [(BASE, 100)] * 2, gaps=(0, 30))

        async def drive(ctx):
            while bench.cycles < 25:
                await ctx.tick()
            assert ctx.get(bench.port.idle)
            await pulse(ctx, bench.port.restart)
            assert ctx.get(bench.port.idle)
        bench.process("restart", drive)
        bench.run(200)
        assert taken == bench.expected([(BASE, 100)] * 2)
