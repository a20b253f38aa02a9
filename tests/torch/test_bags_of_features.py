"""Bags of features, given and as a device's batch: each lookup has its table, sample, weight."""

from collections import Counter

import hotrow
import pytest
import torch
from hotrow.contract.errors import BatchError
from hotrow.torch.features.bags import NARROW, Bags, GridBags

SAMPLES = 5
LENGTHS = {
    "no length": lambda bags: None, "ones": lambda bags: torch.ones(bags, dtype=torch.int64),
    "twos": lambda bags: torch.full((bags,), 2), "any": lambda bags: torch.arange(bags) % 4,
}


@pytest.fixture(scope="module")
def registered():
    """Three tables of a device, by number."""
    with hotrow.open("model", preset="tiny") as device:
        yield {number: device.register_table(hotrow.empty((400, 4), "f4"), f"{number}")
               for number in range(3)}


@pytest.mark.parametrize("tables", [
    (0,), (0, 1), (0, 1, 2), (0, 2), (2,), (0, 0, 1), (0, 2, 2), (1, 1), (0, 0, 1, 1)], ids=str)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_lookups_of_a_batch(registered, tables, lengths):
    features = len(tables)
    given = LENGTHS[lengths](features * SAMPLES)
    if given is None:
        ids = torch.arange(SAMPLES * features).view(SAMPLES, features)
        bags = Bags.of(tables, ids)
        assert isinstance(bags, GridBags) and bags.dense
        of = [[[int(ids[sample, feature])] for sample in range(SAMPLES)]
              for feature in range(features)]
    else:
        ids = torch.arange(int(given.sum()))
        bags = Bags(tables, ids, given)
        of = [[part.tolist() for part in row] for row in (
            ids.split(given.tolist())[SAMPLES * feature:SAMPLES * (feature + 1)]
            for feature in range(features))]
    batch = bags.device_batch(registered)
    found = [[[] for _ in range(SAMPLES)] for _ in tables]
    first = {table: tables.index(table) for table in tables}
    for position, id_ in enumerate(batch.ids.tolist()):
        sample, column = batch.locate(position)
        feature = first[batch.tables[column].number] + sample // SAMPLES
        found[feature][sample % SAMPLES].append(id_)
    assert found == of
    assert [each.number for each in batch.tables] == list(range(tables[0], tables[-1] + 1))
    assert batch.samples == SAMPLES * max(Counter(tables).values())
    assert batch.checked == (400,) * batch.table_count


def test_ids_are_narrow_where_all_rows_have_narrow_numbers():
    for rows, dtype in ((NARROW, torch.int32), (NARROW + 1, torch.int64)):
        for bags in (Bags.of((0,), torch.tensor([[3]])),
                     Bags((0,), torch.tensor([3]), torch.tensor([1]))):
            assert bags.grouped([0], torch.tensor([rows])).ids.dtype == dtype


def test_bags_of_no_samples_have_no_id_each():
    assert not Bags.of((0, 1), torch.zeros(0, 2, dtype=torch.int64)).dense
    assert Bags.of((0,), torch.zeros(1, 1, dtype=torch.int64)).dense


@pytest.mark.parametrize("pairs, message", [
    ([3, ([1], [0])], "of feature 0, or weights with them, got int"),
    ([([1], [0]), ([1],)], "of feature 1, or weights with them, got tuple"),
    ([([1], [0], [2.0], [3.0]), ([1], [0])], "of feature 0, or weights with them, got tuple"),
    ([([1], [0], [2.0]), ([1], [0])], "1 of 2 features have weights: give all or none"),
    ([([1], [0], [2.0]), ([1], [0], [2.0, 3.0])], r"feature 1 of shape \[1\], as the .* got \[2\]"),
    ([([1], [0]), ([1, 2], [0, 1])], "same number of bags, got 1, 2"),
    ([([1], [0])], "of 2 tables, got 1")])
def test_pairs_that_are_no_features(pairs, message):
    with pytest.raises(BatchError, match=message):
        Bags.of((0, 1), pairs)


def test_weights_of_pairs_are_those_of_their_features():
    bags = Bags.of((0, 1), [([1, 2], [0], [2.0, 3.0]), ([1], [0], [4.0])])
    assert bags.weights.tolist() == [2, 3, 4] and bags.lengths.tolist() == [2, 1]
    assert Bags.of((0, 1), [([1], [0], None), ([1], [0])]).weights is None
