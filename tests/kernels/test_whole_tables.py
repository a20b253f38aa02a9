import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.grouping import Grouper
from hotrow.kernels.ids import flatten_ids
from hotrow.kernels.pooling import BagLayout, pool_bags, sum_gradients
from hotrow.kernels.updating import update_rows
from hotrow.kernels.whole_tables import TableFeatures
from hotrow.torch.optim.rules import SGD, PartialRowwiseAdam, RowwiseAdagrad

COUNTS = torch.tensor([5, 9, 5])  # the first and the last feature look up in one table
FIRST, COLUMNS = torch.tensor([16, 0, 16]), torch.tensor([40, 0, 20])


def features(dtype=torch.float32, mean=None, dim=20):
    rows = torch.randn(25, dim, generator=torch.Generator().manual_seed(1)).to(dtype)
    return TableFeatures(rows, Grouper(25), torch.arange(3), FIRST, COUNTS, COLUMNS // 20 * dim,
                         3 * dim, mean)


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
        distinct, got, finite = of.sum_rows(found, lengths, weights, gradients, sums)
        groups = Grouper(25).group(flat)
        assert torch.equal(distinct.long(), groups.distinct)
        assert same_bits(got, sum_gradients(gradients, groups, layout, weights)[0]) and finite


@pytest.mark.parametrize("rule", [SGD(0.1), RowwiseAdagrad(0.1), PartialRowwiseAdam(0.1)],
                         ids=lambda rule: rule.name)
@pytest.mark.parametrize("dim", [16, 20, 128])
@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_a_step_is_that_of_the_sums(integers, dim, rule, monkeypatch):
    monkeypatch.setattr("hotrow.kernels.whole_tables.threads_for", lambda _: 3)
    rule.steps, lengths, ends = 1, torch.randint(0, 9, (3 * 40,)), []
    at = torch.randint(25, (int(lengths.sum()),), dtype=integers)
    gradients = torch.randn(40, 3 * dim)
    for one_pass in (False, True):
        of, state = features(dim=dim), torch.full((25, 1 + dim), 0.5)
        state = {"row": state[:, 0].clone(), "element": state}.get(rule.state)
        if one_pass:
            of.step(at, lengths, gradients, rule, state, torch.empty(6 * len(at) + 32))
        else:
            distinct, sums, _ = of.sum_rows(at, lengths, None, gradients,
                                            torch.empty(len(at), dim))
            update_rows(of.rows, distinct, sums, rule, state)
        ends.append((of.rows, of.rows[:, 0] if state is None else state.contiguous()))
    assert all(map(same_bits, *ends))


def test_a_step_of_other_lookups_is_refused():
    of, at, lengths = features(), torch.zeros(6, dtype=torch.int32), torch.ones(
        6, dtype=torch.int64)
    before, memory = of.rows.clone(), torch.empty(46)
    for wrong, sizes, room in ((at + 25, lengths, memory), (at - 1, lengths, memory),
                               (at[:5], lengths, memory), (at, 2 * lengths, memory),
                               (at, lengths, memory[1:])):
        with pytest.raises(Error, match="lookups"):
            of.step(wrong, sizes, torch.ones(2, 60), SGD(0.1), None, room)
    with pytest.raises(Error, match="lookups"):
        features(mean=torch.ones(3, dtype=torch.bool)).step(
            at, lengths, torch.ones(2, 60), SGD(0.1), None, memory)
    assert torch.equal(of.rows, before)


@pytest.mark.parametrize("value, additions, finite", [
    (1.0, 40, True), (float("nan"), 1, False), (float("-inf"), 1, False), (-3e38, 1, False),
    (-1e38, 1, True), (1e38, 2, False), (1.0, 1 << 23, False)])
@pytest.mark.parametrize("stride", [60, 71])
def test_a_copy_says_whether_sums_are_finite(value, additions, finite, stride):
    torch.manual_seed(1)
    gradients, memory = torch.full((7, stride), float("nan"))[:, :60], torch.zeros(8, 60)
    gradients[:] = torch.randn(7, 60)
    gradients[5, 11] = value
    assert features().copy(gradients, memory[:7], additions) == finite
    assert same_bits(memory[:7], gradients) and not memory[7].any()


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
    for at, lengths, weights, out in (
            (flat[:11], None, None, (4, 60)), (flat, None, None, (3, 60)),
            (flat, None, None, (4, 59)), (flat, None, torch.ones(11), (4, 60)),
            (flat.short(), None, None, (4, 60)), (flat + 25, None, None, (4, 60)),
            (flat - 25, None, None, (4, 60)), (flat, torch.full((12,), 2), None, (4, 60)),
            (flat, torch.ones(11, dtype=torch.int64), None, (4, 60))):
        with pytest.raises(Error, match="of 3 features"):
            of.pool_rows(at, lengths, weights, torch.empty(out))
    with pytest.raises(Error, match="tables within 25 rows"):
        TableFeatures(of.rows, of.grouper, torch.arange(3), FIRST + 5, COUNTS, COLUMNS, 60)


def test_batches_without_samples_or_lookups():
    of, nothing = features(), torch.zeros(0, dtype=torch.int64)
    flat = of.look_up(torch.zeros(0, 3, dtype=torch.int64), None, None, torch.empty(0, 60))
    assert flat is not None and not len(flat)
    out, lengths = torch.ones(2, 60), torch.zeros(6, dtype=torch.int64)
    flat = of.look_up(nothing, lengths, None, out)
    assert flat is not None and not out.any()
    distinct, sums, _ = of.sum_rows(flat, lengths, None, torch.ones(2, 60), torch.empty(0, 20))
    assert not len(distinct) and not len(sums)
