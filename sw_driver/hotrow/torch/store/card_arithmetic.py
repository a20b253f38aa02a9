"""Whether a card pools and updates the rows of tables where they lie, and its bags in memory."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from ...device import Device
from ...memory.buffer import Buffer, empty
from ..features.configs import TableConfig
from ..optim.rules import Rule

RULES = ("sgd", "rowwise_adagrad")
ENTRY_BYTES, NUMBER_BYTES, LENGTH_BYTES = 8, 4, 2  # of a row list, a bag number, a length
_PACKED = 4  # elements of float32 that fill the 16 bytes by which a card moves rows


def check_tables(configs: Iterable[TableConfig], instead: str) -> None:
    """Raise Error, which says what to do `instead`, unless a card pools such tables exactly."""
    for config in configs:
        if config.path is not None:
            raise Error(f"table {config.name!r} is on disk, where the card does not pool rows: "
                        f"{instead}")
        if config.pooling == "none":
            raise Error(f"table {config.name!r} is not pooled: {instead}")
        if config.dtype != torch.float32 or config.embedding_dim % _PACKED:
            raise Error(f"table {config.name!r}: the card pools float32 rows whose dim is a "
                        f"multiple of {_PACKED}, not {config.dtype} rows of dim "
                        f"{config.embedding_dim}: {instead}")


def check_rule(rule: Rule, what: str, instead: str) -> None:
    """Raise Error unless a card takes the step of a rule on rows, of which `what` says which."""
    if rule.name not in RULES or not rule.plain:
        extras = "" if rule.plain else " with weight decay or stochastic rounding"
        raise Error(f"a card updates {what} by {' or '.join(RULES)}, not {rule.name}{extras}: "
                    f"{instead}")


def need_arithmetic(device: Device, what: str, instead: str) -> None:
    """Raise Error unless a card pools rows, of which `what` says which."""
    if not device.geometry.arithmetic:
        raise Error(f"this card has no arithmetic, and {what} are to be pooled on the card: "
                    f"{instead}, or take a card built with arithmetic=1 or 2")


class BagBuffer:
    """An array float32[bags, D] that the card reads and writes, in place where it reaches it."""

    def __init__(self, device: Device, dim: int) -> None:
        self._device, self._dim = device, dim
        self._array: NDArray[np.float32] | None = None
        self._buffer: Buffer | None = None

    def rows(self, bags: int) -> NDArray[np.float32]:
        """Its first rows, with undefined contents: float32[bags, D]."""
        if self._array is None or len(self._array) < bags:
            self.release()
            self._array = empty((bags, self._dim), np.float32)
            if self._device.reaches_host:
                self._buffer = self._device.register(self._array)
        return self._array[:bags]

    def zeros(self, bags: int) -> NDArray[np.float32]:
        """Its first rows, as zeros: float32[bags, D]."""
        rows = self.rows(bags)
        rows[:] = 0
        return rows

    def release(self) -> None:
        if self._buffer is not None:
            self._device.unregister(self._buffer)
        self._array = self._buffer = None
