"""The gateware replies to datagrams as the golden model does, and ignores hostile ones."""

import numpy as np
import pytest
from amaranth.sim import Simulator
from hotrow_boards.card import IdleTimer
from hotrow_boards.ethernet.datagram_fifo import DatagramFifo
from hotrow_boards.ethernet.layouts import LARGEST_DATAGRAM
from hotrow_rtl.contract.link_frames import COUNTERS_BYTES, LARGEST_PAYLOAD, Operation

from tests.boards.linkbench import BASE, BYTES, request
from tests.boards.udpbench import Datagram, UdpBench

BIND, READ, WRITE = Operation.BIND, Operation.READ_MEMORY, Operation.WRITE_MEMORY
COUNT = Operation.READ_COUNTERS
HOST = (0xC0A8_0101, 40_000)
OTHERS = [(0xC0A8_0101, 40_001), (0xC0A8_0102, 40_000), (0xC0A8_0002, 1)]


def counters(bench):
    """Counters in the last reply, by name."""
    values = np.frombuffer(bench.answers[-1][0][16:-4], "<u2").tolist()
    return dict(zip(bench.model.counters, values, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("seed, sizes", [
    (1, (1, 2, 3, 4, 9)),
    *(pytest.param(seed, (*range(1, 10), LARGEST_PAYLOAD - 1, LARGEST_PAYLOAD),
                   marks=pytest.mark.long) for seed in (0, 1))])
def test_frames_of_every_length(seed, sizes):
    """Payloads of all lengths modulo a word, up to the largest."""
    rng, frames = np.random.default_rng(seed), [request(BIND, 0)]
    for size in sizes:
        octets = rng.bytes(size)
        frames += [request(WRITE, len(frames), BASE + 3, octets),
                   request(READ, len(frames) + 1, BASE + 3, length=size)]
    bench = UdpBench(seed)
    bench.play([Datagram(frame) for frame in frames], gaps=(0, 2, 0, 1) if seed else (0,))
    assert [peer for _, peer in bench.answers] == [HOST] * len(frames)


@pytest.mark.slow
def test_a_peer_that_is_not_bound_is_not_answered():
    evil = [Datagram(request(operation, 2, BASE, **given), peer) for peer in OTHERS
            for operation, given in ((WRITE, {"payload": b"evil"}), (READ, {"length": 4}),
                                     (BIND, {}), (COUNT, {"length": COUNTERS_BYTES}))]
    mine = [request(BIND, 0), request(WRITE, 1, BASE, b"mine"), request(READ, 2, BASE, length=4),
            request(COUNT, 3, length=COUNTERS_BYTES)]
    bench = UdpBench(replaceable=False)
    bench.play([*map(Datagram, mine[:2]), *evil, *map(Datagram, mine[2:])])
    assert bytes(bench.target.memory[:4]) == b"mine"
    found = counters(bench)
    assert found == bench.model.counters and found.pop("foreign") == len(evil)
    assert not any(found.values())


@pytest.mark.slow
def test_another_peer_binds_where_it_may_and_is_then_the_only_one():
    mine, hers = OTHERS[:2]
    bench = UdpBench(replaceable=True)
    bench.play([
        Datagram(request(BIND, 0), mine), Datagram(request(WRITE, 1, BASE, b"mine"), mine),
        # The same session from elsewhere is another one.
        Datagram(request(WRITE, 2, BASE, b"evil"), hers), Datagram(request(BIND, 7), hers),
        Datagram(request(WRITE, 8, BASE, b"hers"), hers),
        Datagram(request(WRITE, 2, BASE, b"evil"), mine), Datagram(request(BIND, 7), hers),
        Datagram(request(COUNT, 9, length=COUNTERS_BYTES), hers)])
    assert bytes(bench.target.memory[:4]) == b"hers"
    assert counters(bench)["foreign"] == 2 and counters(bench)["replayed"] == 1
    assert [peer for _, peer in bench.answers] == [mine, mine, hers, hers, hers, hers]


@pytest.mark.slow
def test_datagrams_that_are_no_frames_change_nothing_and_are_counted():
    good = request(WRITE, 1, BASE, b"efgh")
    hostile = [
        Datagram(b""), Datagram(b"x"), Datagram(good[:19]), Datagram(good + b"\0"),
        Datagram(bytes(LARGEST_DATAGRAM + 1)), Datagram(bytes(1472)),
        *(Datagram(good, length=length) for length in (0, 1, 20, 23, 25, 28, 1012, 65_535)),
        Datagram(good, error=True), Datagram(request(WRITE, 1, BASE, b"efgh", length=5)),
        Datagram(bytes([*good[:-1], good[-1] ^ 1])), Datagram(good[:16] + bytes(1) + good[17:])]
    replayed = [Datagram(good)] * 3
    bench = UdpBench()
    bench.play([Datagram(request(BIND, 0)), *hostile, Datagram(good), *replayed, *hostile[-4:],
                Datagram(request(COUNT, 2, length=COUNTERS_BYTES))])
    found = counters(bench)
    assert found == bench.model.counters
    assert found["wrong_length"] + found["bad_crc"] == len(hostile) + 4 and found["replayed"] == 3
    assert bytes(bench.target.memory[:4]) == b"efgh"


@pytest.mark.slow
@pytest.mark.parametrize("seed, turns", [(0, 4), pytest.param(1, 8, marks=pytest.mark.long)])
def test_random_datagrams(seed, turns):
    """Valid, repeated, cut and foreign datagrams of two peers, either of which may bind."""
    rng = np.random.default_rng(seed)
    frames, datagrams = {peer: [request(BIND, 0)] for peer in OTHERS[:2]}, []
    for turn in range(turns):
        peer = OTHERS[turn % 2]
        mine = frames[peer]
        datagrams.append(Datagram(mine[0], peer))
        del mine[1:]
        for kind in rng.integers(0, 10, 8):
            if kind < 6:
                size, at = int(rng.integers(1, 40)), BASE + int(rng.integers(0, BYTES - 40))
                mine.append([
                    request(READ, len(mine), at, length=size),
                    request(WRITE, len(mine), at, rng.bytes(size))][kind % 2])
                datagrams.append(Datagram(mine[-1], peer))
            elif kind < 8:
                other = OTHERS[rng.integers(0, 3)]
                datagrams.append(Datagram(mine[rng.integers(0, len(mine))], other))
            else:
                datagrams.append(Datagram(mine[-1], peer, length=int(rng.integers(0, 80))))
    bench = UdpBench(seed + 1)
    bench.play(datagrams, gaps=(0, 0, 3))
    assert len(bench.answers) > 4 * turns, f"seed {seed}"


@pytest.mark.long
def test_a_window_of_the_largest_datagrams_at_the_rate_of_the_line():
    """A word every 1.5 cycles, the rate of gigabit Ethernet at 50 MHz: every frame gets a reply."""
    octets = np.random.default_rng(4).bytes(LARGEST_PAYLOAD)
    frames = [request(WRITE, 1 + number, BASE + 1000 * number, octets) for number in range(4)]
    bench = UdpBench()
    expected = [bench.expect(Datagram(frame)) for frame in [request(BIND, 0), *frames]]

    async def drive(ctx):
        await bench._send(ctx, Datagram(request(BIND, 0)))
        while not bench.answers:
            await ctx.tick()
        for frame in frames:
            await bench._send(ctx, Datagram(frame), gaps=(0, 1))
        while len(bench.answers) < len(expected):
            await ctx.tick()
    bench.process("a window", drive)
    bench.run(40_000)
    assert bench.answers == expected
    assert (bench.target.memory == bench.card.memory).all()


@pytest.mark.slow
def test_a_flood_overruns_and_is_counted():
    """A word a cycle until the buffer overflows: every datagram is checked or counted."""
    bench, count = UdpBench(window=2), 5
    flood = Datagram(bytes(LARGEST_DATAGRAM), OTHERS[0])
    seen = {}

    async def drive(ctx):
        for _ in range(count):
            await bench._send(ctx, flood)
        await ctx.tick().repeat(3 * LARGEST_DATAGRAM)
        for number, frame in enumerate((request(BIND, 0),
                                        request(COUNT, 1, length=COUNTERS_BYTES))):
            await bench._send(ctx, Datagram(frame))
            while len(bench.answers) <= number:
                await ctx.tick()
        seen.update(counters(bench))
    bench.process("a flood", drive)
    bench.run(200_000)
    assert seen["overrun"] and seen["overrun"] + seen["bad_crc"] == count, seen


def test_idle_timer():
    unit, waves = IdleTimer(5), []

    async def run(ctx):
        for cycle in range(20):
            ctx.set(unit.restart, cycle in (3, 6))
            waves.append(ctx.get(unit.expired))
            await ctx.tick()
    simulator = Simulator(unit)
    simulator.add_clock(1e-8)
    simulator.add_testbench(run)
    simulator.run()
    assert waves == [1] * 4 + [0] * 8 + [1] * 8


@pytest.mark.filterwarnings("ignore::amaranth.UnusedElaboratable")
@pytest.mark.parametrize("unit, parameter, message", [
    (DatagramFifo, 255, "depth must be a power of two above 255, not 255"),
    (IdleTimer, 0, "cycles must be at least 1, not 0"),
])
def test_parameters_that_cannot_be(unit, parameter, message):
    with pytest.raises(ValueError, match=message):
        unit(parameter)
