"""What each compiled pass must return, in plain Python, NumPy and float64.

Each function has the arguments of one pass, and returns a list of arrays. It raises ValueError for
arguments that are wrong by themselves: the pass must refuse these.
"""

import numpy as np
import torch
from hotrow.kernels.grouping import Groups

from tests.support.ids_model import IdsModel


def flatten(given, rows, counts, order):
    """[position of the first wrong id or -1], and the ids where there is none."""
    if given.dim() == 2:
        columns = given.T.tolist()
    else:
        sizes = counts.tolist()
        _need(all(size >= 0 for size in sizes) and sum(sizes) == len(given))
        columns = [part.tolist() for part in given.split(sizes)] if sizes else []
    _need(len(columns) == len(rows))
    flat = [(value, limit) for place, limit in zip(
        range(len(columns)) if order is None else order, rows.tolist(), strict=True)
        for value in columns[place]]
    wrong = next((place for place, (value, limit) in enumerate(flat) if not 0 <= value < limit), -1)
    return [wrong] if wrong >= 0 else [wrong, [value for value, _ in flat]]


def group(given, slots):
    """[number of each lookup, distinct slots, their counts]"""
    values = given.reshape(-1).tolist()
    _need(all(0 <= value < slots for value in values))
    distinct = list(dict.fromkeys(values))
    number = {value: place for place, value in enumerate(distinct)}
    return [[number[value] for value in values], distinct, list(map(values.count, distinct))]


def _bags(layout, lookups):
    """(feature, sample, lookups of the bag, divisor) of each bag."""
    sizes, begin, found = layout.bag_lengths.tolist(), 0, []
    _need(len(sizes) == layout.features * layout.samples and all(
        size >= 0 for size in sizes) and sum(sizes) == lookups)
    _need(layout.mean is None or len(layout.mean) == layout.features)
    for bag, size in enumerate(sizes):
        feature, sample = divmod(bag, layout.samples)
        mean = layout.mean is not None and bool(layout.mean[feature])
        found.append((feature, sample, range(begin, begin + size), max(size, 1) if mean else 1))
        begin += size
    return found


def pool(rows, slots, layout, weights):
    slots, rows = slots.tolist(), rows.double().numpy()
    _need(weights is None or len(weights) == len(slots))
    _need(rows.shape[1] == layout.dim)
    found = np.zeros((layout.samples, layout.features * layout.dim))
    for feature, sample, lookups, divisor in _bags(layout, len(slots)):
        into = found[sample, feature * layout.dim:(feature + 1) * layout.dim]
        for lookup in lookups:
            _need(0 <= slots[lookup] < len(rows))
            into += rows[slots[lookup]] * (1.0 if weights is None else float(weights[lookup]))
        into /= divisor
    return [found]


def sums(gradients, groups, layout, weights):
    """[sums of each distinct slot, whether all are finite]"""
    numbers, counts = groups.numbers.tolist(), groups.counts.tolist()
    seen = list(dict.fromkeys(numbers))
    _need(seen == list(range(len(counts))) and counts == [numbers.count(each) for each in seen])
    _need(weights is None or len(weights) == len(numbers))
    found = np.zeros((len(counts), layout.dim))
    gradients = gradients.double().numpy()
    for feature, sample, lookups, divisor in _bags(layout, len(numbers)):
        given = gradients[sample, feature * layout.dim:(feature + 1) * layout.dim] / divisor
        for lookup in lookups:
            found[numbers[lookup]] += given * (1.0 if weights is None else float(weights[lookup]))
    return [found, bool(np.isfinite(found).all())]


def whole(rows, first, counts, given, layout, weights, gradients):
    """[pooled bags, row of each lookup, distinct rows, sums of each, whether all are finite]"""
    if layout.lengths is None:
        _need(given.dim() == 2)
        given = given.T.reshape(-1)
    _need(len(layout.bag_lengths) == layout.features * layout.samples)
    sizes = layout.bag_lengths.view(layout.features, layout.samples).sum(1)
    _need(given.dim() == 1 and bool((layout.bag_lengths >= 0).all())
          and int(sizes.sum()) == len(given))
    wrong, *flat = flatten(given, counts, sizes, None)
    _need(wrong < 0)
    flat = torch.tensor(flat[0], dtype=torch.int64) + first.repeat_interleave(sizes)
    numbers, distinct, seen = group(flat, len(rows))
    groups = Groups(*map(torch.tensor, (numbers, distinct, seen)))
    return [*pool(rows, flat, layout, weights), flat, distinct,
            *sums(gradients, groups, layout, weights)]


