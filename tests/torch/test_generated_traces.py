"""Traces that are generated: their skew, their drift, and what a model can learn of them."""

import numpy as np
import pytest
from hotrow.traces import TraceError, open_trace
from hotrow.traces.criteo import KAGGLE_CARDINALITIES
from hotrow.traces.drifting import PARTS, PERIOD, Rotation
from hotrow.traces.synthetic import Scramble, hidden_weight, ranks


@pytest.mark.parametrize("slope", [0.0, 0.8, 1.0, 1.15, 1.9])
def test_ranks_follow_the_law(slope):
    rows, drawn = 1000, 400_000
    counts = np.bincount(ranks(np.random.default_rng(3).random(drawn), rows, slope),
                         minlength=rows)
    law = np.arange(1, rows + 1) ** -slope
    expected = drawn * law / law.sum()
    assert len(counts) == rows
    for first, last in ((0, 1), (1, 2), (2, 10), (10, 100), (100, 1000)):
        share = expected[first:last].sum()
        assert abs(counts[first:last].sum() - share) < 4 * share**0.5, f"ranks {first} to {last}"


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 97, 1000, 2**32])
def test_scramble_is_a_bijection(rows):
    for seed in range(5):
        scramble = Scramble(rows, np.random.default_rng(seed))
        few = np.unique(np.r_[0:min(rows, 1000), max(0, rows - 1000):rows])
        scrambled = scramble(few)
        assert len(np.unique(scrambled)) == len(few), f"seed {seed}"
        assert scrambled.min() >= 0 and scrambled.max() < rows
    assert rows < 97 or not (scramble(few) == few).all()


def test_hidden_weights_have_unit_variance():
    weights = hidden_weight(np.arange(10_000, dtype=np.uint32), np.uint64(12345))
    assert abs(weights.mean()) < 0.05 and weights.std() == pytest.approx(1, abs=0.05)
    other = hidden_weight(np.arange(10_000, dtype=np.uint32), np.uint64(54321))
    assert abs(np.corrcoef(weights, other)[0, 1]) < 0.05


@pytest.mark.parametrize("spec", ["zipf:1.05:1000", "drift:1.05:1000", "uniform:50", "single",
                                  "criteo-shape"])
def test_generated_traces(spec):
    trace = open_trace(spec, seed=5)
    samples, again = trace.batch(3, 512), open_trace(spec, seed=5).batch(3, 512)
    for name in ("ids", "dense", "label"):
        assert (getattr(samples, name) == getattr(again, name)).all(), name
    other = open_trace(spec, seed=6).batch(3, 512)
    assert (samples.ids != other.ids).any()
    assert (samples.ids != trace.batch(4, 512).ids).any() == (spec != "single")
    assert trace.synthetic and trace.batch_count(512) is None
    assert samples.ids.shape == (512, 26) and (samples.ids < trace.cardinalities).all()
    assert 0.1 < samples.label.mean() < 0.45


def test_single_is_one_id_over_and_over():
    ids = np.concatenate([samples.ids for samples in open_trace("single").batches(64, 3)])
    assert (ids == ids[0]).all()


def test_uniform_is_not_skewed():
    ids = open_trace("uniform:10").batch(0, 20_000).ids
    counts = np.bincount(ids[:, 0], minlength=10)
    assert len(counts) == 10 and counts.min() > 0.9 * counts.max()


def test_criteo_shape_has_kaggles_tables_and_its_skew():
    trace = open_trace("criteo-shape")
    assert trace.cardinalities == KAGGLE_CARDINALITIES and trace.rows == 33_762_577
    assert trace.dense_columns == 13
    largest = int(np.argmax(KAGGLE_CARDINALITIES))
    ids = trace.batch(0, 20_000).ids[:, largest]
    hot, counts = np.unique(ids, return_counts=True)
    hottest = hot[np.argsort(-counts)[:10]]
    assert np.sort(counts)[-10:].sum() > 0.3 * len(ids)
    assert hottest.max() > 1_000_000, "hot ids must be scattered over the table"


def test_the_planted_signal_can_be_learned():
    trace = open_trace("criteo-shape", seed=9)
    samples = trace.batch(0, 20_000)
    normal = np.c_[samples.dense, np.ones(len(samples))]
    weights = np.linalg.lstsq(normal[:10_000], samples.label[:10_000], rcond=None)[0]
    score, label = normal[10_000:] @ weights, samples.label[10_000:]
    above = (score[label == 1][:, None] > score[label == 0]).mean()
    assert above > 0.65


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 100, 1000])
@pytest.mark.parametrize("period", [1, 7, 40])
def test_a_rotation_is_a_bijection_in_every_batch(rows, period):
    rotation, rank = Rotation(rows, period, 0.3), np.arange(rows)
    assert rotation(rank, 0).tolist() == rank.tolist()
    for index in (1, period - 1, period, 5 * period + 3, 10**9):
        assert sorted(rotation(rank, index)) == rank.tolist(), f"batch {index}"


