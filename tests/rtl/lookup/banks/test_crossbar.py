"""BankCrossbar and BankPipe with banks of any speed: order, answers, latency and rate."""

import dataclasses
from collections import Counter, deque

import numpy as np
import pytest
from amaranth.lib import data
from hotrow_rtl.config import RING_BEATS, preset
from hotrow_rtl.lookup.banks.bank_pipe import BankPipe, bank_crossbar
from hotrow_rtl.lookup.banks.bank_queue import BankQueue
from hotrow_rtl.lookup.banks.crossbar import BankCrossbar

from tests.rtl.lookup.banks.crossbar_cycles import crossbar_cycles
from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.restart_harness import Case, check_restart, payload
from tests.support.simulation import built

TINY = preset("tiny")
SMALL = dataclasses.replace(TINY, name="small", lane_banks=1)
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024)
ONE = preset("ecp5")  # one lane and one bank
NARROW = dataclasses.replace(ONE, name="narrow", lookup_lanes=0)
REQUEST, SHARED, ANSWER = 11, 5, data.StructLayout({"value": 24, "turn": 16})
FLUENT = (0.0, 1, 1)  # stalls never, answers in the cycle after the request


class Banks:
    """The banks of a crossbar: stalls with probability `stall`, answers after `least` to `most`
    cycles, forgets at a restart. An answer tells the bank, the request and its turn there."""

    def __init__(self, bench, ring, speed, seed):
        self.ring, self.rng = ring, np.random.default_rng(seed)
        self.stall, self.least, self.most = speed
        self.turns = [0] * len(ring.requests)
        self.flying = [deque() for _ in ring.requests]
        bench.background(self.serve)

    async def serve(self, ctx):
        numbers = range(len(self.turns))
        cycle, due, ready = 0, [0] * len(self.turns), [0] * len(self.turns)
        samples = [signal for bank in self.ring.requests for signal in (bank.valid, bank.p)]
        while True:
            for bank in numbers:
                flying, answer = self.flying[bank], self.ring.answers[bank]
                answers = bool(flying) and flying[0][0] <= cycle
                ctx.set(answer.valid, answers)
                # What is not an answer must not matter.
                ctx.set(answer.p, flying.popleft()[1] if answers else {"value": 0x555555})
                ready[bank] = int(self.stall == 0 or self.rng.random() >= self.stall)
                ctx.set(self.ring.requests[bank].ready, ready[bank])
            _, _, restart, *sampled = await ctx.tick().sample(self.ring.restart, *samples)
            if restart:
                self.turns = [0] * len(self.turns)
                for flying in self.flying:
                    flying.clear()
                continue
            for bank in numbers:
                if sampled[2 * bank] and ready[bank]:
                    wait = int(self.rng.integers(self.least, self.most + 1))
                    due[bank] = max(due[bank] + 1, cycle + wait)
                    self.flying[bank].append((due[bank], self.answer(
                        bank, sampled[2 * bank + 1], self.turns[bank])))
                    self.turns[bank] += 1
            cycle += 1

    @staticmethod
    def answer(bank, request, turn):
        return {"value": bank << 16 | request, "turn": turn & 0xFFFF}


def beats_of(config, count, valid, seed, banks=None):
    """Beats whose lanes ask with probability `valid`, one of the first `banks` banks."""
    rng = np.random.default_rng(seed)
    return [{"carried": number & 0xFFF, "lanes": [
        {"valid": int(rng.random() < valid), "bank": int(rng.integers(banks or config.banks)),
         "request": int(rng.integers(1 << 11))} for _ in range(config.lanes)],
        "shared": int(rng.integers(1 << 5))}
        for number in range(count)]


def expected(config, beats):
    """(carried, [(bank, value, turn) or None for each lane]) of every beat."""
    turns = [0] * config.banks
    for beat in beats:
        answers = []
        for lane in beat["lanes"]:
            answers.append(None)
            if lane["valid"]:
                asked = beat["shared"] << REQUEST | lane["request"]
                told = Banks.answer(lane["bank"], asked, turns[lane["bank"]])
                turns[lane["bank"]] += 1
                answers[-1] = lane["bank"], told["value"], told["turn"]
        yield beat["carried"], answers


def ring_of(config):
    return built(bank_crossbar, config, 12, REQUEST, SHARED, ANSWER)


def check(config, beats, taken):
    for got, (carried, answers) in zip(taken, expected(config, beats), strict=True):
        assert got.carried == carried
        for lane, want in enumerate(answers):
            if want is not None:
                told = got.answers[lane]
                assert (got.banks[lane], told.value, told.turn) == want, f"beat {carried}, {lane=}"


def run(config, beats, speed, seed, gaps=STEADY, pauses=STEADY, limit=None):
    ring = ring_of(config)
    bench = StreamBench(ring)
    Banks(bench, ring, speed, seed)
    bench.source(ring.beats, beats, gaps)
    taken = bench.sink(ring.answered, len(beats), pauses)
    cycles = bench.run(limit or 100 + 60 * len(beats))
    check(config, beats, taken)
    return cycles


SPEEDS = {"fluent": FLUENT, "uneven": (0.3, 1, 9), "slow": (0.6, 5, 30)}
STALLS = {"steady": (STEADY, STEADY), "gaps": (RAGGED, STEADY), "back-pressure": (STEADY, RAGGED),
          "both": (RAGGED, (0, 0, 40, 1))}


