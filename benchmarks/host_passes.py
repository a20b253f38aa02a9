"""The compiled passes over a batch, each compared with PyTorch's functions for the same result."""

import torch
from hotrow.kernels.copying import copy_rows
from hotrow.kernels.grouping import Grouper
from hotrow.kernels.ids import flatten_ids
from hotrow.kernels.pooling import BagLayout, pool_bags, sum_gradients
from hotrow.kernels.updating import first_not_finite, update_rows
from hotrow.torch.optim.arithmetic import pool, sum_duplicates

ROUNDS = 5


def passes(ids, cardinalities, dim, rule, clock):
    """Least time of each pass over a batch: list of {pass, ms, torch_ms}.

    Parameters
    ----------
    ids : int64[samples, tables]
    cardinalities : sequence of int
        Rows of each table.
    dim : int
    rule : SGD, RowwiseAdagrad or Adagrad
    clock : callable
        Returns seconds.
    """
    samples, tables = ids.shape
    limits = torch.tensor(cardinalities)
    first = limits.cumsum(0) - limits
    rows = torch.randn(sum(cardinalities), dim)
    rule.steps, state = max(1, rule.steps), None
    if rule.state:
        state = torch.ones(len(rows), *filter(None, (rule.columns(dim),)))
    flat = (ids + first).T.reshape(-1)
    layout, grouper = BagLayout(tables, samples, dim), Grouper(len(rows))
    gradients = torch.randn(samples, tables * dim)
    by_bag = gradients.view(samples, tables, dim).transpose(0, 1).reshape(-1, dim)
    one, bags = torch.ones(len(flat), dtype=torch.int64), torch.arange(len(flat))
    groups = grouper.group(flat)
    sums, _ = sum_gradients(gradients, groups, layout)
    distinct, brought = groups.distinct, rows[groups.distinct]

    def torch_check():
        wrong = (ids < 0) | (ids >= limits)
        return ids.T.reshape(-1), bool(wrong.any())

    def torch_update():
        after, after_state = rule.update(rows[distinct], sums,
                                         None if state is None else state[distinct])
        rows[distinct] = after
        if state is not None:
            state[distinct] = after_state

    works = {
        "check and flatten": (lambda: flatten_ids(ids, limits), torch_check),
        "pool": (lambda: pool_bags(rows, flat, layout), lambda: pool(rows, flat, one)),
        "group and sum gradients": (
            lambda: sum_gradients(gradients, grouper.group(flat), layout),
            lambda: sum_duplicates(flat, bags, by_bag)),
        "check finite": (lambda: first_not_finite(sums),
                         lambda: bool(torch.isfinite(sums).all())),
        "update": (lambda: update_rows(rows, distinct, sums, rule, state), torch_update),
        "copy from slots": (lambda: copy_rows(brought, rows, start=distinct),
                            lambda: torch.index_select(rows, 0, distinct)),
        "copy to slots": (lambda: copy_rows(rows, brought, to=distinct),
                          lambda: rows.index_copy_(0, distinct, brought)),
    }
    return [{"pass": name, "ms": 1e3 * _least(ours, clock), "torch_ms": 1e3 * _least(others, clock)}
            for name, (ours, others) in works.items()]


def _least(work, clock):
    times = []
    for _ in range(ROUNDS):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)
