"""Random calls of every compiled pass, right and wrong: results equal an oracle, or are refused.

`python -m tests.support.kernel_fuzz` runs in a process with a sanitizer; see `test_sanitizers`.
Arguments have sizes of 0, every integer dtype, numbers out of range, lengths that do not add up,
repeated rows, strides, and several threads.
"""

import argparse
from collections import Counter

import numpy as np
import torch
from hotrow.contract.errors import Error
from hotrow.ids.map import Expiry, IdMap, LeastCount
from hotrow.kernels import copying, grouping, ids, listing, pooling, updating, whole_tables
from hotrow.operands.integers import numbered
from hotrow.torch import SGD, Adagrad, Adam, RowwiseAdagrad

from tests.support import kernel_oracles as oracles

INTEGERS = (torch.int32, torch.int64) * 6 + (
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.uint32, torch.uint64)
ROWS = (torch.float32, torch.float16, torch.bfloat16)
EXTREME = (-1, -(1 << 31), 1 << 31, (1 << 32) - 1, -(1 << 62), (1 << 62) + 3, (1 << 63) - 1)
RULES = (SGD(0.1), RowwiseAdagrad(0.1), Adagrad(0.1), Adam(0.1))


class Draw:
    """Arguments of one case.

    Attributes
    ----------
    wrong : bool
        Whether arguments may be wrong, or of dtypes that few passes take.
    """

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self.wrong = self._wrong = self.chance(0.4)

    def chance(self, share):
        return self._random.random() < share

    def size(self, most=40):
        return int(self._random.integers(0, most)) if self.chance(0.9) else 0

    def choice(self, among):
        return among[self._random.integers(len(among))]

    def values(self, count, low, high):
        """int64[count] from low to high - 1; in a wrong case, now and then others."""
        found = self._random.integers(low, max(high, low + 1), count)
        if self._wrong and count and self.chance(0.3):
            found[self._random.integers(count)] = self.choice((*EXTREME, high, low - 1))
        return found

    def distinct(self, count, among):
        """int64[<= count] distinct numbers below `among`; in a wrong case, now and then others."""
        found = self._random.permutation(among)[:count].astype(np.int64)
        if self._wrong and len(found) > 1 and self.chance(0.4):
            found[self._random.integers(len(found))] = self.choice((*EXTREME, found[0], among))
        return found

    def tensor(self, values, dtype=None):
        """Integers as a tensor of one of `INTEGERS`, at a stride now and then."""
        dtype = dtype or self.choice(INTEGERS)
        self.wrong |= dtype not in INTEGERS[:2]
        found = torch.from_numpy(np.asarray(values, np.int64)).to(dtype)
        if self._wrong and self.chance(0.1):
            found = found[:len(found) // 2]
        return torch.stack((found, found), 1)[:, 0] if self.chance(0.2) else found

    def rows(self, count, dim, dtype=torch.float32):
        """Rows [count, dim] of many magnitudes, at a stride now and then."""
        wide = dim + (self.size(8) if self.chance(0.5) else 0)
        found = torch.from_numpy(self._random.standard_normal((count, wide))).to(dtype)
        if self.chance(0.05) and found.numel():
            found[0, 0] = float("inf")
        return found[:, :dim]

    def off(self, number):
        """A number, or in a wrong case now and then one beside it."""
        beside = number + int(self._random.integers(-1, 2))
        return max(0, beside) if self._wrong and self.chance(0.1) else number


def flatten(draw):
    features, samples = draw.size(5), draw.size(9)
    rows = draw.values(features, 1, 50)
    dtype = draw.choice((torch.int32, torch.int64))
    if draw.chance(0.5):
        counts, given = None, draw.tensor(draw.values(features * samples, 0, 4)).reshape(-1)
        samples = len(given) // features if features else 3
        given = given[:samples * features].reshape(samples, features)
    else:
        counts = torch.from_numpy(draw.values(features, 0, 6))
        given = draw.tensor(draw.values(draw.off(max(0, min(60, int(counts.clamp(0, 9).sum())))),
                                        0, 4))
    limits = torch.from_numpy(rows)
    order = np.argsort(draw.values(features, 0, 99)).tolist() if draw.chance(0.3) else None

    def call():
        flat, wrong = ids.flatten_ids(given, limits, counts, dtype, order)
        return [wrong] if wrong >= 0 else [wrong, flat]
    return call, lambda: oracles.flatten(given, limits, counts, order)


def group(draw):
    slots, given = 1 + draw.size(), draw.tensor(draw.values(draw.size(), 0, 20))
    if draw.chance(0.3):
        given = given[:len(given) // 2 * 2].view(2, -1) if given.is_contiguous() else given[:, None]

    def call():
        found = grouping.Grouper(slots).group(given)
        return [found.numbers, found.distinct.long(), found.counts]
    return call, lambda: oracles.group(given, slots)


def layout_of(draw, dim):
    """(layout, lookups, weights)"""
    features, samples = draw.size(4), draw.size(8)
    lengths = draw.values(features * samples, 0, 4) if draw.chance(0.6) else None
    lookups = features * samples if lengths is None else int(np.clip(lengths, 0, 9).sum())
    sizes = None if lengths is None else draw.tensor(lengths)
    draw.wrong |= sizes is not None and not sizes.is_contiguous()
    mean = torch.from_numpy(draw.values(features, 0, 2) > 0) if draw.chance(0.3) else None
    if mean is not None and draw.chance(0.1):
        mean = mean[:-1]
    weights = torch.randn(draw.off(lookups)) if draw.chance(0.3) and lookups else None
    return pooling.BagLayout(features, samples, dim, sizes, mean), lookups, weights


def pool(draw):
    dim = draw.choice((0, 1, 4, 16, 20, 64))
    layout, lookups, weights = layout_of(draw, draw.off(dim) if dim else dim)
    rows = draw.rows(draw.size(), dim, draw.choice(ROWS))
    slots = draw.tensor(draw.values(draw.off(lookups), 0, len(rows)))
    return (lambda: [pooling.pool_bags(rows, slots, layout, weights)],
            lambda: oracles.pool(rows, slots, layout, weights))


def sums(draw):
    dim = draw.choice((1, 4, 16, 20, 64))
    layout, lookups, weights = layout_of(draw, dim)
    slots = np.random.default_rng(lookups).integers(0, 12, lookups)
    groups = grouping.group_sorted(torch.from_numpy(slots))
    numbers = draw.tensor(draw.values(len(slots), 0, 3), torch.int32) if (
        draw.chance(0.1)) else groups.numbers
    groups = grouping.Groups(numbers, groups.distinct, groups.counts)
    gradients = draw.rows(layout.samples, layout.row_width)
    if draw.chance(0.3) and layout.features:
        blocks = list(gradients.split(dim, 1))[:draw.off(layout.features)]
        return (lambda: [pooling.sum_blocks(blocks, groups, layout)],
                lambda: oracles.sums(torch.cat(blocks, 1) if blocks else gradients, groups, layout,
                                     None)[:1])
    return (lambda: [*pooling.sum_gradients(gradients, groups, layout, weights)],
            lambda: oracles.sums(gradients, groups, layout, weights))


def whole(draw):
    """Ids of several tables in one array to bags, and gradients of bags to sums of its rows."""
    dim, grid = draw.choice((1, 4, 16, 20)), draw.chance(0.5)
    layout, lookups, weights = layout_of(draw, dim)
    if grid:
        layout = pooling.BagLayout(layout.features, layout.samples, dim, None, layout.mean)
        lookups, weights = layout.features * layout.samples, None
    draw.wrong |= layout.lengths is not None and layout.lengths.dtype != torch.int64
    counts = 1 + np.abs(draw.values(layout.features, 0, 9)) % 9
    rows = draw.rows(int(counts.sum()) + draw.size(4), dim, draw.choice(ROWS))
    counts, first = torch.from_numpy(counts), torch.from_numpy(counts.cumsum() - counts)
    given = draw.tensor(draw.values(draw.off(lookups), 0, 2))
    if grid and len(given) == lookups:
        given = given.reshape(layout.features, layout.samples).T if draw.chance(0.5) else (
            given.reshape(layout.samples, layout.features))
    gradients = draw.rows(layout.samples, layout.row_width)
    if draw.chance(0.2):
        gradients = gradients[:1].expand(layout.samples, -1)

    def features(mean):
        return whole_tables.TableFeatures(
            rows, grouping.Grouper(len(rows)), torch.arange(layout.features), first, counts,
            layout.first_columns, layout.row_width, mean)

    def call():
        of = features(layout.mean)
        out = torch.empty(layout.samples, layout.row_width)
        flat = of.look_up(given, layout.lengths, weights, out)
        if flat is None:
            raise Error("refused")
        again = torch.empty_like(out)
        of.pool_rows(flat, layout.lengths, weights, again)
        steps_as_by_sums(features(None), flat, layout.lengths, gradients)
        return [out, again, flat.long(), *of.sum_rows(
            flat, layout.lengths, weights, gradients, torch.empty(len(flat), dim))]

    def expected():
        out, *others = oracles.whole(rows, first, counts, given, layout, weights, gradients)
        return [out, out, *others]

    return call, expected


def steps_as_by_sums(of, flat, lengths, gradients):
    """A step by lists of gradients has the bits of one by their sums; the rows stay."""
    before, rule = of.rows.clone(), SGD(0.5)
    distinct, sums, _ = of.sum_rows(flat, lengths, None, gradients,
                                    torch.empty(len(flat), of.dim))
    of.step(flat, lengths, gradients, rule, None, torch.empty(6 * len(flat) + 32))
    stepped = of.rows.clone()
    of.rows.copy_(before)
    updating.update_rows(of.rows, distinct, sums, rule, distinct=True)
    assert stepped.double().numpy().tobytes() == of.rows.double().numpy().tobytes()
    of.rows.copy_(before)


def update(draw):
    dim = draw.choice((1, 4, 16, 20, 64))
    rows, rule = draw.rows(draw.size(), dim, draw.choice(ROWS)).clone(), draw.choice(RULES)
    slots = draw.tensor(draw.distinct(draw.size(), len(rows)))
    shape, rule.steps = {"element": (len(rows), rule.columns(dim)), "row": (len(rows),)}.get(
        rule.state), 2
    state = None if shape is None or draw.chance(0.03) else torch.ones(shape)
    gradients = torch.randn(draw.off(len(slots)) if len(slots) else 0, dim)

    def call():
        into, states = rows.clone(), None if state is None else state.clone()
        updating.update_rows(into, slots, gradients, rule, states)
        return [into] if states is None else [into, states]
    return call, lambda: oracles.update(rows, slots, gradients, rule, state)


def finite(draw):
    rows = draw.rows(draw.size(), draw.size())
    return lambda: [updating.first_not_finite(rows)], lambda: oracles.finite(rows)


def copy(draw):
    dim, dtype = draw.size(70), draw.choice((*ROWS, torch.bool))
    source = draw.rows(draw.size(), dim, dtype)
    target = torch.zeros(draw.size(), draw.off(dim) if dim else dim, dtype=dtype)
    to = draw.tensor(draw.distinct(draw.size(), len(target))) if draw.chance(0.8) else None
    count = len(target) if to is None else len(to)
    start = draw.tensor(draw.values(draw.off(count) if count else 0, 0, len(source)))

    def call():
        into = target.clone()
        copying.copy_rows(into, source, to, start)
        return [into]
    return call, lambda: oracles.copy(target, source, to, start)


def assign(draw):
    slots, wide = draw.size(), draw.choice((torch.int32, torch.int64))
    places = draw.tensor(draw.distinct(draw.size(), slots))
    flat = torch.from_numpy(draw.values(draw.off(len(places)) if len(places) else 0, 0, 99))

    def call():
        held, dirty = torch.full((slots,), -1, dtype=wide), torch.ones(slots, dtype=torch.bool)
        copying.assign_slots(held, dirty, places, flat)
        return [held, dirty]
    return call, lambda: oracles.assign(slots, places, flat, torch.iinfo(wide).max)


def mark(draw):
    places = draw.tensor(draw.values(draw.size(), 0, 50))
    slots = draw.size()

    def call():
        dirty = torch.zeros(slots, dtype=torch.bool)
        return [copying.mark_dirty(dirty, places), dirty]
    return call, lambda: oracles.mark(slots, places)


def place(draw):
    slots = draw.tensor(draw.values(draw.size(), 0, 70)).numpy()
    area = torch.from_numpy(draw.values(draw.size(9), 64, 99))
    layout = {"directory": 64, "per_choice": 32, "part": draw.choice((20, 32)),
              "flag": draw.choice((0, 1 << 31))}
    return (lambda: [copying.place_slots(slots, area, **layout)],
            lambda: oracles.place(slots, area, **layout))


def select(draw):
    tables = 1 + draw.size(5)
    keys = draw.values(draw.size(), 0, tables).astype(np.uint64) << np.uint64(32) | np.uint64(3)
    slots = draw.tensor(draw.values(draw.off(len(keys)) if len(keys) else 0, 0, 70)).numpy()
    slots = slots.astype(np.uint32) if draw.chance(0.9) else slots
    draw.wrong |= slots.dtype != np.uint32
    group_of = (np.arange(tables) % 2).astype(np.int32)
    first = np.arange(draw.off(tables)) * 10

    def call():
        found = listing.select_rows(keys, slots, group_of, first, 0, 64)
        return [found.flat, found.slots.astype(np.int64), found.with_slot, found.without_slot]
    return call, lambda: oracles.select(keys, slots, group_of, first, 0, 64)


def locate(draw):
    flat = torch.from_numpy(draw.values(draw.size(), 0, 200))
    first = np.sort(draw.values(draw.size(6), 0, 200))
    if len(first) and draw.chance(0.8):
        first[0] = 0
        first.sort()
    return (lambda: [listing.locate_rows(flat, first, 3).astype(np.int64)],
            lambda: oracles.locate(flat, first, 3))


def number(draw):
    keys = draw.values(draw.size(), 0, 9).astype(np.uint64)
    return lambda: [*numbered(keys)], lambda: oracles.number(keys)


def map_ids(draw):
    """A map of ids."""
    rows, among = 2 + draw.size(), draw.choice((5, 60))
    admission = draw.choice((None, LeastCount(2, width=64)))
    expiry = draw.choice((None, Expiry(age=2), Expiry(below=2, every=2)))
    batches = [draw.values(draw.size(), 0, among) for _ in range(1 + draw.size(6))]

    def call():
        ids = IdMap(rows, admission, expiry, seed=rows, threads=torch.get_num_threads())
        found = []
        for number, batch in enumerate(batches):
            made = ids.plan(batch)
            found += [made.rows, made.admitted_rows, made.expired_rows, ids.find(batch[::-1])]
            ids.done(max(0, number - 1))
        ids.grow()
        return [*found, ids.find(batches[0]), IdMap.from_state(ids.state()).items()[1]]
    return call, lambda: oracles.map_ids(rows, admission, expiry, batches)


PASSES = (flatten, group, pool, sums, whole, update, finite, copy, assign, mark, place, select,
          locate, number, map_ids)


def main():
    """Run the cases; exit 1 with the first seed that ends otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    np.seterr(invalid="ignore")  # of oracles, for rows that are not finite
    torch.set_num_threads(options.threads)
    if options.threads > 1:  # however small a batch is
        for module in (pooling, updating, copying, whole_tables):
            module.threads_for = lambda _: options.threads
    refused = Counter()
    for seed in range(options.seed, options.seed + options.cases):
        made = PASSES[seed % len(PASSES)]
        torch.manual_seed(seed)
        draw = Draw(seed)
        call, oracle = made(draw)
        try:
            expected = oracle()
        except ValueError:
            expected = None
        try:
            found = call()
        except Error as error:
            refused[made.__name__] += 1
            if expected is not None and not draw.wrong:
                raise SystemExit(f"seed {seed}, {made.__name__}: refused, {error}") from error
            continue
        except Exception as error:
            raise SystemExit(f"seed {seed}, {made.__name__}: {error!r}") from error
        if expected is None or not (len(found) == len(expected) and all(
                map(oracles.same, found, expected))):
            raise SystemExit(f"seed {seed}, {made.__name__}: expected {expected}, got {found}")
    print(f"{options.cases} cases, {sum(refused.values())} refused: {dict(refused)}")


if __name__ == "__main__":
    main()
