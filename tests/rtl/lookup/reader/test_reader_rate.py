import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import BatchFlag

from tests.rtl.lookup.reader.reader_cycles import dense_cycles, jagged_cycles, sequence_cycles
from tests.support.benches.lookup_bench import KINDS, Batch, Trace, beats_in, lengths_of

TINY = preset("tiny")
CONFIGS = {bus: dataclasses.replace(
    TINY, name=f"bus-{bus}", bus_bytes=bus, counter_sets=256, directory_sets=256,
    miss_entries=1024, batch_samples=64) for bus in (16, 32, 64)}  # keep 32 or 64 lengths
CONFIGS["one"] = dataclasses.replace(CONFIGS[16], name="one-lane", lookup_lanes=1, lane_banks=1)
ROOMY = dataclasses.replace(TINY, name="roomy", batch_samples=16384)
ID64, FEATURE_MAJOR, JAGGED = BatchFlag.ID64, BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED


@pytest.mark.slow
@pytest.mark.parametrize("bus, flags", [
    (16, BatchFlag(0)), ("one", BatchFlag(0)), ("one", ID64),
    pytest.param(16, ID64, marks=pytest.mark.slow),
    pytest.param(32, FEATURE_MAJOR, marks=pytest.mark.long),
    pytest.param(64, ID64, marks=pytest.mark.slow)])
def test_cycles_of_a_dense_batch(bus, flags):
    """The model's, exactly."""
    config = CONFIGS[bus]
    batch = Batch(config, flags, 10, 26)
    for latency in (1, 60):
        trace = Trace(config, [batch], latency=latency).run()
        assert trace.cycles == dense_cycles(config, flags, batch.count, latency)


@pytest.mark.parametrize("bus, flags, samples, kind", [
    (16, BatchFlag(0), 6, "random"), (16, ID64, 40, "half-empty"), ("one", ID64, 40, "random"),
    ("one", BatchFlag(0), 40, "short"),
    *(pytest.param(bus, flags, 40, kind, marks=pytest.mark.slow) for bus, flags, kind in (
        (16, BatchFlag(0), "first-empty"), (16, ID64, "long"), (64, ID64, "short"))),
    *(pytest.param(bus, flags, samples, kind, marks=pytest.mark.long)
      for bus, flags in ((16, BatchFlag(0)), (64, ID64)) for samples in (6, 40)
      for kind in KINDS)])
def test_cycles_of_a_jagged_batch(bus, flags, samples, kind):
    """Within 5 %, or as many cycles as the two lists may disturb each other on the bus."""
    config = CONFIGS[bus]
    batch = Batch(config, flags | JAGGED, samples, 5, lengths_of(samples * 5, kind, 3))
    trace = Trace(config, [batch], latency=7).run()
    expected = jagged_cycles(config, flags, batch.lengths, 7)
    assert trace.cycles == pytest.approx(expected, rel=0.05, abs=4)


def rate_of(config, batches, latency):
    """Cycles from the first beat to the last, and their trace."""
    trace = Trace(config, batches, latency=latency).run()
    assert trace.lasts == list(np.cumsum([beats_in(batch) for batch in batches]) - 1)
    return trace.beat_cycles[-1] + 1 - trace.beat_cycles[0], trace


@pytest.mark.parametrize("bus, flags, samples", [
    pytest.param(16, BatchFlag(0), 70, marks=pytest.mark.slow),
    pytest.param(64, BatchFlag(0), 300, marks=pytest.mark.long),
    *(pytest.param(bus, flags, samples, marks=pytest.mark.long) for bus, flags, samples in (
        (16, BatchFlag(0), 500), (16, ID64, 250), (32, FEATURE_MAJOR, 300)))])
def test_dense_batches_follow_without_a_gap(bus, flags, samples):
    """Of more words than the latency: the lists of the next batch are requested in time."""
    config = dataclasses.replace(CONFIGS[bus], batch_samples=1024)
    batches = [Batch(config, flags, samples, 16, seed=seed) for seed in range(3)]
    cycles, trace = rate_of(config, batches, latency=200)
    assert cycles == sum(map(beats_in, batches))
    first_last = trace.beat_cycles[beats_in(batches[0]) - 1]
    assert trace.verdict_cycles[1] < first_last, "the second batch was not requested ahead"
    assert trace.command_cycles[2] < first_last + 20


@pytest.mark.slow
@pytest.mark.parametrize("samples, kind, flags", [
    (60, "short", BatchFlag(0)),
    pytest.param(300, "mostly-empty", ID64, marks=pytest.mark.slow),
    pytest.param(300, "ones", ID64, marks=pytest.mark.long),
    *(pytest.param(samples, kind, flags, marks=pytest.mark.long)
      for flags in (BatchFlag(0), ID64) for samples, kind in (
        (400, "ones"), (400, "short"), (400, "half-empty"), (400, "mostly-empty"),
        (20, "twenty"), (1, "huge")))])
def test_jagged_batches_take_their_words(samples, kind, flags):
    """Ids and lengths share one bus, and little else limits them, unless most bags are empty.

    Beside the sum of the first batch, and beside the delivery of the last, there is nothing else.
    """
    latency = 20 if samples == 60 and kind == "short" else 200
    batches = [Batch(ROOMY, flags | JAGGED, samples, 8, lengths_of(samples * 8, kind, seed),
                     seed=seed) for seed in range(3)]
    assert len(batches[0].lengths) <= ROOMY.stored_lengths
    _, trace = rate_of(ROOMY, batches, latency)
    words = sum(-(-nbytes // ROOMY.bus_bytes) for _, nbytes in trace.memory.fetches)
    assert words == trace.memory.carried
    summed = -(-batches[0].lengths.nbytes // ROOMY.bus_bytes)
    walked = sum(sequence_cycles(ROOMY, flags, batch.lengths)[1] for batch in batches)
    assert walked <= words or kind == "mostly-empty"
    assert trace.cycles <= max(1.05 * words, 1.1 * walked) + summed + 2 * latency + 60


@pytest.mark.slow
def test_empty_bags_go_by_half_a_word_of_lengths_a_cycle():
    batch = Batch(ROOMY, JAGGED, 200, 8, lengths_of(1600, "single", 1))
    trace = Trace(ROOMY, [batch]).run()
    assert trace.cycles <= 200 + 400 + 40
