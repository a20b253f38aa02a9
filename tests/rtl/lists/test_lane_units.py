"""The units without registers that every lane has of its own, beside plain Python."""

import dataclasses
import random

import pytest
from amaranth.sim import Simulator
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.lookup_payloads import amount_width
from hotrow_rtl.lookup.combiner.key_match import KeyMatches
from hotrow_rtl.lookup.combiner.multiplicity import Multiplicity
from hotrow_rtl.lookup.combiner.owner_encoder import OwnerEncoder
from hotrow_rtl.lookup.reader.bag_end_prefix_sum import EndLayer, bag_end, end_width, words_width
from hotrow_rtl.lookup.reader.bag_select import BagSelect
from hotrow_rtl.lookup.reader.batch_descriptor import bag_name, chunk_bags

TINY = preset("tiny")
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024, window_beats=5)
ANY_CONFIG = pytest.mark.parametrize("config", [TINY, WIDE], ids=lambda config: config.name)
TURNS = 60


def check(dut, turns):
    """Give the inputs of each of `turns`, (inputs, outputs) by name, and compare the outputs."""
    async def bench(ctx):
        for number, (given, wanted) in enumerate(turns):
            for name, value in given.items():
                ctx.set(getattr(dut, name), value)
            await ctx.delay(1e-6)
            got = {name: ctx.get(getattr(dut, name)) for name in wanted}
            assert got == wanted, f"{number=}"
    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


def packed(values, width):
    return sum(value << width * number for number, value in enumerate(values))


@ANY_CONFIG
def test_key_matches(config):
    """Keys that differ in one bit, whichever, are not equal."""
    draw, count, width = random.Random(1), config.lanes * 2, config.key_width

    def turn():
        key = draw.getrandbits(width)
        keys = [key ^ draw.choice([0, 1 << draw.randrange(width), draw.getrandbits(width)])
                for _ in range(count)]
        return ({"key": key, "keys": packed(keys, width)},
                {"equal": packed((other == key for other in keys), 1)})
    check(KeyMatches(width, count), (turn() for _ in range(TURNS)))


@ANY_CONFIG
def test_joined_place(config):
    """Every place, and none."""
    places = [(back, lane) for back in range(config.window_beats + 1)
              for lane in range(config.lanes)]
    turns = [({"joins": 1 << number}, {"any": 1, "back": back, "lane": lane})
             for number, (back, lane) in enumerate(places)]
    check(OwnerEncoder(config), [*turns, ({"joins": 0}, {"any": 0, "back": 0, "lane": 0})])


@ANY_CONFIG
def test_beat_amounts(config):
    draw, lanes, width = random.Random(2), config.lanes, amount_width(config)

    def turn():
        chance = draw.choice([0, 0.1, 0.5, 1])
        joined = [[int(draw.random() < chance) for _ in range(lanes)] for _ in range(lanes)]
        before = [draw.randrange(config.window_beats * lanes + 1) for _ in range(lanes)]
        after = [amount + sum(row[lane] for row in joined) for lane, amount in enumerate(before)]
        return ({"joined": packed((packed(row, 1) for row in joined), lanes),
                 "before": packed(before, width)}, {"after": packed(after, width)})
    check(Multiplicity(lanes, width), (turn() for _ in range(TURNS)))


@ANY_CONFIG
def test_first_bags(config):
    """Bags that end one after the other, some together, before, in and behind the word."""
    draw, lanes, bags = random.Random(3), config.lanes, chunk_bags(config)
    size = bag_name(config).size

    def turn():
        ends = sorted(draw.randrange(-1, draw.choice([2, lanes + 1, 3 * lanes]))
                      for _ in range(bags))
        names = [draw.getrandbits(size) for _ in range(bags)]
        chosen = [next((name for name, end in zip(names, ends) if end > lane), 0)
                  for lane in range(lanes)]
        return ({"ends": packed((packed((end > lane for lane in range(lanes)), 1)
                                 for end in ends), lanes),
                 "names": packed(names, size)}, {"chosen": packed(chosen, size)})
    check(BagSelect(config), (turn() for _ in range(TURNS)))


@ANY_CONFIG
def test_end_layer(config):
    """Ends in every lane of the first words, and anywhere."""
    draw, lanes = random.Random(5), config.lanes

    def turn(end):
        wide, is_open = draw.getrandbits(1), draw.getrandbits(1)
        words, lane = divmod(end, lanes // 2 if wide else lanes)
        laid = bag_end(config).const({
            "words": words, "later": int(words > 0), "next": int(words == 1),
            "past": packed((other < lane for other in range(lanes - 1)), 1), "open": is_open})
        return {"end": end, "wide": wide, "open": is_open}, {"laid": laid.as_bits()}
    ends = [*range(4 * lanes), *(draw.getrandbits(end_width(config)) for _ in range(TURNS))]
    assert words_width(config) < end_width(config)
    check(EndLayer(config), map(turn, ends))
