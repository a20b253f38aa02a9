"""StripedWriter against the blocks that each list covers."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from amaranth import Module, ResetInserter
from amaranth.lib import wiring
from hotrow_rtl.config import preset
from hotrow_rtl.lists.striped_writer import Element, StripedWriter

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
LONG = dataclasses.replace(TINY, name="bursts-16", burst_beats=16)
SHORT = dataclasses.replace(TINY, name="bursts-2", burst_beats=2)
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024, burst_beats=8)
CONFIGS = pytest.mark.parametrize("config", [TINY, LONG, SHORT, WIDE], ids=lambda c: c.name)
FAR = 0xA_0000_0000


class Lists:
    """Lists for a striped writer, and the expected requests and words of each side.

    A list is (address, bytes, empty): with `empty` it ends in two words without strobes, as after
    a packer whose last elements are absent. With `bypass` all words belong to side 0.
    """

    def __init__(self, config, lists, seed=0, bypass=False):
        self.config, rng = config, np.random.default_rng(seed)
        self.starts, self.words = [], []
        self.requests, self.sides = ([], []), ([], [])
        bus = config.bus_bytes
        for address, size, empty in lists:
            content = rng.bytes(size)
            self.starts.append({"address": address})
            counts = [min(2 * bus, size - at) for at in range(0, size, 2 * bus)]
            if not counts or empty:
                counts.append(0)
            for number, count in enumerate(counts):
                octets = content[2 * bus * number:][:count]
                self.words.append({"data": int.from_bytes(octets, "little"),
                                   "strobe": (1 << count) - 1,
                                   "last": int(number == len(counts) - 1)})
            block = config.burst_beats * bus
            self.requests[0].append(address)
            if not bypass:
                self.requests[1].append((address // block + 1) * block)
            by_side, final = ([], []), 2 * bus * (len(counts) - 1)
            closed = [False, bypass]  # sides with one of the final two words
            for at in range(0, size, bus):
                side = 0 if bypass else ((address + at) // block - address // block) % 2
                octets = content[at:at + bus]
                by_side[side].append((int.from_bytes(octets, "little"), (1 << len(octets)) - 1, 0))
                closed[side] |= at >= final
            for side, words in enumerate(by_side):
                if not closed[side]:
                    words.append((0, 0, 0))
                if words:
                    words[-1] = (*words[-1][:2], 1)
                self.sides[side].extend(words)


def present(word):
    """The bytes of a word with strobes, its strobes and `last`."""
    return word.data & (1 << 8 * word.strobe.bit_length()) - 1, word.strobe, word.last


def write(config, lists, gaps=STEADY, pauses=STEADY, seed=0, bypass=False):
    """Check all words of both sides; return the number of cycles."""
    given, dut = Lists(config, lists, seed, bypass), built(StripedWriter, config)
    bench = StreamBench(dut)
    if bypass:
        bench.process("bypass", partial(set_bypass, dut))
    bench.source(dut.start, given.starts, gaps)
    bench.source(dut.words, given.words, gaps)
    taken = [sink(bench, dut, side, given, pauses) for side in range(2)]
    cycles = bench.run(200 + 40 * len(lists) + 16 * len(given.words))
    check(taken, given)
    return cycles


async def set_bypass(dut, ctx):
    ctx.set(dut.bypass_striping, 1)


def sink(bench, dut, side, given, pauses=STEADY):
    """Accept the requests and the words of a side."""
    return (bench.sink(dut.requests[side], len(given.requests[side]), pauses, f"requests of {side}",
                       read=lambda request: request.address),
            bench.sink(dut.sides[side], len(given.sides[side]), pauses, f"words of {side}",
                       read=present))


def check(taken, given):
    for side, (requests, words) in enumerate(taken):
        assert requests == given.requests[side], f"requests of side {side}"
        for number, (got, want) in enumerate(zip(words, given.sides[side], strict=True)):
            assert got == want, f"side {side}, word {number}"


def offsets(config):
    """Every position of a list's start in a block."""
    return range(0, config.burst_beats * config.bus_bytes, max(64, config.bus_bytes))


@CONFIGS
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED),
                                          (RAGGED, RAGGED)],
                         ids=["steady", "gaps", "back-pressure", "both"])
def test_every_start_and_end_in_a_block(config, gaps, pauses):
    """Lists that end at, before and after every boundary within four blocks."""
    bus, block = config.bus_bytes, config.burst_beats * config.bus_bytes
    lists = []
    for offset in offsets(config):
        for boundary in range(-offset, 4 * block - offset, block):
            for nearby in (-bus - 8, -bus, -8, 0, 8, bus, bus + 8):
                size = boundary + nearby
                if size >= 0:
                    lists.append((FAR + 3 * block + offset, size,
                                  size % (2 * bus) == 0 and len(lists) % 3 == 0))
    write(config, lists if gaps is pauses is STEADY else lists[::5], gaps, pauses)


