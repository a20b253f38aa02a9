"""CountTally beside a count by hand."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract import Status
from hotrow_rtl.count_tally import CountTally
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
COUNTS = ("status", "error_index", "lookups", "hits", "misses")


def batch_of(beats, refused, seed):
    """Answered beats of one batch, and what its outcome says."""
    rng = np.random.default_rng(seed)
    position, want, batch = 0, dict.fromkeys(COUNTS, 0), []
    for number in range(beats):
        lanes, answers = [], []
        for lane in range(TINY.lanes):
            present = rng.random() < 0.9
            status = int(rng.choice([Status.ROW_OUT_OF_RANGE, Status.SLVERR, Status.TIMEOUT])) * (
                rng.random() < refused)
            owner = bool(present and not status and rng.random() < 0.7)
            amount, counted = int(rng.integers(1, TINY.window_beats + 2)), int(rng.integers(2))
            # What an absent lane carries, and the amount of one that joins, must not matter.
            lanes.append({"present": int(present), "status": status, "owner": int(owner),
                          "amount": amount})
            answers.append({"counted": counted})
            if present and status and not want["status"]:
                want |= {"status": status, "error_index": position + sum(
                    each["present"] for each in lanes[:lane])}
            want["lookups"] += amount * owner
            want["misses"] += owner and not counted
        batch.append({"carried": {"lanes": lanes, "position": position,
                                  "last": int(number == beats - 1)}, "answers": answers})
        position += sum(each["present"] for each in lanes)
    want["hits"] = want["lookups"] - want["misses"]
    return batch, want


@pytest.mark.parametrize("gaps, pauses", [
    (STEADY, STEADY), (RAGGED, STEADY), (STEADY, (0, 40, 3)), (RAGGED, RAGGED)],
    ids=["steady", "gaps", "back-pressure", "both"])
def test_batches_back_to_back(gaps, pauses):
    batches = [batch_of(beats, refused, seed) for seed, (beats, refused) in enumerate(
        (beats, refused) for beats in (1, 2, 1, 17, 3, 60) for refused in (0, 0.05, 1))]
    dut = CountTally(TINY)
    bench = StreamBench(dut)
    beats = [beat for batch, _ in batches for beat in batch]
    bench.source(dut.beats, beats, gaps)
    outcomes = bench.sink(dut.outcome, len(batches), pauses, read=lambda payload: {
        name: payload[name] for name in COUNTS})
    cycles = bench.run(2000)
    assert outcomes == [want for _, want in batches]
    if gaps is STEADY and pauses is STEADY:
        assert cycles <= len(beats) + 5


def test_restart_forgets_the_batch():
    (dropped, _), (batch, want) = batch_of(6, 0.3, 1), batch_of(4, 0, 2)
    dut = CountTally(TINY)
    bench = StreamBench(dut)
    found = []

    async def drive(ctx):
        ctx.set(dut.outcome.ready, 1)
        for beat in dropped[:-1]:
            ctx.set(dut.beats.p, beat)
            ctx.set(dut.beats.valid, 1)
            await ctx.tick()
        ctx.set(dut.beats.valid, 0)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        for beat in batch:
            ctx.set(dut.beats.p, beat)
            ctx.set(dut.beats.valid, 1)
            await ctx.tick()
        ctx.set(dut.beats.valid, 0)
        report, = await ctx.tick().sample(dut.outcome.p).until(dut.outcome.valid)
        found.append({name: report[name] for name in COUNTS})
    bench.process("restart", drive)
    bench.run(100)
    assert found == [want]
