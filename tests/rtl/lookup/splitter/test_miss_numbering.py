"""MissNumbering with a ring of number banks behind it, fed with the golden table's answers."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.interfaces.lookup_payloads import (
    amount_width,
    bank_answer,
    crossbar_response,
    lane_results,
    miss_place,
    waiting_beat,
)
from hotrow_rtl.interfaces.records import row_entry
from hotrow_rtl.lookup.banks.bank_pipe import bank_crossbar
from hotrow_rtl.lookup.hashing.row_location import split_key
from hotrow_rtl.lookup.splitter.miss_number_bank import MissNumberBank, number_lane, number_shared
from hotrow_rtl.lookup.splitter.miss_numbering import MissNumbering, split_beat
from hotrow_sim.golden.lookup.combiner import owners
from hotrow_sim.golden.lookup.miss_table import MissTable

from tests.rtl.lookup.banks.crossbar_cycles import crossbar_cycles
from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), planner=False, lane_banks=1)
WIDE = dataclasses.replace(TINY, name="bus-64", lane_banks=2, bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024, window_beats=5)
# What a lane carries on as it came.
KEPT = "present", "status", "owner", "joins", "back", "lane", "sample", "amount"
ONE_LANE = dataclasses.replace(TINY, name="one-lane", lookup_lanes=1)
FEW_PLACES = dataclasses.replace(TINY, name="few-places", miss_entries=32, directory_choices=1)


class NumberedRing(wiring.Component):
    """MissNumbering, the ring and its banks."""

    def __init__(self, config):
        self.config = config
        super().__init__({
            "answered": In(stream.Signature(crossbar_response(
                config, waiting_beat(config), bank_answer(config)))),
            "listed": Out(stream.Signature(lane_results(config, row_entry))),
            "numbered": Out(stream.Signature(crossbar_response(
                config, split_beat(config), config.slot_word_width))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.numbers = numbers = MissNumbering(c)
        m.submodules.ring = ring = bank_crossbar(
            c, split_beat(c), number_lane(c), number_shared(c), c.slot_word_width)
        m.d.comb += [numbers.restart.eq(self.restart), ring.restart.eq(self.restart)]
        connect(m, outer=flipped(self.answered), numbers=numbers.answered)
        connect(m, numbers=numbers.listed, outer=flipped(self.listed))
        connect(m, numbers=numbers.beats, ring=ring.beats)
        connect(m, ring=ring.answered, outer=flipped(self.numbered))
        for number in range(c.banks):
            m.submodules[f"bank{number}"] = bank = MissNumberBank(c)
            m.d.comb += bank.restart.eq(self.restart)
            connect(m, ring=ring.requests[number], bank=bank.requests)
            connect(m, bank=bank.answers, ring=ring.answers[number])
        return m


class Batch:
    """Answered beats of one batch, and what follows from them.

    Parameters
    ----------
    rows : int
        Of which its lookups are.
    hits : float
        Share of the rows that have a slot.
    splits : int
        Otherwise the banks tell anything about slots and misses.
    served : float
        Share of the lookups that are not refused.

    Attributes
    ----------
    beats : list of dict
        Anything stands where nobody may look.
    numbered : list of (whole beat, lanes)
        As `read_beat` returns them.
    listed : list of (rows, last)
        As `read_list` returns them; none of a batch that does not split.
    asks : list of dict
        Requests of each beat by bank.
    """

    def __init__(self, config, beats, rows, seed, hits=0.3, splits=1, served=0.9):
        self.config, self.rng = config, np.random.default_rng(seed)
        rng, lanes = self.rng, config.lanes
        there = rng.random((beats, lanes)) < 0.95
        fine = there & (rng.random((beats, lanes)) < served)
        beat, lane = np.nonzero(fine)
        pool = rng.integers(0, 1 << config.key_width, rows, np.uint64)
        hit = rng.random(rows) < hits
        row = rng.integers(0, rows, len(beat))
        keys = pool[row]
        owner = owners(keys, beat, config.window_beats)
        owns = owner == np.arange(len(owner))
        missed = np.flatnonzero(owns & ~hit[row] & bool(splits))
        table = MissTable(config)
        index, listed, _ = table.number(keys[missed])
        found = dict(zip(missed.tolist(), zip(*(part.tolist() for part in (
            *table.find(keys[missed]), index, listed)), strict=True), strict=True))
        lookups = {(int(beat[n]), int(lane[n])): n for n in range(len(beat))}

        self.beats, self.numbered, self.listed, self.asks = [], [], [], []
        for number in range(beats):
            whole = {"counts": int(rng.integers(2)), "splits": splits,
                     "last": int(number == beats - 1)}
            came, banks, answers, want, asks = [], [], [], [], Counter()
            for at in range(lanes):
                n = lookups.get((number, at))
                each = self._anything()
                bank, answer = int(rng.integers(config.banks)), self._answer()
                each["present"] = int(there[number, at])
                told = None
                if n is None:
                    each["status"] = int(Status.SLVERR if there[number, at] else Status.OK)
                else:
                    each |= {"key": int(keys[n]), "owner": int(owns[n])}
                    each["joins"] = 1 - each["owner"]
                    if not owns[n]:
                        each["back"] = int(beat[n] - beat[owner[n]])
                        each["lane"] = int(lane[owner[n]])
                    elif splits:
                        bank = int(split_key(config, int(keys[n]))[0])
                        answer["found"]["placed"] = int(n not in found)
                        if n not in found:
                            del answer["missed"]
                        told = {"slot": None if n in found else
                                self._slot(bank, answer["found"]["slot"])}
                    if n in found:
                        kept, repeated, at_place, entry, lists = found[n]
                        answer["missed"] = {"kept": int(kept), "repeated": int(repeated),
                                            "place": at_place if kept else 0}
                        asks[bank] += kept
                        told |= {"listed": int(lists), "kept": kept, "number": entry}
                came.append(each)
                banks.append(bank)
                answers.append(answer)
                want.append(({name: each[name] for name in KEPT}, answer["counted"], told))
            self.beats.append({"carried": {"lanes": came} | whole, "banks": banks,
                               "answers": answers})
            self.numbered.append((whole, want))
            self.asks.append(dict(asks))
            if splits:
                rows_here = [(lane["key"] & 0xFFFF_FFFF, lane["key"] >> 32)
                             for lane, (*_, told) in zip(came, want, strict=True)
                             if told and told.get("listed")]
                self.listed.append((rows_here, whole["last"]))

    def _anything(self):
        """A lane that is nobody's, with whatever a lane may carry."""
        below = self.rng.integers
        return {"present": 0, "status": 0, "key": int(below(1 << self.config.key_width)),
                "sample": int(below(self.config.batch_samples)), "owner": 0,
                "amount": int(below(1 << amount_width(self.config))), "joins": 0,
                "back": int(below(self.config.window_beats + 1)),
                "lane": int(below(self.config.lanes))}

    def _answer(self):
        c, below = self.config, self.rng.integers
        return {"counted": int(below(2)),
                "found": {"hit": int(below(2)), "placed": int(below(2)), "slot": {
                    "way": int(below(c.directory_ways)), "choice": int(below(2)),
                    "set": int(below(c.directory_sets // c.banks))}},
                "missed": {"kept": int(below(2)), "repeated": int(below(2)),
                           "place": int(below(1 << miss_place(c)))}}

    def _slot(self, bank, slot):
        c = self.config
        number = (slot["set"] * c.banks + bank) * c.directory_ways + slot["way"]
        return number + (slot["choice"] * c.directory_sets * c.directory_ways
                         if c.directory_choices == 2 else 0)


def read_beat(beat):
    """Fields of the beat; of its lanes: what came, `counted`, what the owner is told."""
    carried, lanes = beat.carried, []
    for lane, answer in zip(carried.lanes, beat.answers, strict=True):
        lanes.append(({name: lane[name] for name in KEPT}, lane.counted,
                      lane.missed, lane.listed, lane.number, answer))
    return {name: carried[name] for name in ("counts", "splits", "last")}, lanes


def read_list(part):
    values = part.values
    return [(values[n].row, values[n].table) for n in range(len(values))
            if part.present >> n & 1], part.last


def check_beats(batches, taken):
    want = [beat for batch in batches for beat in batch.numbered]
    for turn, ((whole, lanes), (wanted, each)) in enumerate(zip(taken, want, strict=True)):
        assert whole == wanted, f"beat {turn}"
        for at, (got, (came, counted, told)) in enumerate(zip(lanes, each, strict=True)):
            kept, was_counted, missed, listed, number, stored = got
            where = f"beat {turn}, lane {at}"
            assert (kept, was_counted) == (came, counted), where
            told = told or {"slot": None}
            assert (missed, listed) == ("number" in told, told.get("listed", 0)), where
            if told["slot"] is not None:
                assert number == told["slot"], where
            if listed:
                assert number == told["number"], where
            if missed and told["kept"]:
                assert stored == told["number"], where


def check_lists(batches, taken):
    assert taken == [part for batch in batches for part in batch.listed]


def run(config, batches, gaps=STEADY, pauses=STEADY, list_pauses=STEADY):
    dut = built(NumberedRing, config)
    bench = StreamBench(dut)
    beats = [beat for batch in batches for beat in batch.beats]
    bench.source(dut.answered, beats, gaps)
    taken = bench.sink(dut.numbered, len(beats), pauses, "numbered", read_beat)
    lists = bench.sink(dut.listed, sum(len(batch.listed) for batch in batches), list_pauses,
                       "listed", read_list)
    cycles = bench.run(200 + 40 * len(beats))
    check_beats(batches, taken)
    check_lists(batches, lists)
    return cycles


def batches_of_every_kind(config, seed):
    """Batches of every kind: short and long, of few rows and of many, all hit and all missed."""
    kinds = [(1, 3, 0), (1, 9, 0.5), (2, 1, 0), (30, 40, 0.3), (5, 20, 1), (20, 3000, 0), (3, 9, 0),
             (12, 4, 0), (20, 30, 0.1)]
    for number, (beats, rows, hits) in enumerate(kinds):
        yield Batch(config, beats, rows, 100 * seed + number, hits, splits=number != 6,
                    served=(1, 0.8)[number % 2])


LONG = (0, 0, 50, 1)  # fills the ring


@pytest.mark.parametrize("config, gaps, pauses, list_pauses", [
    pytest.param(TINY, STEADY, STEADY, STEADY, id="steady"),
    pytest.param(TINY, STEADY, STEADY, RAGGED, id="list-back-pressure"),
    pytest.param(FEW_PLACES, RAGGED, LONG, RAGGED, id="all"),
    pytest.param(ONE_LANE, RAGGED, LONG, RAGGED, id="one-lane"),
    *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in {
        "gaps": (TINY, RAGGED, STEADY, STEADY), "back-pressure": (TINY, STEADY, LONG, STEADY),
        "slow-list": (FEW_PLACES, (0, 2), RAGGED, (0, 9, 0))}.items()),
    pytest.param(WIDE, RAGGED, LONG, RAGGED, id="wide-all", marks=pytest.mark.long),
    pytest.param(WIDE, STEADY, STEADY, STEADY, id="wide-steady", marks=pytest.mark.long)])
def test_numbers_and_list(config, gaps, pauses, list_pauses):
    run(config, list(batches_of_every_kind(config, seed=1)), gaps, pauses, list_pauses)


@pytest.mark.parametrize("hits", [0, *(pytest.param(hits, marks=pytest.mark.slow)
                                       for hits in (0.5, 1))])
def test_rate_and_latency(hits):
    """Batches back to back: the cycles of the ring behind, and none lost before it."""
    batches = [Batch(TINY, beats, 300, seed=beats, hits=hits) for beats in (40, 1, 2, 57)]
    asks = [ask for batch in batches for ask in batch.asks]
    cycles = run(TINY, batches)
    free = [{bank: [()] * count for bank, count in ask.items()} for ask in asks]  # of sets
    assert cycles == crossbar_cycles(free, MissNumberBank.latency) + MissNumbering.latency
    assert cycles <= 1.25 * len(asks)


@pytest.mark.parametrize("pauses, list_pauses, every", [(0, 0, 1), (1, 0, 2), (0, 1, 2)],
                         ids=["both", "listed-first", "beats-first"])
def test_one_beat_a_cycle(pauses, list_pauses, every):
    """Without a ring behind: as fast as the slower of the two outputs is taken."""
    batch, dut = Batch(TINY, 50, 100, seed=3), built(MissNumbering, TINY)
    bench = StreamBench(dut)
    bench.source(dut.answered, batch.beats)
    bench.sink(dut.beats, 50, (pauses,), "beats")
    lists = bench.sink(dut.listed, 50, (list_pauses,), "listed", read_list)
    assert bench.run(200) == every * 50 + MissNumbering.latency
    check_lists([batch], lists)
