"""ResultAddresses: every writer gets its addresses in order, whatever the others do."""

import random

import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.records import BATCHES_IN_FLIGHT
from hotrow_rtl.lookup.dispatch.result_addresses import RESULT_WRITERS, ResultAddresses, list_count

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
NUMBERS = range(list_count(TINY))


def commands(count, seed):
    """(addresses, numbers of the lists opened) of each."""
    draw = random.Random(seed)
    return [([64 * draw.getrandbits(TINY.address_width - 6) for _ in NUMBERS],
             [number for number in NUMBERS if draw.random() < draw.choice([0, 0.5, 1])])
            for _ in range(count)]


class Bench:
    """Gives all commands, and ends each some time after its addresses were taken."""

    def __init__(self, given, gaps=STEADY, pauses=STEADY, seed=0):
        self.given, self.draw = given, random.Random(seed)
        self.dut = dut = built(ResultAddresses, TINY)
        self.bench = StreamBench(dut)
        self.wanted = [[addresses[number] for addresses, opened in given if number in opened]
                       for number in NUMBERS]
        self.bench.source(dut.start, [
            {"addresses": addresses, "opened": sum(1 << number for number in opened)}
            for addresses, opened in given], gaps)
        self.taken = [self.bench.sink(
            dut.requests[number], len(self.wanted[number]), pauses, RESULT_WRITERS[number],
            read=lambda request: request.address) for number in NUMBERS]
        self.begun, self.ended, self.most = 0, 0, 0
        self.bench.background(self.count)
        self.bench.process("ends", self.end)

    async def count(self, ctx):
        async for *_, begins in ctx.tick().sample(self.dut.start.valid & self.dut.start.ready):
            self.begun += begins
            self.most = max(self.most, self.begun - self.ended)

    def served(self, turn):
        """Whether a command has begun and its addresses were taken."""
        until = self.given[:turn + 1]
        return self.begun > turn and all(
            len(self.taken[number]) >= sum(number in opened for _, opened in until)
            for number in self.given[turn][1])

    async def end(self, ctx):
        dut = self.dut
        for turn, (addresses, opened) in enumerate(self.given):
            while not self.served(turn):
                await ctx.tick()
            await ctx.tick().repeat(1 + self.draw.randrange(12))
            for number in opened:
                ctx.set(dut.fault.p, number)
                ctx.set(dut.fault.valid, 1)
                await ctx.tick().until(dut.fault.ready)
                ctx.set(dut.fault.valid, 0)
                assert ctx.get(dut.address) == addresses[number], f"{turn=} {number=}"
            ctx.set(dut.ended, 1)
            await ctx.tick()
            ctx.set(dut.ended, 0)
            self.ended += 1


@pytest.mark.parametrize("gaps, pauses", [
    (STEADY, STEADY), (STEADY, RAGGED), (RAGGED, STEADY), (RAGGED, RAGGED)])
def test_addresses_and_faults(gaps, pauses):
    for seed in range(1 if STEADY in (gaps, pauses) else 3):
        bench = Bench(commands(40, seed), gaps, pauses, seed)
        bench.bench.run(4000)
        assert bench.taken == bench.wanted
        assert bench.most <= BATCHES_IN_FLIGHT


def test_as_many_commands_as_there_is_room_for():
    bench = Bench([([64, 128, 192, 256], [0, 3])] * 12)
    bench.bench.run(1000)
    assert bench.most == BATCHES_IN_FLIGHT


def test_a_writer_that_waits_keeps_none_from_theirs():
    """Nothing is taken of the first list: the others' addresses of every command come."""
    given = [([1024 * turn + 64 * number for number in NUMBERS], list(NUMBERS))
             for turn in range(BATCHES_IN_FLIGHT)]
    dut = built(ResultAddresses, TINY)
    bench = StreamBench(dut)
    bench.source(dut.start, [{"addresses": addresses, "opened": (1 << len(NUMBERS)) - 1}
                             for addresses, _ in given])
    taken = [bench.sink(dut.requests[number], BATCHES_IN_FLIGHT,
                        read=lambda request: request.address)
             for number in NUMBERS[1:]]
    bench.run(100)
    assert taken == [[addresses[number] for addresses, _ in given] for number in NUMBERS[1:]]
