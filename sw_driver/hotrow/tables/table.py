"""What a table of a store is, and how its rows lie in blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from ..contract.errors import Error
from ..operands.integers import whole
from . import bases

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_HEADER = 64  # bytes of a block before its row numbers


@dataclass(frozen=True)
class Table:
    """A table whose rows start as `hotrow.ids.initial_rows([row], dim, seed, bound)`, or in files.

    Parameters
    ----------
    name : str
    rows, dim : int
    seed : int
    bound : float
    dtype : str
        "float32", "float16" or "bfloat16", to which initial values are rounded to nearest even.
    state : str, optional
        "row" for one fp32 number per row, which lies apart; "element" for numbers that follow the
        elements of a float32 row.
    columns : int, optional
        Numbers of state of a row with "element"; by default one per element.
    width : int, optional
        Elements of a row in memory, zeros after those of the table; by default none of these.
    initial_state : float
        Each number of state of a row that was never trained.
    optimizer : str
        Name of the rule whose state the rows have.
    base : TensorBase or FileBase, optional
        Files with the rows before any training, in place of the seed.
    part : (int, int, int), optional
        First, step and rows of a whole table, which seed and base describe: row r here is its row
        first + step * r. Rows beyond its end only pad.

    Raises
    ------
    Error
        No table has these sizes.
    """

    name: str
    rows: int
    dim: int
    seed: int = 0
    bound: float = 0.0
    dtype: str = "float32"
    state: str | None = None
    columns: int | None = None
    width: int | None = None
    initial_state: float = 0.0
    optimizer: str = ""
    base: bases.TensorBase | bases.FileBase | None = None
    part: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "dim", "seed", "columns", "width"):
            if getattr(self, name) is not None:
                self._set(name, whole(getattr(self, name), f"{name} of table {self.name!r}"))
        for name in ("bound", "initial_state"):
            self._set(name, float(getattr(self, name)))
        if not (isinstance(self.name, str) and isfinite(self.bound + self.initial_state)):
            raise self._error(f"expected a name, and a finite bound and initial_state, got "
                              f"{self.bound} and {self.initial_state}")
        if not 1 <= self.rows < 1 << 32 or not 1 <= self.dim < 1 << 31 or (
                self.dtype not in ELEMENT_BYTES):
            raise self._error(f"expected 1 to 2^32 - 1 rows of 1 to 2^31 - 1 elements of "
                              f"{', '.join(ELEMENT_BYTES)}, got {self.rows} rows of {self.dim} "
                              f"elements of {self.dtype!r}")
        if not isinstance(self.base, (bases.TensorBase, bases.FileBase, type(None))):
            raise self._error(f"expected a TensorBase or FileBase as base, or None, got "
                              f"{self.base!r}")
        if self.state not in (None, "row", "element") or (
                self.state == "element") > (self.dtype == "float32"):
            raise self._error(f"expected state None, 'row', or 'element' of float32 rows, got "
                              f"{self.state!r} of {self.dtype} rows")
        if self.columns is not None and (self.state != "element" or self.columns < 1):
            raise self._error(f"expected columns of 1 or more with state 'element', and none "
                              f"without it, got {self.columns} with state {self.state!r}")
        if self.width is not None and self.width < self.elements:
            raise self._error(f"expected a width of {self.elements} or more, got {self.width}")
        if self.part is not None:
            first, step, rows = self.part
            if not 0 <= first < step or self.rows < -(-(rows - first) // step):
                raise self._error(f"expected a part whose first row is 0 to its step - 1, and as "
                                  f"many rows as it has, got {self.part} in {self.rows} rows")

    def _set(self, name: str, value: float) -> None:
        object.__setattr__(self, name, value)

    def _error(self, what: str) -> Error:
        return Error(f"table {self.name!r}: {what}")

    @property
    def whole(self) -> "Table":
        """The table of which this is a part."""
        return replace(self, rows=self.whole_rows, part=None)

    @property
    def whole_rows(self) -> int:
        """Rows of the table that seed and base describe."""
        return self.rows if self.part is None else self.part[2]

    @property
    def state_columns(self) -> int:
        """Numbers of state that follow a row's elements."""
        if self.state != "element":
            return 0
        return self.dim if self.columns is None else self.columns

    @property
    def elements(self) -> int:
        """Elements of a row, with the state that follows them."""
        return self.dim + self.state_columns

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in a block, without state apart."""
        return self.elements * ELEMENT_BYTES[self.dtype]

    @property
    def memory_bytes(self) -> int:
        """Bytes of a row in memory, without state apart."""
        return (self.width or self.elements) * ELEMENT_BYTES[self.dtype]

    @property
    def side_bytes(self) -> int:
        """Bytes of state apart."""
        return 4 * (self.state == "row")

    @property
    def record(self) -> int:
        """Bytes of a row with all its state, in a block."""
        return self.row_bytes + self.side_bytes

    @classmethod
    def of(cls, kept: dict[str, Any]) -> "Table":
        """The table that a manifest describes."""
        part = kept.get("part")
        return cls(**{**kept, "columns": kept["columns"] or None, "base": bases.of(kept["base"]),
                      "part": part and tuple(part)})

    def kept(self) -> dict[str, Any]:
        """What a manifest says of the table."""
        kept = {"name": self.name, "rows": self.rows, "dim": self.dim, "seed": self.seed,
                "bound": self.bound, "dtype": self.dtype, "state": self.state,
                "columns": self.state_columns, "initial_state": self.initial_state,
                "optimizer": self.optimizer, **({"part": list(self.part)} if self.part else {})}
        return {**kept, "base": self.base.kept(kept) if self.base else {"kind": "seed"}}


def fitting(record: int, block: int) -> int:
    """Rows of so many bytes in a block."""
    return min((block - _HEADER) // (record + 4), 65535)


def block_bytes(tables: Sequence[Table]) -> int:
    """Bytes of a block: the fewest of which rows take four fifths, or 64-byte rows do not."""
    def share(block: int) -> float:
        return min(fitting(table.record, block) * table.record / block for table in tables)

    least = 4096 * -(-(max(table.record for table in tables) + _HEADER + 4) // 4096)
    choices = [size for size in (4096, 8192, 16384) if size > least] or [least]
    choices = [least, *choices]
    short = all(table.record < 64 for table in tables)
    return next((size for size in choices if short or share(size) >= .8),
                max(choices, key=share))


def segment_blocks(tables: Sequence[Table], block: int) -> int:
    """Blocks of a segment: 64 MiB or a 128th of all rows, and no more than a small table needs."""
    needed = sum(-(-table.rows // fitting(table.record, block)) for table in tables)
    return min(max((64 << 20) // block, needed // 128), max(16, needed * 9 // 64))
