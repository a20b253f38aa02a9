import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.grouping import Grouper
from hotrow.kernels.ids import flatten_ids
from hotrow.kernels.pooling import BagLayout, pool_bags, sum_gradients
from hotrow.kernels.whole_tables import TableFeatures

COUNTS = torch.tensor([5, 9, 5])  # the first and the last feature look up in one table
FIRST, COLUMNS = torch.tensor([16, 0, 16]), torch.tensor([40, 0, 20])


def features(dtype=torch.float32, mean=None):
    rows = torch.randn(25, 20, generator=torch.Generator().manual_seed(1)).to(dtype)
    return TableFeatures(rows, Grouper(25), torch.arange(3), FIRST, COUNTS, COLUMNS, 60, mean)


def same_bits(ours, theirs):
    return torch.equal(ours.view(torch.int32), theirs.view(torch.int32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bags", ["grid", "lengths", "weights", "mean"])
@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_are_those_of_the_single_passes(bags, dtype, integers, threads, monkeypatch):
    monkeypatch.setattr("hotrow.kernels.whole_tables.threads_for", lambda _: threads)
    samples, lengths, weights = 40, None, None
    mean = torch.tensor([True, False, True]) if bags == "mean" else None
    of = features(dtype=dtype, mean=mean)
    if bags == "grid":
        ids = torch.stack([torch.randint(0, int(each), (samples,)) for each in COUNTS], 1)
        ids, counts = ids.to(integers).T.contiguous().T, None
    else:
        lengths = torch.randint(0, 4, (3 * samples,))
        counts = lengths.view(3, samples).sum(1)
        ids = torch.cat([torch.randint(0, int(each), (int(count),), dtype=integers)
                         for each, count in zip(COUNTS, counts, strict=True)])
        weights = torch.randn(len(ids)) if bags == "weights" else None
    layout = BagLayout(3, samples, 20, lengths, mean, COLUMNS, 60)
    local, wrong = flatten_ids(ids, COUNTS, counts)
    assert wrong == -1
    flat = local + FIRST.repeat_interleave(
        torch.full((3,), samples) if counts is None else counts)
    out, sums = torch.empty(samples, 60), torch.empty(len(flat), 20)
    found = of.look_up(ids, lengths, weights, out)
    assert found is not None and torch.equal(found.long(), flat)
    assert same_bits(out, pool_bags(of.rows, flat, layout, weights))
    for gradients in (torch.randn(samples, 60), torch.randn(1, 60).expand(samples, 60)):
        distinct, got = of.sum_rows(found, lengths, weights, gradients, sums)
        groups = Grouper(25).group(flat)
        assert torch.equal(distinct.long(), groups.distinct)
        assert same_bits(got, sum_gradients(gradients, groups, layout, weights)[0])


@pytest.mark.parametrize("wrong", [-1, 5, 1 << 31, -(1 << 62), (1 << 63) - 1])
def test_an_id_that_is_no_row_of_its_table_is_refused(wrong):
    ids = torch.zeros(4, 3, dtype=torch.int64)
    ids[3, 2] = wrong
    assert features().look_up(ids, None, None, torch.empty(4, 60)) is None
    assert features().look_up(ids.T.reshape(-1), torch.ones(12, dtype=torch.int64), None,
                              torch.empty(4, 60)) is None


@pytest.mark.parametrize("lengths", [[1] * 5, [1] * 7, [2, 1, 1, 1, 1, 1], [-1, 3, 1, 1, 1, 1],
                                     [1 << 62, 1 << 62, 1 << 62, 1 << 62, 0, 6]])
def test_lengths_that_are_not_those_of_the_ids_are_refused(lengths):
    assert features().look_up(torch.zeros(6, dtype=torch.int64), torch.tensor(lengths), None,
                              torch.empty(2, 60)) is None


def test_other_parts_that_do_not_fit_are_refused():
    ids, of = torch.zeros(4, 3, dtype=torch.int64), features()
    for given, weights, out in ((ids[:, :2], None, (4, 60)), (ids, None, (3, 60)),
                                (ids, None, (4, 59)), (ids, torch.ones(11), (4, 60)),
                                (ids.short(), None, (4, 60)), (ids[:, 0], None, (4, 60))):
        assert of.look_up(given, None, weights, torch.empty(out)) is None
    flat = of.look_up(ids, None, None, torch.empty(4, 60))
    for at, gradients, sums in ((flat[:11], (4, 60), 12), (flat, (5, 60), 12), (flat, (4, 59), 12),
                                (flat, (4, 60), 11), (flat + 25, (4, 60), 12)):
        with pytest.raises(Error, match="lookups"):
            of.sum_rows(at, None, None, torch.ones(gradients), torch.empty(sums, 20))
    with pytest.raises(Error, match="tables within 25 rows"):
        TableFeatures(of.rows, of.grouper, torch.arange(3), FIRST + 5, COUNTS, COLUMNS, 60)


def test_batches_without_samples_or_lookups():
    of, nothing = features(), torch.zeros(0, dtype=torch.int64)
    flat = of.look_up(torch.zeros(0, 3, dtype=torch.int64), None, None, torch.empty(0, 60))
    assert flat is not None and not len(flat)
    out, lengths = torch.ones(2, 60), torch.zeros(6, dtype=torch.int64)
    flat = of.look_up(nothing, lengths, None, out)
    assert flat is not None and not out.any()
    distinct, sums = of.sum_rows(flat, lengths, None, torch.ones(2, 60), torch.empty(0, 20))
    assert not len(distinct) and not len(sums)