def update(rows, slots, gradients, rule, state):
    slots = _distinct(slots, len(rows))
    _need(len(gradients) == len(slots) and (state is not None or rule.name == "sgd"))
    after, gradients = rows.double().numpy(), gradients.double().numpy()
    states = None if state is None else state.double().numpy()
    for slot, gradient in zip(slots, gradients, strict=True):
        if states is None:
            after[slot] -= rule.lr * gradient
            continue
        if rule.name == "adam":
            first, second = np.split(states[slot], 2)  # views
            kept, roots = rule.betas, 1 - np.power(rule.betas, rule.steps)
            first[:] = kept[0] * first + (1 - kept[0]) * gradient
            second[:] = kept[1] * second + (1 - kept[1]) * gradient ** 2
            after[slot] -= rule.lr / roots[0] * first / (np.sqrt(second / roots[1]) + rule.eps)
            continue
        states[slot] += (gradient ** 2).mean() if rule.name == "rowwise_adagrad" else gradient ** 2
        after[slot] -= rule.lr * gradient / (np.sqrt(states[slot]) + rule.eps)
    return [after] if states is None else [after, states]


def finite(rows):
    wrong = ~np.isfinite(rows.numpy()).all(1)
    return [int(wrong.argmax()) if wrong.any() else -1]


def copy(target, source, to, start):
    found, of = target.clone(), range(len(source)) if start is None else start.tolist()
    at = range(len(target)) if to is None else _distinct(to, len(target))
    _need(len(at) == len(of) and all(0 <= row < len(source) for row in of)
          and target.shape[1] == source.shape[1])
    for row, other in zip(at, of, strict=True):
        found[row] = source[other]
    return [found]


def assign(slots, places, flat, most):
    """[row that each slot holds, whether it is dirty]"""
    held, dirty = [-1] * slots, [True] * slots
    at, values = _distinct(places, slots), flat.tolist()
    _need(len(at) == len(values) and all(0 <= value <= most for value in values))
    for place, value in zip(at, values, strict=True):
        held[place], dirty[place] = value, False
    return [held, dirty]


def mark(slots, places):
    """[places that are no slots, which slots are dirty]"""
    places = places.tolist()
    _need(all(place >= 0 for place in places))
    return [[place for place in places if place >= slots],
            [slot in places for slot in range(slots)]]


def place(slots, area, directory, per_choice, part, flag):
    found = []
    _need(all(0 <= slot < 1 << 32 for slot in slots.tolist()))
    for slot in slots.tolist():
        if slot & flag or slot >= directory:
            beside = slot & ~flag if slot & flag else slot - directory
            _need(beside < len(area) and 0 <= int(area[beside]) < 1 << 31)
            found.append(int(area[beside]))
        else:
            _need(slot % per_choice < part)
            found.append(slot // per_choice * part + slot % per_choice)
    return [found]


def select(keys, slots, group_of, first, group, directory):
    """[flat rows, their slots, rows with a slot by table, rows without]"""
    _need(len(keys) == len(slots) and len(group_of) == len(first))
    flat, chosen, having, lacking = [], [], [0] * len(first), [0] * len(first)
    for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
        table, row = key >> 32, key & (1 << 32) - 1
        _need(table < len(first))
        if group_of[table] != group:
            continue
        flat.append(int(first[table]) + row)
        chosen.append(slot)
        (having if slot < directory else lacking)[table] += 1
    return [flat, chosen, having, lacking]


def locate(flat, first, number):
    """[row and table of each]"""
    _need(len(first) and first[0] == 0)
    found = []
    for value in flat.tolist():
        table = max((place for place, begin in enumerate(first.tolist()) if begin <= value),
                    default=-1)
        _need(table >= 0 and value - first[table] < 1 << 32)
        found.append([value - int(first[table]), number + table])
    return [np.array(found).reshape(-1, 2)]


def number(keys):
    """[where each distinct key is first, number of each key]"""
    keys = keys.tolist()
    distinct = list(dict.fromkeys(keys))
    return [[keys.index(each) for each in distinct], [distinct.index(each) for each in keys]]


def map_ids(rows, admission, expiry, batches):
    """[rows, rows given, rows freed and rows of the same ids backwards, for each batch; then the
    rows of the first batch, and all that have an id]"""
    ids, found = IdsModel(rows, admission, expiry, rows), []
    batches = [[value & (1 << 64) - 1 for value in batch.tolist()] for batch in batches]
    for place, batch in enumerate(batches):
        own, admitted, expired = ids.plan(batch)
        found += [own, *([row for _, row in pairs] for pairs in (admitted, expired)),
                  [ids.row_of.get(each, 0) for each in batch[::-1]]]
        ids.completed = max(ids.completed, place - 1, 0)
    return [*found, [ids.row_of.get(each, 0) for each in batches[0]], sorted(ids.row_of.values())]


def same(found, expected):
    """Whether results are those expected: floats as near as sums in fp32, then rounded, are."""
    found, expected = (torch.as_tensor(np.asarray(each) if not torch.is_tensor(each) else each)
                       for each in (found, expected))
    if found.numel() == expected.numel() == 0:
        return True
    if found.shape != expected.shape:
        return False
    if not found.is_floating_point():
        return torch.equal(found.long(), expected.long())
    bound = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}.get(found.dtype, 1e-4)
    return torch.allclose(found.double(), expected.double(), bound, bound, equal_nan=True)


def _distinct(slots, limit):
    found = slots.tolist()
    _need(all(0 <= slot < limit for slot in found) and len(set(found)) == len(found))
    return found


def _need(condition):
    if not condition:
        raise ValueError
