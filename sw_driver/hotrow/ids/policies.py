"""Which ids get a row, and which rows are freed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from ..contract.errors import Error
from ..operands.integers import whole
from .index import MOST_COUNT

MOST_ROWS = (1 << 31) - 1


@dataclass(frozen=True)
class LeastCount:
    """An id gets a row in the batch in which its count reaches `least`; the row's count goes on
    from there.

    Counts of ids without a row are estimates of a count-min sketch of 4 x `width` counters of 16
    bits: 8 x `width` bytes. An estimate is never too low, so that no id gets its row late (without
    halving); it is too high by more than e / width x (the counts added since they were zero) with a
    probability below e^-4 = 1.8 %, and such an id gets its row early.

    Parameters
    ----------
    least : int
        1 to 65535.
    width : int
    halve_every : int
        Batches after which all counters are halved; 0: never.
    """

    least: int
    width: int = 1 << 20
    halve_every: int = 0

    def __post_init__(self) -> None:
        _check_whole(self)
        if not 1 <= self.least <= 65535 or self.width < 1 or self.halve_every < 0:
            raise Error(f"admission by count needs least of 1 to 65535, width of 1 or more and "
                        f"halve_every of 0 or more, not {self}")


@dataclass(frozen=True)
class Probability:
    """An id gets a row in each batch in which it occurs with this probability.

    The draw follows from the map's seed, the id and the number of the batch.

    Parameters
    ----------
    value : float
        Above 0, at most 1.
    """

    value: float

    def __post_init__(self) -> None:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 1:
            raise Error(f"the probability of admission is above 0 and at most 1, not {value!r}")
        object.__setattr__(self, "value", float(value))


@dataclass(frozen=True)
class Expiry:
    """Which rows are freed at a sweep, and for an id that needs a row when none is free.

    A row of a batch that is not done is never freed. The scan for an id that needs a row frees 1/64
    of the cap, or as many rows as are lacking if those are more. Where several rows may go, the one
    with the oldest last lookup goes first, then the one with the least count, then the lowest row.
    With `below` and without `age` the count decides first; with `LeastCount` an id then takes a row
    only from one of a lower count, and else is counted further (as in TinyLFU: G. Einziger, R.
    Friedman and B. Manes, "TinyLFU: A highly efficient cache admission policy", 2017).

    Parameters
    ----------
    age : int, optional
        A sweep frees rows without a lookup in this many batches.
    below : int, optional
        A sweep frees rows with a count below it, and then halves all counts; 1 to 2^31.
    every : int
        Batches from sweep to sweep.
    floor : int
        A sweep leaves at least so many rows in use.
    cap : int, optional
        At most so many ids have a row; by default as many as there are rows.
    """

    age: int | None = None
    below: int | None = None
    every: int = 1
    floor: int = 0
    cap: int | None = None

    def __post_init__(self) -> None:
        _check_whole(self)
        if (self.every < 1 or self.floor < 0 or (self.age is not None and self.age < 1)
                or (self.below is not None and not 1 <= self.below <= MOST_COUNT)
                or (self.cap is not None and self.cap < max(1, self.floor))):
            raise Error(f"expiry needs age and every of 1 or more, below of 1 to 2^31, and a floor "
                        f"of 0 to cap, not {self}")


def check_policies(rows: int, admission: Any, expiry: Any) -> None:
    """Raise Error unless a map of so many rows may have these."""
    if not 2 <= whole(rows, "the number of rows of a map of ids") <= MOST_ROWS:
        raise Error(f"a map of ids needs 2 to {MOST_ROWS} rows, not {rows}")
    for what, given, kinds in (("admission", admission, (LeastCount, Probability)),
                               ("expiry", expiry, (Expiry,))):
        if given is not None and not isinstance(given, kinds):
            raise Error(f"{what} is of hotrow.ids, {' or '.join(each.__name__ for each in kinds)}, "
                        f"and not {given!r}")
    if expiry is not None and expiry.cap is not None and expiry.cap >= rows:
        raise Error(f"the cap of {expiry.cap} ids leaves no default row in {rows} rows: give "
                    f"it at least {expiry.cap + 1} rows")
    if expiry is not None and expiry.floor >= rows:
        raise Error(f"{rows} rows have at most {rows - 1} ids, and a floor of {expiry.floor} keeps "
                    f"all of them: give a lower floor")


def _check_whole(policy: LeastCount | Expiry) -> None:
    for each in fields(policy):
        value = getattr(policy, each.name)
        if value is not None:
            object.__setattr__(policy, each.name, whole(
                value, f"{each.name} of {type(policy).__name__}"))
