"""A result port whose memory stops answering, and one that is restarted."""

from dataclasses import replace

import pytest
from hotrow_rtl.interfaces.records import FAULT_TIMEOUT
from hotrow_sim.memory import Behaviour

from tests.rtl.memory.write_port_bench import BASE, TINY, Bench, write
from tests.support.benches.stream_bench import RAGGED, pulse


class TestSilence:
    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "all accepted"])
    @pytest.mark.parametrize("first", [0, 12, 25, 38])
    def test_every_sequence_ends(self, first, accept):
        bench = Bench(TINY, 2, Behaviour(latency=5))
        bench.memory.silence(first, accept=accept)

        async def configure(ctx):
            ctx.set(bench.port.timeout, 50)
            await ctx.tick().until(bench.port.stopped)
        bench.process("stop", configure)
        outcomes = [bench.write(0, [(BASE, 5), (BASE + 0x400, 9, "full"), (BASE, 2, "empty"),
                                      (BASE, 40)], pauses=RAGGED),
                    bench.write(1, [(BASE + 0x1000, 70), (BASE, 4)])]
        bench.run(1000)
        for mine in outcomes:
            good = mine.index(FAULT_TIMEOUT)
            assert mine == [0] * good + [FAULT_TIMEOUT] * (len(mine) - good)
        assert (first >= 25) == (outcomes[0][0] == 0), "the memory stops in the middle"
        assert not bench.memory.violations

    @pytest.mark.parametrize("timeout, stops", [(0, False), (40, True), (80, False)])
    def test_timeout(self, timeout, stops):
        bench = Bench(TINY, 1, Behaviour(latency=60))

        async def configure(ctx):
            ctx.set(bench.port.timeout, timeout)
        bench.process("timeout", configure)
        outcomes = bench.write(0, [(BASE, 4)])
        bench.run(200)
        assert outcomes == [FAULT_TIMEOUT * stops]

    def test_every_beat_is_progress(self):
        """A burst that takes longer than `timeout` does not stop the port."""
        bench = Bench(replace(TINY, burst_beats=64), 1, Behaviour(latency=5))

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        outcomes = bench.write(0, [(BASE, 64)])
        bench.run(300)
        assert bench.memory.statistics.bursts == 1
        assert outcomes == [0] and (bench.array == bench.expected).all()

    def test_a_client_that_pauses_does_not_stop_the_port(self):
        bench = Bench(TINY, 1, Behaviour(latency=5))

        async def configure(ctx):
            ctx.set(bench.port.timeout, 30)
        bench.process("timeout", configure)
        outcomes = bench.write(0, [(BASE, 12)], gaps=(70,))
        bench.run(2000)
        assert outcomes == [0] and (bench.array == bench.expected).all()

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "all accepted"])
    @pytest.mark.parametrize("late", [130, 250, 350])
    def test_beats_after_the_stop_have_no_strobes(self, accept, late):
        """The memory answers again while the port is stopped (130), or after the restart (350)."""
        bench = Bench(TINY, 1, Behaviour(latency=5, outstanding=3, stall_data=0.3, seed=late))
        bench.memory.silence(25, late, accept)
        port, client = bench.port, bench.port.clients[0]
        before = bench.array.copy()
        lost = bench.words(BASE, 60, "full")
        bench.expected[:] = before

        async def stop_and_restart(ctx):
            ctx.set(port.timeout, 40)
            assert await write(ctx, client, BASE, lost) == FAULT_TIMEOUT
            assert ctx.get(port.stopped)
            assert await write(ctx, client, BASE, lost[-3:]) == FAULT_TIMEOUT
            while bench.cycles < 250:
                await ctx.tick()
            await pulse(ctx, port.restart)
            ctx.set(port.timeout, 200)
            if not ctx.get(port.idle):
                await ctx.tick().until(port.idle)
            assert bench.cycles >= late
            seen = bench.array.copy()
            assert await write(ctx, client, BASE + 0x4000,
                                 bench.words(BASE + 0x4000, 30)) == 0
            assert (bench.array[:0x4000] == seen[:0x4000]).all()
        bench.process("stop and restart", stop_and_restart)
        bench.run(1500)
        assert (bench.array[0x4000:] == bench.expected[0x4000:]).all()
        written = (bench.array[:960] != before[:960]).reshape(60, 16).any(axis=1)
        assert 0 < written.sum() < 60, "words were written before the stop, and none after it"
        assert not written[written.sum():].any()
        assert (bench.empty_beats > 0) == (not accept)
        bench.model.check()


