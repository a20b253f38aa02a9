"""Bags of rows for the Verilated row pool, and rows for the update."""

import functools
from dataclasses import dataclass

import numpy as np
from hotrow_rtl.beat_layouts import pooled_row, row_setting
from hotrow_rtl.config import Config
from hotrow_rtl.float_format import ElementType
from hotrow_rtl.row_pool import RowPool

from .golden.pooling import ONE, pool
from .verilated.stream_unit import StreamUnit

TYPES = {"fp32": np.uint32, "fp16": np.uint16, "bf16": np.uint16}


def row_bits(kind, row_bytes):
    """Bits of a `row_setting`."""
    return row_setting.const(
        {"type": ElementType[kind.upper()], "row16": row_bytes // 16}).as_bits()


def to_words(rows, bus_bytes):
    """Rows of any element type as the bus words of each, one row after another."""
    octets = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    padded = np.pad(octets, ((0, 0), (0, -octets.shape[1] % bus_bytes)), constant_values=0xA5)
    return [int.from_bytes(word.tobytes(), "little") for word in padded.reshape(-1, bus_bytes)]


def to_rows(words, elements, bus_bytes, dtype):
    """The reverse of `to_words`."""
    octets = b"".join(int(word).to_bytes(bus_bytes, "little") for word in words)
    per_row = -(-elements * np.dtype(dtype).itemsize // bus_bytes) * bus_bytes
    rows = np.frombuffer(octets, dtype).reshape(-1, per_row // np.dtype(dtype).itemsize)
    return rows[:, :elements]


def check_rows(rows, expected, seed=None):
    """Fail unless rows are those expected, naming the first element that is not."""
    assert rows.shape == expected.shape, f"came {rows.shape}, expected {expected.shape}"
    wrong = np.argwhere(rows != expected)
    if len(wrong):
        row, element = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {rows.size} elements are wrong, first row {row} element {element}: "
            f"came {int(rows[row, element]):#x}, expected {int(expected[row, element]):#x}, "
            f"seed {seed}")


@dataclass
class Bags:
    """What a `RowPool` gets: the arguments of ``golden.pooling.pool``."""

    rows: np.ndarray
    lengths: list
    kind: str = "fp32"
    weights: np.ndarray = None
    mean: bool = False

    @property
    def row_bytes(self):
        return self.rows.shape[1] * self.rows.itemsize

    def items(self, config):
        """Bits of the stream of rows."""
        layout, items, at = pooled_row(config), [], 0

        def item(weight, last, empty):
            return int(weight) | last << layout["last"].offset | empty << layout["empty"].offset
        for length in self.lengths:
            if not length:
                items.append(item(0, 1, 1))
            for place in range(length):
                weight = ONE if self.weights is None else self.weights[at]
                items.append(item(weight, int(place == length - 1), 0))
                at += 1
        return items

    def expected(self):
        return pool(self.rows, self.lengths, self.kind, self.weights, self.mean)


@functools.cache
def pool_unit(config: Config):
    """The Verilated row pool of a configuration."""
    return StreamUnit(RowPool(config), ("setting", "mean"), ("rows", "words"), ("pooled",))


def run_pool(config, bags, gaps=None, pauses=None, limit=1_000_000):
    """Pool bags.

    Parameters
    ----------
    config : Config
    bags : Bags
    gaps : pair of sequence of int, optional
        Idle cycles before each row, and before each word.
    pauses : sequence of int, optional
        Deaf cycles before each pooled word.
    limit : int
        Cycles after which it ends incomplete.

    Returns
    -------
    rows : array[bags, elements]
        Or None if it is incomplete.
    taken : Taken
    """
    words_per_row = -(-bags.row_bytes // config.bus_bytes)
    settings = row_bits(bags.kind, bags.row_bytes) | int(bags.mean) << row_setting.size
    taken = pool_unit(config).run(
        settings, (bags.items(config), to_words(bags.rows, config.bus_bytes)),
        (len(bags.lengths) * words_per_row,), gaps, pauses and (pauses,), limit)
    if not taken.complete:
        return None, taken
    lasts = [word >> config.bus_width & 1 for word in taken.payloads[0]]
    assert lasts == [at % words_per_row == words_per_row - 1 for at in range(len(lasts))], (
        "the last words of rows are not marked")
    data = [word & (1 << config.bus_width) - 1 for word in taken.payloads[0]]
    return to_rows(data, bags.rows.shape[1], config.bus_bytes, TYPES[bags.kind]), taken
