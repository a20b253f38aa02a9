"""The moves that `hotrow bench` measures, each as the card does it and as the CPU does."""

import numpy as np


class Gather:
    """Random rows of a table, one behind the other.

    Members
    -------
    channel : str
        "read" or "write": the row ports whose data channel counts.
    distinct : bool
        No row twice.
    """

    channel, distinct = "read", False

    def submit(self, device, table, rows, dense):
        """Start the command; a Future."""
        return device.gather_async((table, rows), out=dense)

    def expected(self, work):
        """What `result` must be afterwards."""
        return work.table[work.rows]

    def result(self, work):
        return work.dense

    def ways(self, table, dense):
        """Rows that are read, and rows that are written, given the addresses of both sides."""
        return table, dense

    def on_cpu(self, work):
        """(name, function) of every way to do it."""
        import torch

        table, dense = torch.from_numpy(work.table), torch.from_numpy(work.dense)
        rows = torch.from_numpy(work.rows)
        return (
            ("numpy_take", lambda: np.take(work.table, work.rows, 0, out=work.dense, mode="wrap")),
            ("torch_index_select", lambda: torch.index_select(table, 0, rows, out=dense)),
        )


class Scatter(Gather):
    """Rows that lie one behind the other to random rows of a table, none of them twice."""

    channel, distinct = "write", True

    def submit(self, device, table, rows, dense):
        return device.scatter_async((table, rows), dense)

    def expected(self, work):
        return work.dense

    def result(self, work):
        return work.table[work.rows]

    def ways(self, table, dense):
        return dense, table

    def on_cpu(self, work):
        import torch

        table, dense = torch.from_numpy(work.table), torch.from_numpy(work.dense)
        rows = torch.from_numpy(work.rows)

        def numpy_put():
            work.table[work.rows] = work.dense

        return (
            ("numpy_put", numpy_put),
            ("torch_index_copy", lambda: table.index_copy_(0, rows, dense)),
        )


KINDS = {"gather": Gather(), "scatter": Scatter()}