def test_a_rotation_replaces_every_rank_once_per_period():
    rows, period = 1600, 20
    rotation, rank = Rotation(rows, period, 0.7), np.arange(rows)
    places = np.array([rotation(rank, index) for index in range(3 * period + 1)])
    changes = places[1:] != places[:-1]
    for first in range(2 * period):
        assert (changes[first:first + period].sum(axis=0) == 1).all()
    weight = np.arange(1, rows + 1) ** -1.05
    steps = changes @ weight / weight.sum()
    assert steps[steps.argsort()[-2]] < 4 / period, "the drift is steady but for the first rank"
    assert changes.sum(axis=1).min() > 0.5 * rows / period
    hot = set(range(rows // PARTS))
    for later in range(1, PARTS):
        assert hot.isdisjoint(rotation(np.array(sorted(hot)), later * period))
    assert hot == set(rotation(np.array(sorted(hot)), PARTS * period))


def hottest(trace, index, column, count=20):
    rows, counts = np.unique(trace.batch(index, 20_000).ids[:, column], return_counts=True)
    return set(rows[np.argsort(-counts)[:count]])


@pytest.mark.slow
def test_drift_replaces_the_hot_rows_and_nothing_else():
    trace, still = open_trace("drift:1.2:10000:50", seed=4), open_trace("zipf:1.2:10000", seed=4)
    for index in (0, 50, 130):
        drifting, fixed = (np.sort(np.bincount(each.batch(index, 20_000).ids[:, 3]))[::-1][:9]
                           for each in (trace, still))
        assert (drifting == fixed).all(), "the law of the ranks is that of zipf"
    assert (trace.batch(0, 500).ids == still.batch(0, 500).ids).all()
    first = hottest(trace, 0, 3)
    shared = [len(first & hottest(trace, index, 3)) for index in (5, 25, 50, 100)]
    assert shared[0] > 14 and 5 < shared[1] < 15 and shared[2] < 3 and shared[3] < 3


def test_drift_has_defaults():
    trace = open_trace("drift:1.05")
    assert (trace.cardinalities, trace.period) == ((2**20,) * 26, PERIOD)
    assert open_trace("drift:1.05:99:7").period == 7


def rated(learned, samples):
    """How often a positive is rated above a negative, by the labels seen of each sample's rows."""
    score = np.zeros(len(samples))
    for column, (clicks, seen) in enumerate(learned):
        ids = samples.ids[:, column]
        score += (clicks[ids] + 2 * samples.label.mean()) / (seen[ids] + 2)
    return (score[samples.label == 1][:, None] > score[samples.label == 0]).mean()


def test_the_signal_stays_learnable_while_it_drifts():
    rows, period, size = 2000, 30, 4000
    trace = open_trace(f"drift:1.2:{rows}:{period}", seed=3, tables=4)

    def learn(first, last):
        learned = np.zeros((4, 2, rows))
        for index in range(first, last):
            samples = trace.batch(index, size)
            for column in range(4):
                clicked = samples.ids[:, column][samples.label == 1]
                learned[column, 0] += np.bincount(clicked, minlength=rows)
                learned[column, 1] += np.bincount(samples.ids[:, column], minlength=rows)
        return learned

    for start in (0, 5 * period):
        assert rated(learn(start, start + 10), trace.batch(start + 11, size)) > 0.62
    # What was learned before the drift is of no use after it, and of use again when rows return.
    early = learn(0, 10)
    assert rated(early, trace.batch(3 * period, size)) < 0.56
    assert rated(early, trace.batch(PARTS * period, size)) > 0.62


@pytest.mark.parametrize("spec, message", [
    ("drift", "does not read as drift:S"), ("drift:1:2:3:4", "does not read as drift:S"),
    ("drift:1:10:0", "a period is 1 or more batches, not 0"),
    ("drift:1:10:often", "'often' is no number of batches; expected .*drift:S"),
    ("zipf", "does not read as zipf:S"), ("zipf:1:2:3", "does not read as zipf:S"),
    ("zipf:steep", "'steep' is no slope"), ("zipf:nan", "'nan' is no slope"),
    ("zipf:-1", "'-1' is no slope"), ("zipf:1:many", "'many' is no number of rows"),
    ("zipf:1:0", "1 to 2\\*\\*32 rows, not 0"), ("uniform:5:6", "does not read as uniform"),
    ("single:5", "does not read as single"), ("criteo-shape:1:2", "does not read as criteo-shape"),
])
def test_malformed_specifications(spec, message):
    with pytest.raises(TraceError, match=message):
        open_trace(spec)


def test_generators_name_their_own_columns():
    with pytest.raises(TraceError, match="columns of its own: leave --ids"):
        open_trace("uniform", ids=("a",))


def test_sample_is_a_generated_log_of_this_package():
    trace = open_trace("sample", ("item", "user"), "clicked", ("price",))
    assert (trace.samples, trace.name, trace.synthetic) == (5000, "sample", True)
