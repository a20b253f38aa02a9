"""Bags of features, given and as a device's batch: each lookup has its table, sample, weight."""

import warnings
from collections import Counter
from itertools import accumulate, pairwise

import hotrow
import pytest
import torch
from hotrow.contract.errors import BatchError
from hotrow.torch import TableConfig
from hotrow.torch.features.bags import NARROW, Bags, GridBags
from hotrow.torch.features.configs import TableGroup
from hotrow.torch.features.grouping import Grouping
from hotrow.torch.optim.rules import SGD

SAMPLES, ROWS = 5, 400
LENGTHS = {
    "no length": lambda bags: None, "ones": lambda bags: torch.ones(bags, dtype=torch.int64),
    "twos": lambda bags: torch.full((bags,), 2), "any": lambda bags: torch.arange(bags) % 4,
}
ANY_LENGTHS = pytest.mark.parametrize("lengths", LENGTHS)
ANY_TABLES = pytest.mark.parametrize("tables", [
    (0,), (0, 1), (0, 1, 2), (0, 2), (2,), (0, 0, 1), (0, 2, 2), (1, 1), (0, 0, 1, 1)], ids=str)


def bags_of(tables, lengths, weighted=False):
    """Bags whose ids differ, each with its number as weight."""
    given = LENGTHS[lengths](len(tables) * SAMPLES)
    if given is None:
        ids = torch.arange(SAMPLES * len(tables)).view(SAMPLES, -1)
        bags = Bags.of(tables, ids, weights=ids.float() if weighted else None)
        assert isinstance(bags, GridBags)
        return bags
    ids = torch.arange(int(given.sum()))
    return Bags(tables, ids, given, ids.float() if weighted else None)


def lists(bags):
    """(table, ids of each sample) of each feature."""
    bounds = pairwise(accumulate(bags.lengths.tolist(), initial=0))
    found = [bags.ids[first:last].tolist() for first, last in bounds]
    return [(table, found[SAMPLES * feature:SAMPLES * (feature + 1)])
            for feature, table in enumerate(bags.tables)]


@pytest.fixture(scope="module")
def registered():
    """Three tables of a device, by number."""
    with hotrow.open("model", preset="tiny") as device:
        yield {number: device.register_table(hotrow.empty((ROWS, 4), "f4"), f"{number}")
               for number in range(3)}


@ANY_TABLES
@ANY_LENGTHS
def test_lookups_of_a_device_batch(registered, tables, lengths):
    bags = bags_of(tables, lengths)
    batch = bags.device_batch(registered)
    found = [(table, [[] for _ in range(SAMPLES)]) for table in tables]
    for position, row in enumerate(batch.ids.tolist()):
        sample, column = batch.locate(position)
        feature = tables.index(batch.tables[column].number) + sample // SAMPLES
        found[feature][1][sample % SAMPLES].append(row)
    assert found == lists(bags)
    assert [each.number for each in batch.tables] == list(range(tables[0], tables[-1] + 1))
    assert batch.samples == SAMPLES * max(Counter(tables).values())
    assert batch.checked == (ROWS,) * batch.table_count


@ANY_TABLES
@ANY_LENGTHS
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_bags(tables, lengths, weighted):
    """Each lookup keeps its weight, which is its id here."""
    bags = bags_of(tables, lengths, weighted)
    features, samples = lists(bags), torch.tensor([3, 0, 3, 4, 1])
    assert bags.lookups == len(bags.ids) and bags.samples == SAMPLES
    assert bags.counts == [sum(map(len, each)) for _, each in features]
    for order in ([*range(len(tables))], [*range(len(tables))][::-1], [len(tables) - 1]):
        part = bags.columns(order)
        assert lists(part) == [features[feature] for feature in order]
        for weights in (part.weights, bags.weights_in(order)):
            assert weights is None if not weighted else torch.equal(weights, part.ids.float())
    chosen = bags.rows(samples)
    assert lists(chosen) == [(table, [each[sample] for sample in samples])
                             for table, each in features]
    assert chosen.weights is None or torch.equal(chosen.weights, chosen.ids.float())
    rows = [torch.tensor([row + 1 for sample in each for row in sample], dtype=torch.int64)
            if feature % 2 else None for feature, (_, each) in enumerate(features)]
    assert lists(bags.with_rows(rows)) == [
        (table, [[row + feature % 2 for row in sample] for sample in each])
        for feature, (table, each) in enumerate(features)]
    kept = bags._without_padding(2)
    assert lists(kept) == [(table, [[row for row in sample if row != 2] for sample in each])
                           for table, each in features]
    assert kept.weights is None or torch.equal(kept.weights, kept.ids.float())