@pytest.mark.parametrize("config, speed, stalls", [
    *((config, speed, stalls) for config in (SMALL, ONE) for speed, stalls in (
        ("fluent", "steady"), ("fluent", "back-pressure"), ("uneven", "gaps"), ("uneven", "both"),
        ("slow", "steady"), ("slow", "both"))),
    *(pytest.param(TINY, speed, "both", marks=pytest.mark.long) for speed in SPEEDS),
    *(pytest.param(config, speed, stalls, marks=pytest.mark.long)
      for config in (TINY, WIDE) for speed in SPEEDS for stalls in STALLS
      if config is WIDE or stalls != "both")],
    ids=lambda value: getattr(value, "name", value))
def test_beats_return_in_order_with_their_answers(config, speed, stalls):
    count = 100 if config is TINY else 40
    run(config, beats_of(config, count, 0.6, seed=7), SPEEDS[speed], 11, *STALLS[stalls])


@pytest.mark.slow
@pytest.mark.parametrize("valid, banks", [(1, 1), (0.5, 1), (0, None), (0.05, 3), (1, 2)])
def test_extreme_traffic(valid, banks):
    beats = beats_of(TINY, 80, valid, seed=5, banks=banks)
    run(TINY, beats, FLUENT, 3)
    run(TINY, beats, (0.4, 1, 12), 3, pauses=RAGGED)
    run(TINY, beats[:30], (0.0, 50, 50), 3)  # more requests than a bank may have in flight


@pytest.mark.parametrize("config", [SMALL, ONE], ids=lambda config: config.name)
def test_full_ring_takes_nothing_and_loses_nothing(config):
    """One bank answers late: the ring fills up with beats, most of them complete."""
    ring, beats = ring_of(config), beats_of(config, 2 * RING_BEATS, 0.5, seed=1)
    beats[0]["lanes"][0]["valid"] = 1
    bench = StreamBench(ring)
    Banks(bench, ring, (0.0, 60, 60), 2)
    bench.source(ring.beats, beats)
    taken, levels = bench.sink(ring.answered, len(beats)), []

    async def watch(ctx):
        await ctx.tick().repeat(RING_BEATS + 2)
        for _ in range(20):
            levels.append(ctx.get(ring.beats.ready))
            await ctx.tick()
    bench.process("watch", watch)
    bench.run(1000)
    check(config, beats, taken)
    assert levels == [0] * 20


def test_latency():
    """A lone beat of one request, then one that asks for nothing."""
    for valid, latency in ((1, BankQueue.latency + 2 + BankCrossbar.latency),
                           (0, BankCrossbar.latency + 1)):
        lanes = [{"valid": valid, "bank": 3, "request": 9}] + [{}] * (SMALL.lanes - 1)
        ring = ring_of(SMALL)
        bench = StreamBench(ring)
        Banks(bench, ring, FLUENT, 0)
        bench.source(ring.beats, [{"carried": 0, "shared": 0, "lanes": lanes}])
        bench.sink(ring.answered, 1)
        assert bench.run(100) == latency + 1


def asks_of(beats):
    """Of every beat its requests by bank; none needs a set."""
    return [{bank: [()] * count for bank, count in Counter(
        lane["bank"] for lane in beat["lanes"] if lane["valid"]).items()} for beat in beats]


@pytest.mark.slow
@pytest.mark.parametrize("valid, banks", [(1, None), (0.4, None), (1, 1), (0.5, 2), (0, None)])
@pytest.mark.parametrize("wait", [1, 6, 13])
def test_cycles(valid, banks, wait):
    beats = beats_of(TINY, 90, valid, seed=wait, banks=banks)
    assert run(TINY, beats, (0.0, wait, wait), 0) == crossbar_cycles(asks_of(beats), wait)


@pytest.mark.parametrize("config, wait", [
    pytest.param(TINY, 1, id="tiny-1", marks=pytest.mark.long),
    pytest.param(TINY, 8, id="tiny-8", marks=pytest.mark.slow),
    pytest.param(WIDE, 8, id="bus-64-8", marks=pytest.mark.long)])
def test_rate(config, wait):
    """Lanes that ask any bank, and banks that serve a request a cycle."""
    beats = beats_of(config, 600, 1, seed=4)
    cycles = run(config, beats, (0.0, wait, wait), 0)
    assert cycles == crossbar_cycles(asks_of(beats), wait)
    assert len(beats) / cycles >= 0.96


def test_one_bank_for_each_lane():
    """A bank is asked once a beat on average, and what waits for it makes up for most of the beats
    that ask it twice."""
    beats = beats_of(NARROW, 200, 1, seed=4)
    cycles = run(NARROW, beats, (0.0, 8, 8), 0)
    assert cycles == crossbar_cycles(asks_of(beats), 8)
    assert 0.85 < len(beats) / cycles < 0.98


@pytest.mark.parametrize("valid", [1, 0.5, 0])
def test_one_lane_takes_a_beat_a_cycle(valid):
    """And returns each as soon as its answer can pass the queue."""
    beats = beats_of(ONE, 100, valid, seed=4)
    wait = 8
    first = next((number for number, beat in enumerate(beats) if beat["lanes"][0]["valid"]), None)
    waits = 0 if first is None else BankPipe.requested + wait
    assert run(ONE, beats, (0.0, wait, wait), 0) == len(beats) + waits + BankPipe.latency


def test_restart_of_a_pipe():
    check_restart(Case(lambda: BankPipe(ONE, 4, 4, 4, 4), inputs={"beats.payload": payload(
        BankPipe(ONE, 4, 4, 4, 4).beats.p.shape(), lanes__all__valid=1)},
        replies={"answers.0": "requests.0"}), busy=range(0, 24, 3))
