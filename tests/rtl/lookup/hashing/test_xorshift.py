import os
from pathlib import Path

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator
from hotrow.traces import open_trace
from hotrow_rtl.config import PRESETS
from hotrow_rtl.lookup.hashing.row_location import split_key
from hotrow_rtl.lookup.hashing.xorshift import CHAINS, hash_key, unhash_key
from hotrow_rtl.lookup.hashing.xorshift_hardware import hash_key_hw, unhash_key_hw

# The data lies beside the repository; a checkout elsewhere can say where with HOTROW_SHARED_DATA.
RETAIL = Path(os.environ.get("HOTROW_SHARED_DATA", Path(__file__).parents[5] / "shared" / "data")
              ) / "online_retail" / "trace.tsv.gz"
CHOICES = range(len(CHAINS))
WIDTHS = sorted({config.key_width for config in PRESETS.values()} | {33, 34})


def keys(width, count, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << width, count, dtype=np.uint64)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("width", range(1, 15))
def test_small_words_are_permuted(width, choice):
    """Every word of a small width exactly once: the steps are invertible at any width."""
    words = np.arange(1 << width, dtype=np.uint64)
    assert len(np.unique(hash_key(words, choice, width))) == len(words)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("width", WIDTHS)
def test_unhash_is_the_inverse(width, choice):
    given = keys(width, 10_000, seed=width)
    mixed = hash_key(given, choice, width)
    assert (mixed < 1 << width).all()
    assert (unhash_key(mixed, choice, width) == given).all()
    assert (hash_key(unhash_key(given, choice, width), choice, width) == given).all()
    assert np.mean(mixed == given) < 0.001, "a permutation that moves nothing spreads nothing"


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("width", WIDTHS)
def test_no_key_bits_are_ignored(width, choice):
    """Linear over GF(2), with full rank: the images of the unit vectors are independent."""
    basis = []
    for bit in range(width):
        image = hash_key(1 << bit, choice, width)
        for vector in basis:
            image = min(image, image ^ vector)
        assert image, f"bit {bit} adds nothing to the lower ones"
        basis.append(image)


@pytest.mark.parametrize("choice", CHOICES)
def test_integers_arrays_and_hardware_agree(choice):
    width = 38
    m, key = Module(), Signal(width)
    there, back = Signal(width), Signal(width)
    m.d.comb += [there.eq(hash_key_hw(m, "step", key, choice, width)),
                 back.eq(unhash_key_hw(there, choice, width))]
    given = keys(width, 50, seed=choice)
    expected = hash_key(given, choice, width)

    async def check(ctx):
        for word, want in zip(given.tolist(), expected.tolist(), strict=True):
            ctx.set(key, word)
            assert ctx.get(there) == want == hash_key(word, choice, width)
            assert ctx.get(back) == word
    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()


# Bits of a row number and of a key: 64 tables on wide addresses, 32 on those of 32 bits.
WIDTHS = ((32, 38), (28, 33))


def check_spread(key, width, choice, sets, what):
    """The fullest set, which decides what is evicted, holds about what it would of random rows."""
    hashed = hash_key(key, choice, width) & np.uint64(sets - 1)
    rows = np.bincount(hashed.astype(int), minlength=sets)
    rng = np.random.default_rng(sets)
    random = max(np.bincount(rng.integers(0, sets, len(key))).max() for _ in range(9))
    assert rows.max() <= 1.25 * random, (
        f"{what}: {len(key) / sets:.1f} rows in each of {sets} sets on average, {rows.max()} in "
        f"the fullest; {random} for random rows")


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("sets_log2", [3, 6, 10, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stride", [
    1, 3, 64, 1000, 4096, 65536, *(pytest.param(stride, marks=pytest.mark.long)
                                  for stride in (2, 7, 8, 100, 256, 1024))])
def test_strided_rows_spread_like_random_ones(stride, sets_log2, choice, widths):
    """Eight rows per set on average, from each of several starting rows and tables."""
    sets, (row_width, width) = 1 << sets_log2, widths
    count = min(8 * sets, (1 << row_width) // stride)
    for table, first in ((0, 0), (0, 1), (3, 12345), (25, 1 << 20)):
        rows = (first + stride * np.arange(count, dtype=np.uint64)) % np.uint64(1 << row_width)
        check_spread(np.uint64(table << row_width) | rows, width, choice, sets,
                     f"stride {stride} from row {first} of table {table}")


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("sets_log2", [3, 6, 10])
def test_first_rows_of_many_tables_spread(sets_log2, choice, widths):
    """They are the hot ones in data sets that number rows by frequency."""
    row_width, width = widths
    count = 1 << width - row_width
    tables, rows = np.meshgrid(np.arange(count, dtype=np.uint64), np.arange(
        max(1, (8 << sets_log2) // count), dtype=np.uint64), indexing="ij")
    check_spread((tables << np.uint64(row_width) | rows).ravel(), width, choice, 1 << sets_log2,
                 f"first rows of {count} tables")


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_rows_of_a_real_log_spread_over_the_banks(config):
    """The fullest bank has few more of the distinct rows than the average."""
    if not RETAIL.exists():
        pytest.skip(f"{RETAIL} is absent")
    columns = ("stock", "customer", "country", "hour_of_week")
    ids = open_trace(str(RETAIL), ids=columns).batch(0, 40_960).ids.reshape(-1, len(columns))
    tables = np.arange(len(columns), dtype=np.uint64) << np.uint64(config.row_width)
    bank, _ = split_key(config, np.unique(tables | ids.astype(np.uint64)))
    load = np.bincount(bank.astype(int), minlength=config.banks)
    assert load.max() < 1.1 * load.mean(), load


def test_choices_disagree():
    """Rows that share a set of the first choice are spread by the second."""
    key, sets = keys(38, 1 << 18, seed=1), 1 << 6
    together = key[hash_key(key, 0, 38) & np.uint64(sets - 1) == 5]
    check_spread(together, 38, 1, sets, "rows of one set of the first choice")
