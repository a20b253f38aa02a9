"""BagLists: every bag goes to its unit, with its summands in order, none lost and none repeated."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.mover.bags.bag_lists import BagLists

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench, pulse
from tests.support.simulation import built

TINY = replace(preset("tiny"), tables=16, bus_bytes=64, counter_sets=256, directory_sets=256,
               miss_entries=1024)
LONG = pytest.mark.long
FORMS = ("pool", "weighted", "listed pool", "update", "listed update")


class Command:
    """The lists of a command: row 7 * i of table i % 16, target 1000 + i and weight 5 * i.

    `wrong`: a length is too long (True), or summands are left (False).
    """

    def __init__(self, rng, form, bags, wrong):
        self.updates, self.listed = "update" in form, "listed" in form
        self.weighted = form == "weighted"
        lengths = rng.choice([1, 1, 2, 3, 20] + ([] if self.updates else [0]), bags)
        lengths[rng.integers(bags)] += not lengths.any()
        self.count, self.sound = int(lengths.sum()), bags  # summands; bags before the error
        self.error = None
        if wrong:
            self.sound = int(rng.integers(bags))
            lengths[self.sound] += 100
            self.error = Status.LOOKUPS, int(lengths[:self.sound + 1].sum())
        elif wrong is False:
            self.error = Status.LOOKUPS, self.count
            self.count += 3
        self.lengths = lengths.tolist()
        of_bags, of_summands = range(bags), range(self.count)
        self.has_summands = self.listed or not self.updates
        self.rows = [{"row": 7 * at, "table": at % 16}
                     for at in (of_bags if self.updates else of_summands)]
        self.targets = [1000 + at for at in (of_summands if self.updates else of_bags)
                        if self.listed]
        self.weights = [5 * at for at in of_summands if self.weighted]

    @property
    def bags(self):
        return self.sound + (self.error is not None)

    def wanted(self, units):
        """By unit, its bags: length, position, error and entry; and its summands."""
        bags, summands = [[] for _ in range(units)], [[] for _ in range(units)]
        at = 0
        for bag, length in enumerate(self.lengths[:self.sound]):
            entry = 7 * bag if self.updates else 1000 + bag if self.listed else None
            bags[bag % units].append((length, at, 0, entry))
            if self.has_summands:
                summands[bag % units] += [
                    (1000 + place if self.updates else 7 * place,
                     5 * place if self.weighted else None) for place in range(at, at + length)]
            at += length
        if self.error:
            bags[self.sound % units].append((None, self.error[1], self.error[0], None))
        return bags, summands


class Bench:
    """Sends the lists of commands, and takes bags and summands as a unit does."""

    def __init__(self, config, commands, gaps):
        self.commands, self.gaps = commands, gaps
        self.dut = dut = built(BagLists, config)
        self.bench, self.number = StreamBench(dut), -1  # of the command
        self.units, self.lanes = config.bag_units, config.row_ports
        self.got = [tuple([[] for _ in range(self.units)] for _ in range(2)) for _ in commands]
        for name, streams in (("rows", dut.rows), ("targets", dut.targets),
                              ("weights", dut.weights), ("lengths", dut.lengths)):
            for lane, stream in enumerate(streams):
                self.bench.process(f"{name} {lane}", self._source(
                    name, stream, slice(lane, None, len(streams))))
        for unit in range(self.units):
            self.bench.background(self._unit(unit))
        self.bench.process("commands", self._control)

    def _source(self, name, stream, places):
        async def drive(ctx):
            for number, command in enumerate(self.commands):
                while self.number < number:
                    await ctx.tick()
                elements = list(enumerate(getattr(command, name)))
                for at, value in elements[places]:
                    for _ in range(self.gaps[at % len(self.gaps)]):
                        await ctx.tick()
                    ctx.set(stream.p, {"value": value, "last": at == len(elements) - 1})
                    ctx.set(stream.valid, 1)
                    await ctx.tick().until(stream.ready)
                    ctx.set(stream.valid, 0)
        return drive

    def _unit(self, unit):
        async def drive(ctx):
            while True:
                bag = await self._take(ctx, self.dut.bags[unit])
                command, (bags, summands) = self.commands[self.number], self.got[self.number]
                failed = bag.list_error != 0
                bags[unit].append((
                    None if failed else bag.length, bag.position, bag.list_error,
                    bag.entry.row if not failed and (command.updates or command.listed) else None))
                for at in range(bag.position, bag.position + bag.length):
                    if not failed and command.has_summands:
                        got = await self._take(ctx, self.dut.summands[unit][at % self.lanes])
                        summands[unit].append(
                            (got.entry.row, got.weight if command.weighted else None))
                for _ in range(self.gaps[bag.position % len(self.gaps)]):
                    await ctx.tick()
        return drive

    @staticmethod
    async def _take(ctx, stream):
        ctx.set(stream.ready, 1)
        payload, = await ctx.tick().sample(stream.p).until(stream.valid)
        ctx.set(stream.ready, 0)
        return payload

    async def _control(self, ctx):
        dut = self.dut
        for number, command in enumerate(self.commands):
            ctx.set(dut.setting, {"updates": command.updates, "listed": command.listed,
                                  "weighted": command.weighted, "summands": command.count})
            self.number = number
            await pulse(ctx, dut.start)
            await ctx.tick().until(dut.begin)
            assert ctx.get(dut.common_row.row) == command.rows[0]["row"]
            await ctx.tick().until(dut.done)
            assert ctx.get(dut.bag_count) == command.bags
            wanted = command.wanted(self.units)
            while sum(map(len, self.got[number][1])) < sum(map(len, wanted[1])) or \
                    sum(map(len, self.got[number][0])) < command.bags:
                await ctx.tick()


@pytest.mark.parametrize("units, lanes", [
    (2, 2), *(pytest.param(*each, marks=LONG) for each in ((2, 4), (4, 4), (8, 8)))])
@pytest.mark.parametrize("gaps", [
    pytest.param(STEADY, id="steady", marks=LONG), pytest.param(RAGGED, id="ragged")])
def test_bags_go_to_their_units(units, lanes, gaps):
    rng = np.random.default_rng([units, lanes])
    commands = [Command(rng, form, bags, wrong) for form in FORMS
                for bags, wrong in ((1, None), (17, None), (9, True), (6, False))]
    bench = Bench(replace(TINY, row_ports=lanes, bag_units=units), commands, gaps)
    bench.bench.run(40_000)
    for number, (command, got) in enumerate(zip(commands, bench.got, strict=True)):
        assert got == command.wanted(units), f"command {number}"


def test_lists_are_split_at_the_rate_of_the_lanes():
    """Four lanes for four units, of which each takes a bag or a summand in nine cycles of ten."""
    command = Command(np.random.default_rng(1), "pool", 1, None)
    command.lengths = [1] * 120 + [20] * 12
    command.sound, command.count = len(command.lengths), sum(command.lengths)
    command.rows = [{"row": 7 * at, "table": at % 16} for at in range(command.count)]
    bench = Bench(replace(TINY, row_ports=4, bag_units=4), [command], STEADY)
    cycles = bench.bench.run(1000)
    assert (command.count + command.sound) / 4 >= 0.9 * cycles
