"""Tables of any id, and of n-grams: equal bits with every number of ranks, also after a resume."""

import pytest
import torch
import torch.distributed as dist

from tests.torch.any_id_schedules import SCHEDULED, SEEDS, scheduled
from tests.torch.any_id_training import BATCHES, CASES, SEED, run
from tests.torch.rank_ids import SHORT, misled


@pytest.fixture(scope="module")
def runs(launched):
    """Outcomes by (case, ranks)."""
    return torch.load(launched[1] / "found.pt")["ids"]


@pytest.fixture(scope="module")
def alone():
    """The outcome of a case by one process, as a call."""
    found = {}
    return lambda case: found.setdefault(case, run(**CASES[case]))


@pytest.fixture
def one_rank():
    """A process group with this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def differing(found, expected):
    return [what for what in found if what != "results" and found[what] != expected[what]]


def check(case, found, one):
    """Outcomes of the ranks against that of one process."""
    for rank, each in enumerate(found):
        assert not differing(each, one), (case, len(found), rank, f"seed {SEED}")
    if "n-grams" in case:  # whose rows are by feature
        return
    for number, result in enumerate(one["results"]):
        assert torch.equal(torch.cat([each["results"][number] for each in found]), result), (
            case, len(found), number, f"seed {SEED}")


def test_bits_of_one_process(runs, alone):
    compared = [name for name, *_ in runs if name in CASES]
    assert set(compared) in ({*SHORT}, {*CASES})
    for (name, *_), found in runs.items():
        if name in CASES:
            check(name, found, alone(name))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bits_of_a_single_rank(one_rank, alone, case):
    check(case, [run(one_rank, **CASES[case])], alone(case))


@pytest.mark.slow
def test_cases_train_what_they_are_for(alone):
    """Rows change hands, modes agree, and what is compared differs where a batch does."""
    one = alone("resident")
    assert one[f"export of user since {BATCHES // 2}"][-1], "ids were removed"
    modes = [alone(case)["tables"] for case in CASES if "n-grams" in case]
    assert len(modes) == 3 and len(set(modes)) == 1
    other = run(**CASES["resident"], seed=4)
    assert set(differing(other, one)) == {
        what for what in one if what != "results" and not what.endswith(f"since {BATCHES}")}


def test_what_fails_at_one_rank_is_an_error_at_all(runs, alone):
    """And the training that goes on has the bits of one in which nothing failed."""
    for (name, *_), found in runs.items():
        if name == "misled":
            assert not differing(found[0], alone("scratchpipe"))


@pytest.mark.slow
def test_what_fails_at_a_single_rank(one_rank, alone):
    assert not differing(misled(one_rank), alone("scratchpipe"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long)
                                        for seed in SEEDS[2:])])
def test_any_order_of_calls_has_the_same_bits_in_modes(seed):
    expected = scheduled(seed, bare=True, mode="resident", optimizer="adagrad")
    for options in ({"mode": "resident", "optimizer": "adagrad"}, SCHEDULED):
        assert not differing(scheduled(seed, **options), expected), f"seed {seed}"


def test_any_order_of_calls_has_the_same_bits_on_ranks(runs):
    seeds = sorted({key[2] for key in runs if key[0] == "scheduled"})
    assert seeds in ([0], [*SEEDS])
    for seed in seeds:
        expected = scheduled(seed, bare=True, mode="resident", optimizer="adagrad")
        for each in [each for key, (each, *_) in runs.items() if key[2:] == (seed,)]:
            assert not differing(each, expected), f"seed {seed}"


def test_other_numbers_of_ranks_resume_exactly(runs, alone):
    assert not differing(runs["resumed", 0][0], alone("scratchpipe"))
