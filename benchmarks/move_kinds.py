"""The moves that `hotrow bench` measures, on the card and on the CPU."""

import numpy as np

from .bag_kinds import Pool, Update, bare_copy


class Gather:
    """Random rows of a table, copied to consecutive rows.

    Attributes
    ----------
    channel : str
        "read" or "write": the row ports whose data channel is measured.
    distinct : bool
        No row of the table is written twice.
    arithmetic : bool
        Rows come in bags, and the card computes.
    """

    channel, distinct, arithmetic = "read", False, False

    def draw(self, rng, work):
        """Row of each lookup, int64[count]."""
        if self.distinct:
            return rng.permutation(work.table_rows)[:work.count]
        return rng.integers(0, work.table_rows, work.count)

    def fill(self, array, first):
        """Fill an array of rows; the first has number `first`. Each element identifies its row."""
        array[:] = np.arange(first, first + len(array), dtype=np.float32)[:, None]
        array += np.arange(array.shape[1], dtype=np.float32) / 1024

    def dense_rows(self, work):
        """Rows of the dense array."""
        return work.count

    def traffic(self, work):
        """Rows read, and rows written."""
        return work.count, work.count

    def submit(self, device, table, rows, dense, bag):
        """Start the command: a Future."""
        return device.gather_async((table, rows), out=dense)

    def expected(self, work):
        """Expected value of `result`."""
        return work.table[work.rows]

    def result(self, work):
        return work.dense

    def addresses(self, work, table, dense):
        """Byte addresses of the rows read and of those written; `table` and `dense` map row
        numbers to addresses."""
        return table(work.rows), dense(np.arange(work.count))

    def on_cpu(self, work):
        """(name, function) of each implementation on the CPU."""
        import torch

        table, dense = torch.from_numpy(work.table), torch.from_numpy(work.dense)
        rows = torch.from_numpy(work.rows)
        return (
            ("numpy_take", lambda: np.take(work.table, work.rows, 0, out=work.dense, mode="wrap")),
            ("torch_index_select", lambda: torch.index_select(table, 0, rows, out=dense)),
            *bare_copy(work.dense, work.table, work.rows, "from"),
        )


class Scatter(Gather):
    """Consecutive rows, copied to distinct random rows of a table."""

    channel, distinct = "write", True

    def submit(self, device, table, rows, dense, bag):
        return device.scatter_async((table, rows), dense)

    def expected(self, work):
        return work.dense

    def result(self, work):
        return work.table[work.rows]

    def addresses(self, work, table, dense):
        return dense(np.arange(work.count)), table(work.rows)

    def on_cpu(self, work):
        import torch

        table, dense = torch.from_numpy(work.table), torch.from_numpy(work.dense)
        rows = torch.from_numpy(work.rows)

        def numpy_put():
            work.table[work.rows] = work.dense

        return (
            ("numpy_put", numpy_put),
            ("torch_index_copy", lambda: table.index_copy_(0, rows, dense)),
            *bare_copy(work.table, work.dense, work.rows, "to"),
        )


KINDS = {"gather": Gather(), "scatter": Scatter(), "pool": Pool(), "update": Update()}
