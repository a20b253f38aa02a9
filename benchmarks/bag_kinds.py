"""The arithmetic that `hotrow bench` measures, on the card and on the CPU.

Elements are small integers, so that sums are exact in any order.
"""

from ctypes import c_int64, c_void_p
from pathlib import Path

import numpy as np
from hotrow.kernels import compiler

LARGEST_ELEMENT = 256
LR = 0.5


def bare_copy(to, from_, rows, listed):
    """A loop of memcpy as an implementation on the CPU: ("memcpy", function), if it compiles.

    Parameters
    ----------
    to, from_ : float32[any, row_bytes / 4]
    rows : int64[count]
        Rows of one of the arrays; those of the other are consecutive.
    listed : str
        "to" or "from".
    """
    command = compiler.find_compiler()
    if not command:
        return ()
    copy = compiler.load("bare_copy", [Path(__file__).with_name("bare_copy.cpp")],
                         command=command).copy_listed
    copy.argtypes = [c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_int64]
    lists = [rows.ctypes.data if listed == side else None for side in ("to", "from")]
    return (("memcpy", lambda: copy(to.ctypes.data, lists[0], from_.ctypes.data, lists[1],
                                    len(rows), to.strides[0])),)


class Pool:
    """Bags of random rows of a table, summed to consecutive rows.

    Attributes
    ----------
    channel, distinct
        The same as in `move_kinds.Gather`.
    arithmetic : bool
        Rows come in bags, and the card computes.
    """

    channel, distinct, arithmetic = "read", False, True

    def draw(self, rng, work):
        """Row of each lookup, int64[count]."""
        return rng.integers(0, work.table_rows, work.count)

    def fill(self, array, first):
        """Fill an array of rows; the first has number `first`."""
        numbers = np.arange(first, first + len(array))[:, None] * 7 + np.arange(array.shape[1])
        array[:] = numbers % LARGEST_ELEMENT

    def dense_rows(self, work):
        """Rows of the dense array."""
        return work.count // work.bag

    def traffic(self, work):
        """Rows read, and rows written."""
        return work.count, work.count // work.bag

    def submit(self, device, table, rows, dense, bag):
        """Start the command: a Future."""
        lengths = np.full(len(rows) // bag, bag)
        return device.pool_async((table, rows), lengths, out=dense)

    def expected(self, work):
        """Expected value of `result`."""
        return np.add.reduceat(work.table[work.rows], np.arange(0, work.count, work.bag))

    def result(self, work):
        return work.dense

    def addresses(self, work, table, dense):
        """Addresses of the rows read, and of the rows written; `table` and `dense` map a row
        number to its address."""
        return table(work.rows), dense(np.arange(work.count // work.bag))

    def on_cpu(self, work):
        """(name, function) of each implementation on the CPU."""
        import torch

        table, out = torch.from_numpy(work.table), work.dense
        rows, begins = torch.from_numpy(work.rows), np.arange(0, work.count, work.bag)
        offsets, shape = torch.from_numpy(begins), (-1, work.bag, work.table.shape[1])
        return (
            ("numpy_reduceat", lambda: np.add.reduceat(work.table[work.rows], begins, out=out)),
            ("numpy_sum", lambda: np.sum(work.table[work.rows].reshape(shape), 1, out=out)),
            ("torch_embedding_bag", lambda: torch.nn.functional.embedding_bag(
                rows, table, offsets, mode="sum")),
        )


class Update(Pool):
    """Steps of SGD on distinct rows, each by the sum of its gradients, which are not adjacent."""

    distinct = True

    def draw(self, rng, work):
        return rng.permutation(np.repeat(
            rng.permutation(work.table_rows)[:work.count // work.bag], work.bag))

    def dense_rows(self, work):
        return work.count

    def traffic(self, work):
        distinct = work.count // work.bag
        return work.count + distinct, distinct

    def submit(self, device, table, rows, dense, bag):
        return device.update_async((table, rows), dense, LR)

    def expected(self, work):
        after = work.table.copy()
        np.subtract.at(after, work.rows, np.float32(LR) * work.dense)
        return after

    def result(self, work):
        return work.table

    def addresses(self, work, table, dense):
        order = np.argsort(work.rows, kind="stable")
        distinct = work.rows[order[::work.bag]]
        read = np.c_[dense(order).reshape(-1, work.bag), table(distinct)]
        return read.ravel(), table(distinct)

    def on_cpu(self, work):
        import torch

        table, gradients = torch.from_numpy(work.table), torch.from_numpy(work.dense)
        rows = torch.from_numpy(work.rows)

        def numpy_reduceat():
            order = np.argsort(work.rows, kind="stable")
            ordered = work.rows[order]
            begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
            work.table[ordered[begins]] -= LR * np.add.reduceat(work.dense[order], begins)

        return (
            ("numpy_reduceat", numpy_reduceat),
            ("torch_index_add", lambda: table.index_add_(0, rows, gradients, alpha=-LR)),
            *bare_copy(work.table, work.dense, work.rows, "to"),
        )
