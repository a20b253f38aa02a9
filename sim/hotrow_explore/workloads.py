"""Models: tables, lookups, MLPs and batch."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from .constants import read
from .systems import ExploreError


@dataclass(frozen=True)
class Workload:
    """A DLRM and the shape of its data.

    Parameters
    ----------
    name : str
    rows : tuple of int
        Of each table.
    lookups : tuple of float
        Mean ids per bag of each table.
    dense, dim, batch : int
        Dense features, elements of a row, samples of a step.
    bottom, top : tuple of int
        Widths of the hidden layers; the bottom MLP ends at `dim`, the top at 1.
    slope : float
        Rank-frequency slope of generated accesses.
    interaction : str
        "dot" of all pairs of vectors, or "sum" of all vectors.
    trace : Trace or None
        Source of the accesses; None generates them.
    pooled : bool
        Each bag enters the dense part as one pooled row. False for sequences: all their rows enter
        it, and its layers work on each of `positions`.
    """

    name: str
    rows: tuple
    lookups: tuple
    dense: int
    dim: int
    batch: int
    bottom: tuple
    top: tuple
    slope: float
    source: str = ""
    interaction: str = "dot"
    trace: object = None
    pooled: bool = True

    def __post_init__(self):
        sizes = (*self.rows, *self.lookups, *self.bottom, *self.top, self.dim, self.batch)
        if not self.rows or min(sizes) <= 0 or self.dense < 0 or self.slope < 0:
            raise ExploreError(
                f"workload {self.name!r}: tables, rows, lookups, widths, dim and batch must be "
                "above 0, dense features and slope not negative")
        if len(self.lookups) != len(self.rows):
            raise ExploreError(f"workload {self.name!r}: {len(self.rows)} tables need as many "
                               f"numbers of lookups, not {len(self.lookups)}")

    @cached_property
    def tables(self):
        return len(self.rows)

    @property
    def row_bytes(self):
        return 4 * self.dim

    @cached_property
    def table_bytes(self):
        return sum(self.rows) * self.row_bytes

    @cached_property
    def step_lookups(self):
        """Lookups of one step."""
        return self.batch * sum(self.lookups)

    @property
    def positions(self):
        """Positions of a sample in the dense part: one, or those of the longest sequence."""
        return 1 if self.pooled else max(self.lookups)

    @cached_property
    def pooled_bytes(self):
        """Bytes of the embeddings that enter the dense part in one step, one direction: a row of
        each bag, or of each lookup if the workload is not pooled."""
        rows = self.batch * self.tables if self.pooled else self.step_lookups
        return rows * self.row_bytes

    @cached_property
    def layers(self):
        """(inputs, outputs) of every linear layer."""
        passed = self.dim if self.dense else self.tables * self.dim
        bottom = list(pairwise([self.dense, *self.bottom, self.dim])) if self.dense else []
        pairs = self.vectors * (self.vectors - 1) // 2 if self.interaction == "dot" else 0
        top = [pairs + passed, *self.top, 1]
        return bottom + list(pairwise(top))

    @cached_property
    def vectors(self):
        """Vectors of the interaction."""
        return self.tables + (self.dense > 0)

    @cached_property
    def interaction_elements(self):
        """Products of the interaction of one sample."""
        return self.vectors * self.dim * (self.vectors if self.interaction == "dot" else 1)

    @cached_property
    def parameters(self):
        return sum(inputs * outputs + outputs for inputs, outputs in self.layers)

    def changed(self, **values):
        """The same workload with changed parameters."""
        if "sparse" in values:
            count = values.pop("sparse")
            values |= {"rows": self.rows[:1] * count, "lookups": self.lookups[:1] * count}
        if "hash" in values:
            values["rows"] = (values.pop("hash"),) * self.tables
        if "pooling" in values:
            values["lookups"] = (values.pop("pooling"),) * self.tables
        if "mlp" in values:
            width, depth = values.pop("mlp")
            values |= {"bottom": (width,) * depth, "top": (width,) * depth}
        return replace(self, **values)


def load() -> dict[str, Workload]:
    return {name: _workload(name, dict(entry)) for name, entry in read("workloads").items()}


def find(name) -> Workload:
    known = load()
    if name not in known:
        raise ExploreError(f"unknown workload {name!r}: expected one of {', '.join(known)}, "
                           "or a trace of your own with --trace")
    return known[name]


def of_trace(trace, dim=16, batch=1024, bottom=(512, 256, 64), top=(512, 256)) -> Workload:
    """The workload of a trace: its tables, its mean bag lengths, its accesses."""
    samples = trace.batch(0, batch)
    lengths = samples.bag_lengths.reshape(len(samples), -1).mean(axis=0)
    return Workload(trace.name, tuple(trace.cardinalities), tuple(map(float, lengths.clip(1e-9))),
                    trace.dense_columns, dim, batch, tuple(bottom), tuple(top), 0.0,
                    "accesses counted on the trace", trace=trace)


def _workload(name, entry):
    if "rows" not in entry:
        entry["rows"] = [entry.pop("rows_each")] * entry.pop("tables")
    lookups = entry.get("lookups", 1)
    entry["lookups"] = lookups if isinstance(lookups, list) else [lookups] * len(entry["rows"])
    return Workload(name, **{key: tuple(value) if isinstance(value, list) else value
                             for key, value in entry.items()})