class TestRestart:
    @pytest.mark.slow
    @pytest.mark.parametrize("when", [*range(6, 30), 45, 60])
    def test_in_flight(self, when):
        """After a restart in any cycle only the next sequences are written, completely."""
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
            if number == 0:
                ctx.set(port.restart, 1)
            await ctx.tick()  # words accepted in this cycle are dropped
            ctx.set(mine.words.valid, 0)
            ctx.set(mine.request.valid, 0)
            ctx.set(port.restart, 0)
            for start in (0x2000 + 0x4000 * number, 0x3000 + 0x4000 * number):
                words = bench.words(BASE + start, 9 + number)
                assert await write(ctx, mine, BASE + start, words) == 0
        for number in range(2):
            bench.process(f"client {number}", lambda ctx, number=number: client(ctx, number))
        bench.run(2000)
        for number in range(2):
            part = slice(0x2000 + 0x4000 * number, 0x4000 + 0x4000 * number)
            assert (bench.array[part] == bench.expected[part]).all(), f"restart in cycle {when}"
        bench.model.check()

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "all accepted"])
    def test_with_a_memory_that_stopped(self, accept):
        """Without a limit the port accepts nothing, and is not idle, until the memory answers."""
        bench = Bench(TINY, 1, Behaviour(latency=5))
        bench.memory.silence(0, 500, accept)
        port, client = bench.port, bench.port.clients[0]

        async def drive(ctx):
            ctx.set(port.timeout, 30)
            assert await write(ctx, client, BASE, bench.words(BASE, 6)) == FAULT_TIMEOUT
            ctx.set(port.timeout, 0)
            await pulse(ctx, port.restart)
            ctx.set(client.request.valid, 1)
            while bench.cycles < 500:
                _, _, accepted, is_idle, stopped = await ctx.tick().sample(
                    client.request.ready, port.idle, port.stopped)
                assert not accepted and not is_idle and not stopped
            await ctx.tick().until(port.idle)
            assert await write(ctx, client, BASE + 256, bench.words(BASE + 256, 6)) == 0
        bench.process("drive", drive)
        bench.run(1000)
        assert (bench.array[256:] == bench.expected[256:]).all()
        bench.model.check()

    @pytest.mark.parametrize("accept", [False, True], ids=["nothing accepted", "all accepted"])
    def test_with_a_memory_that_stays_silent(self, accept):
        """The port stops again and writes nothing; a later restart recovers."""
        bench = Bench(TINY, 2, Behaviour(latency=5))
        bench.memory.silence(0, 600, accept)
        port, client = bench.port, bench.port.clients[0]
        before = bench.array.copy()

        async def drive(ctx):
            ctx.set(port.timeout, 30)
            assert await write(ctx, client, BASE, bench.words(BASE, 6)) == FAULT_TIMEOUT
            for _ in range(2):
                ctx.set(port.restart, 1)
                assert ctx.get(port.stopped) and not ctx.get(port.idle)
                await pulse(ctx, port.restart)
                started = bench.cycles
                await ctx.tick().until(port.idle)
                assert 30 <= bench.cycles - started < 40 and ctx.get(port.stopped)
                for number in range(2):
                    assert await write(ctx, port.clients[number], BASE + 512,
                                       bench.words(BASE + 512, 6)) == FAULT_TIMEOUT
            await ctx.tick().repeat(650 - bench.cycles)
            await pulse(ctx, port.restart)
            if not ctx.get(port.idle):
                await ctx.tick().until(port.idle)
            assert not ctx.get(port.stopped)
            assert await write(ctx, client, BASE + 256, bench.words(BASE + 256, 6)) == 0
        bench.process("drive", drive)
        bench.run(1200)
        assert (bench.array[256:352] == bench.expected[256:352]).all()
        assert (bench.array[352:] == before[352:]).all()
        bench.model.check()

    def test_with_closed_bursts_and_nothing_in_flight(self):
        """Complete bursts that wait for the bus are dropped, however short the restart is."""
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
            assert await write(ctx, client, BASE + 0x1000, words) == 0
        bench.process("drive", drive)
        bench.run(200)
        assert (bench.array[:0x1000] == before[:0x1000]).all()
        assert (bench.array == bench.expected).all()
        bench.model.check()