@pytest.mark.slow
@CONFIGS
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_random_lists(config, seed):
    rng = np.random.default_rng(seed)
    gaps, pauses = ([int(gap) for gap in rng.choice([0, 0, 0, 1, 6], 97)] for _ in range(2))
    bus = config.bus_bytes
    lists = []
    for _ in range(25):
        size = int(rng.choice([rng.integers(0, 4 * bus), rng.integers(0, 60 * bus)]))
        lists.append((FAR + 64 * int(rng.integers(0, 64)), size // 8 * 8,
                      size // 8 * 8 % (2 * bus) == 0 and rng.random() < 0.5))
    write(config, lists, gaps, pauses, seed=seed)


@pytest.mark.parametrize("config", [TINY, WIDE], ids=lambda config: config.name)
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["steady", "back-pressure"])
def test_bypassed_lists_use_one_side(config, pauses):
    """A word a cycle, in all blocks."""
    config, bus = dataclasses.replace(config, planner=True), config.bus_bytes
    lists = [(FAR + 64 * number, size, size % (2 * bus) == 0)
             for number, size in enumerate((0, 8, bus, 2 * bus, 40, 60 * bus, 7 * bus, 31 * bus))]
    cycles = write(config, lists, pauses=pauses, bypass=True)
    assert pauses is RAGGED or cycles <= sum(
        -(-max(size, 1) // (2 * bus)) * 2 + 2 for _, size, _ in lists) + 10


@CONFIGS
def test_two_words_a_cycle(config):
    """From every start, for many times the capacity of the queues."""
    for offset in offsets(config):
        count = 12 * config.burst_beats
        cycles = write(config, [(FAR + offset, 2 * config.bus_bytes * count, False)])
        started, drained = 1 + StripedWriter.latency, config.burst_beats // 2 + 2
        assert count <= cycles <= started + count + drained, f"offset {offset}"


def test_one_idle_cycle_between_lists():
    """Lists short enough that neither side's queue fills."""
    count = 60
    lists = [(FAR, 2 * TINY.bus_bytes * 4, False)] * count
    assert write(TINY, lists) <= (4 + 1) * count + StripedWriter.latency + TINY.burst_beats


def test_latency():
    dut = built(StripedWriter, TINY)
    bench = StreamBench(dut)
    seen = {}

    async def watch(ctx):
        ctx.set(dut.start.p, {"address": FAR})
        ctx.set(dut.start.valid, 1)
        ctx.set(dut.words.p, {"data": 1, "strobe": 1, "last": 1})
        ctx.set(dut.words.valid, 1)
        await ctx.tick().until(dut.words.ready)
        seen["in"] = bench.cycles
        ctx.set(dut.words.valid, 0)
        await ctx.tick().until(dut.sides[0].valid & dut.sides[1].valid)
        seen["out"] = bench.cycles
    bench.process("watch", watch)
    bench.run(20)
    assert seen["out"] - seen["in"] == StripedWriter.latency


@pytest.mark.parametrize("stopped", [0, 1])
@CONFIGS
def test_a_stalled_side_stalls_the_writer(config, stopped):
    """Once its queue is full the writer accepts no words; later it sends a word a cycle."""
    lists = [(FAR, 20 * config.burst_beats * config.bus_bytes, False)]
    given, dut = Lists(config, lists), built(StripedWriter, config)
    bench = StreamBench(dut)
    bench.source(dut.start, given.starts)
    bench.source(dut.words, given.words)
    taken = [sink(bench, dut, side, given, pauses=(100 * (side == stopped), *400 * STEADY))
             for side in range(2)]
    full = []

    async def watch(ctx):
        await ctx.tick().repeat(99)
        full.append(not ctx.get(dut.words.ready))
    bench.process("watch", watch)
    cycles = bench.run(1000)
    check(taken, given)
    assert full == [True]
    assert cycles <= 100 + 10 * config.burst_beats + 10


def test_a_start_waits_for_the_requests_before_it():
    """Words may be sent before their request, but no request changes before it is accepted."""
    given = Lists(TINY, [(FAR, 16, False), (FAR + 64, 200, False)])
    dut = built(StripedWriter, TINY)
    bench = StreamBench(dut)
    bench.source(dut.start, given.starts)
    bench.source(dut.words, given.words)
    taken = [(bench.sink(dut.requests[side], 2, (25 * side,), read=lambda port: port.address),
              bench.sink(dut.sides[side], len(given.sides[side]), read=present))
             for side in range(2)]
    assert bench.run(200) > 50
    check(taken, given)


class Restartable(wiring.Component):
    """A striped writer with the reset of the unit that contains it."""

    def __init__(self, config):
        self.stripe = StripedWriter(config)
        super().__init__({**self.stripe.signature.members, "restart": wiring.In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.stripe = ResetInserter(self.restart)(self.stripe)
        wiring.connect(m, wiring.flipped(self.start), self.stripe.start)
        wiring.connect(m, wiring.flipped(self.words), self.stripe.words)
        for mine, own in zip((*self.requests, *self.sides),
                             (*self.stripe.requests, *self.stripe.sides), strict=True):
            wiring.connect(m, own, wiring.flipped(mine))
        return m


async def send(ctx, port, first, then, restarted):
    """Send payloads until the restart, then other ones."""
    for payload in first:
        ctx.set(port.p, payload)
        ctx.set(port.valid, 1)
        ready = False
        while not ready and not restarted:
            _, _, ready = await ctx.tick().sample(port.ready)
    ctx.set(port.valid, 0)
    while not restarted:
        await ctx.tick()
    for payload in then:
        ctx.set(port.p, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
    ctx.set(port.valid, 0)


async def drain(ctx, port, received, count, read, restarted):
    """Accept payloads from the restart on."""
    while not restarted:
        await ctx.tick()
    ctx.set(port.ready, 1)
    while len(received) < count:
        payload, = await ctx.tick().sample(port.p).until(port.valid)
        received.append(read(payload))


@pytest.mark.parametrize("taking", [0, 1])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 8, 13, 30])
def test_restart(taking, after):
    """After a restart the next list is written from its first word."""
    dut = built(Restartable, TINY)
    dropped = Lists(TINY, [(FAR + 64, 16 * 41, False)])
    kept = Lists(TINY, [(FAR, 16 * 9, False), (FAR + 64, 8, False)])
    bench, outputs, restarted = StreamBench(dut), (*dut.requests, *dut.sides), []
    taken = [([], []), ([], [])]

    async def restart(ctx):
        for port in outputs:
            ctx.set(port.ready, taking)
        await ctx.tick().repeat(after)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        restarted.append(True)
        assert not any(ctx.get(port.valid) for port in outputs)

    bench.process("restart", restart)
    for port, first, then in ((dut.start, dropped.starts, kept.starts),
                              (dut.words, dropped.words, kept.words)):
        bench.process("send", partial(
            send, port=port, first=first, then=then, restarted=restarted))
    for side, (requests, words) in enumerate(taken):
        for port, received, count, read in (
                (dut.requests[side], requests, 2, lambda request: request.address),
                (dut.sides[side], words, len(kept.sides[side]), present)):
            bench.process("drain", partial(
                drain, port=port, received=received, count=count, read=read, restarted=restarted))
    bench.run(200)
    check(taken, kept)


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 4, 33, 70])
def test_elements_keep_their_low_bits(entries):
    """The bits above are 0, where an element is and where none is."""
    element = Element(TINY.entry_width, 8)
    dut, bus = built(StripedWriter, TINY, element), TINY.bus_bytes
    rows = [number * 0x9E37_79B9_7F4A % 2**element.width for number in range(1, entries + 1)]
    pairs = [rows[at:at + bus // 4] for at in range(0, entries, bus // 4)] or [[]]
    words = [{"data": sum(row << 64 * place for place, row in enumerate(pair)),
              "strobe": (1 << 8 * len(pair)) - 1, "last": int(number == len(pairs) - 1)}
             for number, pair in enumerate(pairs)]
    bench = StreamBench(dut)
    bench.source(dut.start, [{"address": 0}])
    bench.source(dut.words, words)
    counts, closed = [0, 0], [False, False]  # a side without one of the last pair ends in no bytes
    for at in range(0, 8 * entries, bus):
        side = at // (bus * TINY.burst_beats) % 2
        counts[side] += 1
        closed[side] |= at >= 2 * bus * (len(pairs) - 1)
    sides = []
    for side, port in enumerate(dut.sides):
        bench.sink(dut.requests[side], 1)
        sides.append(bench.sink(port, counts[side] + (not closed[side]),
                                read=lambda word: (word.data, word.strobe, word.last)))
    bench.run(400)
    got = {}
    for side, taken in enumerate(sides):
        for number, (data, strobe, _) in enumerate(taken):
            block, place = divmod(number, TINY.burst_beats)
            got[(2 * block + side) * TINY.burst_beats + place] = data, strobe
    found = [data >> 64 * half & (2**64 - 1) for _, (data, strobe) in sorted(got.items())
             for half in range(2) if strobe >> 8 * half & 0xFF == 0xFF]
    assert found == rows