@ANY_TABLES
@ANY_LENGTHS
def test_bags_that_look_up_the_same(tables, lengths):
    bags = bags_of(tables, lengths)
    other = Bags(bags.tables, bags.ids.clone(), bags.lengths.clone())
    assert bags.equals(bags.snapshot()) and bags.equals(other) and other.equals(bags)
    copy = bags.snapshot()
    (copy.grid if isinstance(copy, GridBags) else copy.ids)[0] += 1
    assert not bags.equals(copy) and bags.ids[0] == 0
    for changed in (Bags(bags.tables, other.ids + 1, other.lengths),
                    Bags(tuple(each + 1 for each in tables), other.ids, other.lengths)):
        assert not bags.equals(changed) and not changed.equals(bags)
    assert other.equals(Bags(bags.tables, other.ids.int(), other.lengths))
    assert not other.equals(Bags(bags.tables, other.ids.int() + 1, other.lengths))
    if isinstance(bags, GridBags):
        assert bags.equals(GridBags(bags.tables, bags.grid.int()))
        for tables, grid in ((bags.tables, bags.grid.int() + 1), (bags.tables, bags.grid + 1),
                             ((9, *bags.tables[1:]), bags.grid)):
            assert not bags.equals(GridBags(tables, grid))


def test_ids_that_are_rows_of_no_table():
    """Row 0 in their place; all bounds of all features' tables."""
    configs = [TableConfig("a", 5, 4), TableConfig("b", 9, 4)]
    for ids, wrong in (([[5, 0], [4, 8], [-1, 0]], 2), ([[0, 9], [4, 8], [3, 0]], 1)):
        bags, given = Bags.of((0, 1), torch.tensor(ids)), torch.tensor(ids)
        expected = given.where((given >= 0) & (given < torch.tensor([5, 9])), 0)
        row, name = (5, "a") if wrong == 2 else (9, "b")
        said = rf"batch 3: id {row} of sample 0 is no row of table '{name}', which has rows 0 to "
        with pytest.raises(BatchError, match=said):
            bags.bounded(configs, "batch 3", "fatal")
        more = "; 1 more ids are rows of no table" if wrong == 2 else "any id"
        with pytest.warns(match=rf"{said}.*{more}: row 0 is looked up instead"):
            found = bags.bounded(configs, "batch 3", "warning")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet = bags.bounded(configs, "batch 3", "ignore")
        for each in (found, quiet):
            assert torch.equal(each.ids, expected.T.reshape(-1))


@pytest.mark.parametrize("tables", [(0,), (2, 1, 0), (0, 1, 2), (1, 1, 0), (2, 0, 2, 1)], ids=str)
@ANY_LENGTHS
def test_bags_by_group_of_tables(tables, lengths):
    """Tables 0 and 2 are of one dim; flat rows number those of a group."""
    configs = [TableConfig(f"{dim}", ROWS, dim) for dim in (4, 8)] + [TableConfig("c", ROWS, 4)]
    groups = [TableGroup(numbers, configs, SGD(0.1)) for numbers in ((0, 2), (1,))]
    grouping, bags = Grouping(groups), bags_of(tables, lengths)
    for _ in range(2):  # the second one is remembered where it is dense
        request = grouping.request(bags)
        assert [tables[feature] for feature in request.order] == [
            table for table in (0, 2, 1) for each in tables if each == table]
        assert lists(request.bags) == [lists(bags)[feature] for feature in request.order]
        flat, place = [], 0
        for segment in request.segments:
            features = request.bags.tables[place:place + segment.features]
            assert {table == 1 for table in features} == {segment.group == 1}
            assert segment.first.tolist() == [ROWS * (table == 2) for table in features]
            assert torch.equal(segment.lengths, request.bags.lengths[
                SAMPLES * place:SAMPLES * (place + segment.features)])
            assert segment.count == len(segment.flat) == sum(segment.counts)
            flat += segment.flat.tolist()
            place += segment.features
        assert place == len(tables) and flat == [
            row + ROWS * (table == 2) for table, each in lists(request.bags)
            for sample in each for row in sample]
    assert grouping.request(Bags(bags.tables, bags.ids + ROWS, bags.lengths)) is None


def test_ids_are_narrow_where_all_rows_have_narrow_numbers():
    for rows, dtype in ((NARROW, torch.int32), (NARROW + 1, torch.int64)):
        for bags in (Bags.of((0,), torch.tensor([[3]])),
                     Bags((0,), torch.tensor([3]), torch.tensor([1]))):
            assert bags.grouped([0], torch.tensor([rows])).ids.dtype == dtype


def test_bags_of_no_samples_have_no_id_each():
    assert not Bags.of((0, 1), torch.zeros(0, 2, dtype=torch.int64)).dense
    assert Bags.of((0,), torch.zeros(1, 1, dtype=torch.int64)).dense


@pytest.mark.parametrize("pairs, message", [
    ([3, ([1], [0])], "weights. of feature 0, got int"),
    ([([1], [0]), ([1],)], "weights. of feature 1, got tuple"),
    ([([1], [0], [2.0], [3.0]), ([1], [0])], "weights. of feature 0, got tuple"),
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
