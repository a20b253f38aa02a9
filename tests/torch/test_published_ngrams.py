"""`NgramIds.preset` against the published layouts: their formulas, and rows that others print.

Rows and totals are those of the checkpoints, as public descriptions of them state.
"""

import numpy as np
import pytest
import torch
from hotrow import Error
from hotrow.torch import HotEmbeddingBagCollection, NgramIds, Options, TableConfig

EOS = 248044
ROWS = {  # of "qwen", by the last token and those before it
    (10, EOS, EOS): [
        6826666, 27775725, 51991156, 74082527, 82622748, 119600976, 135816374, 152166807,
        174244281, 190221032, 211723794, 232787707, 243645790, 275729718, 280030017, 303574322],
    (20, 10, EOS): [
        4810669, 34962340, 40038404, 63145186, 97237011, 115267695, 122313706, 158375242,
        171840321, 191688874, 219996824, 228806855, 252506948, 276566639, 284666446, 305764640],
    (30, 20, 10): [
        9878115, 26555603, 54895210, 62571545, 80580723, 119917398, 128922427, 147596134,
        168936175, 195223391, 219226064, 233524685, 246670267, 279816194, 297531600, 306108296]}


def primes(base, count):
    """The first primes from `base` on, by a sieve."""
    span = np.arange(base, base + 40 * count + 200)
    for divisor in range(2, int(span[-1] ** 0.5) + 1):
        span = span[(span % divisor != 0) | (span == divisor)]
    return span[:count]


def before(tokens, back, pad, resets):
    """The token so many places before each."""
    places = np.arange(len(tokens))
    ends = np.where(tokens == pad, places, -1) if resets else np.full(len(tokens), -1)
    start = np.r_[0, np.maximum.accumulate(ends)[:-1] + 1]  # of the document of each
    return np.where(places - start >= back, tokens[np.maximum(places - back, 0)], pad)


def rows(tokens, orders, multipliers, sizes, pad, resets):
    """Rows by the formula: uint64[tokens, 8 heads of each order]."""
    found = []
    for at, order in enumerate(orders):
        mixed = np.zeros(len(tokens), np.uint64)
        for back in range(order):
            mixed ^= before(tokens, back, pad, resets).astype(np.uint64) * np.uint64(
                multipliers[back])
        found += [mixed % np.uint64(sizes[head]) + np.uint64(sum(sizes[:head]))
                  for head in range(8 * at, 8 * at + 8)]
    return np.stack(found, 1)


def split_mix(word):
    mask = (1 << 64) - 1
    word = (word + 0x9E3779B97F4A7C15) & mask
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = ((word ^ word >> shift) * factor) & mask
    return word ^ word >> 31


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name, layer", [("qwen", 0), ("engram", 0), ("engram", 1)])
def test_the_published_formula(name, layer, count):
    random = np.random.default_rng(count)
    if name == "qwen":
        made, orders, pad, vocabulary = NgramIds.preset(name), (2, 3), EOS, 248320
        half = (2**63 - 1) // vocabulary // 2
        multipliers = [2 * (split_mix(1234 + 0x9E3779B97F4A7C15 * (at + 1)) % half) + 1
                       for at in range(3)]
        sizes = primes(20_000_000, 16)
        assert multipliers == [23703573157769, 20109073645365, 8052911324071]
    else:
        made, orders, pad, vocabulary = NgramIds.preset(name, layer, 2), (2, 3, 4), 2, 99092
        multipliers = 1 + 2 * np.random.default_rng(10007 * (1, 14)[layer]).integers(
            low=0, high=(2**63 - 1) // vocabulary // 2, size=4, dtype=np.int64)
        sizes = primes(16_000_000, 48)[24 * layer:24 * layer + 24]
    tokens = random.integers(0, vocabulary, count)
    tokens[random.random(count) < 0.05] = pad
    expected = rows(tokens, orders, list(multipliers), sizes.tolist(), pad, name == "qwen")
    found = made(torch.from_numpy(tokens)[None])[0].numpy()
    assert (found == expected.astype(np.int64)).all() and found.max() < made.rows
    assert made.tables == tuple(sizes) and made.multipliers.tolist() == list(multipliers)


def test_rows_of_the_checkpoints():
    made = NgramIds.preset("qwen")
    assert made.rows == 128 * 2_500_012
    assert made(torch.tensor([[10, 20, 30]]))[0].tolist() == list(ROWS.values())
    ended = made(torch.tensor([[5, 6, EOS, 10, 20, 30]]))[0]
    assert ended[3:].tolist() == list(ROWS.values()), "nothing of the document before"
    assert [NgramIds.preset("engram", layer, 2).rows for layer in (0, 1)] == [
        384_006_168, 384_016_682]


def test_a_small_table_of_the_layout_trains(tmp_path):
    made = NgramIds.preset("qwen", rows=50)
    table = TableConfig("ngrams", made.rows, 4, "none", path=tmp_path / "t")
    ids = made(torch.tensor([[EOS, 7, 8, 9]]))
    assert made.rows % 128 == 0 and len(made.tables) == 16 and ids.max() < made.rows
    with HotEmbeddingBagCollection([table], mode="resident", options=Options(seed=0)) as embeddings:
        embeddings(ids.reshape(-1, 1)).square().sum().backward()
        embeddings.optimizer.step()


def test_states_of_other_layouts_are_refused():
    made = NgramIds.preset("engram", 1, 2, rows=50)
    same, other = NgramIds.preset("engram", 1, 2, rows=50), NgramIds((2, 3, 4), 8, 50, 0, 2, 99092)
    same.load_state_dict(made.state_dict())
    with pytest.raises(Error, match="this NgramIds has"):
        other.load_state_dict(made.state_dict())


@pytest.mark.parametrize("arguments, words", [
    (("other",), "one of qwen, engram, got 'other'"),
    (("qwen", 1), "has tables at 1 layers: expected layer 0 to 0, got 1"),
    (("engram", 2, 2), "expected layer 0 to 1"), (("engram", 0), "needs pad"),
    (("qwen", 0, 248320), "pad is a token of 0 to 248319"), (("qwen", 0.5), "layer")])
def test_what_is_no_layout_is_refused(arguments, words):
    with pytest.raises(Error, match=words):
        NgramIds.preset(*arguments)
