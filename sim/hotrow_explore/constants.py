"""The constants of the step-time model, from the file that documents them."""

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

KINDS = ("sheet", "measured", "assumed", "fitted")


@dataclass(frozen=True)
class Constant:
    """A documented constant; `kind` is one of KINDS."""

    value: float
    unit: str
    kind: str
    source: str
    within: tuple = ()  # least and greatest value that a verdict is tried with


class Constants:
    """The value of each constant as an attribute; `documented` has the `Constant` by name."""

    def __init__(self, documented):
        self.documented = documented
        for name, constant in documented.items():
            setattr(self, name, constant.value)

    def replaced(self, **values):
        """The same constants with other values."""
        return Constants({name: replace(each, value=values.get(name, each.value))
                          for name, each in self.documented.items()})


@cache
def read(name) -> dict:
    """A data file of this package, shared: callers do not change it."""
    return tomllib.loads((files(__package__) / "data" / f"{name}.toml").read_text())


def driver_seconds(lookups, constants) -> float:
    """Time of hotrow's driver for a batch of so many lookups, on one core."""
    return 1e-6 * constants.driver_us + 1e-9 * constants.driver_ns * lookups


def load() -> Constants:
    return Constants({name: Constant(*entry) for name, entry in read("constants").items()})
