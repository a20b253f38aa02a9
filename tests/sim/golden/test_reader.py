import numpy as np
import pytest
from hotrow_rtl.contract.encoding import BatchFlag
from hotrow_sim.golden.lookup.reader import beats_of, read_batch

FEATURE_MAJOR, JAGGED, ID64 = BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED, BatchFlag.ID64


def by_loops(ids, samples, first_table, table_count, flags, lengths):
    """(table, row, sample) of each id, bag by bag in the order of memory."""
    if flags & FEATURE_MAJOR:
        bags = [(column, sample) for column in range(table_count) for sample in range(samples)]
    else:
        bags = [(column, sample) for sample in range(samples) for column in range(table_count)]
    ids, lookups = list(ids), []
    for number, (column, sample) in enumerate(bags):
        length = 1 if lengths is None else int(lengths[number])
        lookups += [(first_table + column, int(ids.pop(0)), sample) for _ in range(length)]
    assert not ids, "the case itself is wrong"
    return lookups


@pytest.mark.parametrize("samples, table_count", [(1, 1), (1, 5), (5, 1), (4, 3), (17, 26)])
@pytest.mark.parametrize("flags", [BatchFlag(0), FEATURE_MAJOR, ID64, FEATURE_MAJOR | ID64],
                         ids=str)
@pytest.mark.parametrize("jagged", [None, "random", "edges-empty", "one-bag"])
def test_equals_loops(samples, table_count, flags, jagged):
    rng = np.random.default_rng(samples * table_count)
    bags = samples * table_count
    lengths = None
    if jagged:
        lengths = rng.integers(0, 5, bags).astype(np.uint16)
        flags |= JAGGED
    if jagged == "edges-empty":
        lengths[[0, -1]] = 0
    if jagged == "one-bag":
        lengths[:] = 0
        lengths[bags // 2] = 300
    count = bags if lengths is None else int(lengths.sum())
    kind = np.uint64 if flags & ID64 else np.uint32
    ids = rng.integers(0, np.iinfo(kind).max, count, dtype=kind, endpoint=True)
    lookups = read_batch(ids, samples, 7, table_count, flags, lengths)
    columns = lookups.table.tolist(), lookups.row.tolist(), lookups.sample.tolist()
    found = list(zip(*columns, strict=True))
    assert found == by_loops(ids, samples, 7, table_count, flags, lengths)
    assert lookups.samples == samples


@pytest.mark.parametrize("lanes, flags, beats", [
    (4, BatchFlag(0), [0, 0, 0, 0, 1]), (4, ID64, [0, 0, 1, 1, 2]), (2, ID64, [0, 1, 2, 3, 4]),
    (1, BatchFlag(0), [0, 1, 2, 3, 4]), (1, ID64, [0, 1, 2, 3, 4])])
def test_a_beat_has_the_ids_of_a_bus_word(lanes, flags, beats):
    assert beats_of(lanes, 5, flags | FEATURE_MAJOR).tolist() == beats
