"""Bags of rows through the row pool, and rows through the update, Verilated or simulated."""

import functools
from dataclasses import dataclass

import numpy as np
from hotrow_rtl.arithmetic.bag_arithmetic import BagArithmetic
from hotrow_rtl.arithmetic.payloads import bag_row, row_format
from hotrow_rtl.float.formats import ElementType
from hotrow_sim.golden.arithmetic.optimizer import rowwise_adagrad, sgd
from hotrow_sim.golden.arithmetic.pooling import ONE, bag_sums, pool
from hotrow_sim.golden.float import widen

from ..units.stream_unit import SimulatedUnit, StreamUnit

TYPES = {"fp32": np.uint32, "fp16": np.uint16, "bf16": np.uint16}


def row_bits(kind, row_bytes):
    """Bits of a `row_format`."""
    return row_format.const(
        {"type": ElementType[kind.upper()], "row16": row_bytes // 16}).as_bits()


def to_words(rows, bus_bytes):
    """Rows of any element type as bus words, with padding after each row."""
    octets = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    padded = np.pad(octets, ((0, 0), (0, -octets.shape[1] % bus_bytes)), constant_values=0xA5)
    return [int.from_bytes(word.tobytes(), "little") for word in padded.reshape(-1, bus_bytes)]


def to_rows(words, elements, config, dtype):
    """The inverse of `to_words` for bits of `row_word`; checks the `last` flags."""
    per_row = -(-elements * np.dtype(dtype).itemsize // config.bus_bytes)
    lasts = [word >> config.bus_width & 1 for word in words]
    assert lasts == [at % per_row == per_row - 1 for at in range(len(lasts))], (
        "the last words of rows are not marked")
    octets = b"".join((word & (1 << config.bus_width) - 1).to_bytes(config.bus_bytes, "little")
                      for word in words)
    return np.frombuffer(octets, dtype).reshape(len(words) // per_row, -1)[:, :elements]


def check_rows(rows, expected, seed=None):
    """Fail unless all rows are as expected; the message has the first difference."""
    assert rows.shape == expected.shape, f"expected {expected.shape}, not {rows.shape}"
    wrong = np.argwhere(rows != expected)
    if len(wrong):
        row, element = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {rows.size} elements are wrong, first row {row} element {element}: "
            f"expected {int(expected[row, element]):#x}, not {int(rows[row, element]):#x}, "
            f"seed {seed}")


def row_items(config, lengths, weights=None):
    """Payloads of the stream of rows for bags of these lengths."""
    layout, items, at = bag_row, [], 0

    def item(weight, last, empty):
        return int(weight) | last << layout["last"].offset | empty << layout["empty"].offset
    for length in lengths:
        if not length:
            items.append(item(0, 1, 1))
        for place in range(length):
            weight = ONE if weights is None else weights[at]
            items.append(item(weight, int(place == length - 1), 0))
            at += 1
    return items


@dataclass
class Bags:
    """Input of a `RowPool`: the arguments of ``golden.arithmetic.pooling.pool``."""

    rows: np.ndarray
    lengths: list
    kind: str = "fp32"
    weights: np.ndarray = None
    mean: bool = False

    @property
    def row_bytes(self):
        return self.rows.shape[1] * self.rows.itemsize

    def items(self, config):
        """Payloads of the stream of rows."""
        return row_items(config, self.lengths, self.weights)

    def expected(self):
        return pool(self.rows, self.lengths, self.kind, self.weights, self.mean)


SETTINGS = {"summand_format": row_format.size, "row_format": row_format.size, "mean": 1,
            "updates": 1, "optimizer": 1, "lr": 32, "eps": 32}


@functools.cache
def _unit(config, verilated):
    return (StreamUnit if verilated else SimulatedUnit)(
        BagArithmetic(config), tuple(SETTINGS), ("rows", "words", "row_words", "states"),
        ("results", "updated_states"))


def _setting_bits(**values):
    """Bits of the settings; those that are not given are 0."""
    bits, at = 0, 0
    for name, width in SETTINGS.items():
        bits |= int(values.get(name, 0)) << at
        at += width
    return bits


def run_pool(config, bags, gaps=None, pauses=None, limit=1_000_000, verilated=True):
    """Pool bags.

    Parameters
    ----------
    config : ArithmeticUnits
    bags : Bags
    gaps : pair of sequence of int, optional
        Idle cycles before each row and before each word.
    pauses : sequence of int, optional
        Cycles without `ready` before each pooled word.
    limit : int
        Cycles after which the run ends incomplete.
    verilated : bool
        Else in Amaranth's simulator.

    Returns
    -------
    rows : array[bags, elements]
        None if the run is incomplete.
    cycles : int
        From the first row to the last word.
    """
    done = _unit(config, verilated).run(
        _setting_bits(summand_format=row_bits(bags.kind, bags.row_bytes), mean=bags.mean),
        (bags.items(config), to_words(bags.rows, config.bus_bytes), (), ()),
        (len(bags.lengths) * -(-bags.row_bytes // config.bus_bytes), 0),
        gaps and (*gaps, (0,), (0,)), pauses and (pauses, (0,)), limit)
    if not done.complete:
        return None, limit
    rows = to_rows(done.payloads[0], bags.rows.shape[1], config, TYPES[bags.kind])
    return rows, int(done.out_cycles[0][-1] - done.in_cycles[0][0]) + 1


@dataclass
class Update:
    """Rows to update: `counts[i]` gradients of type `gradient_kind` for row i."""

    rows: np.ndarray
    gradients: np.ndarray
    counts: list
    lr: np.uint32
    kind: str = "fp32"
    gradient_kind: str = "fp32"
    states: np.ndarray = None  # row-wise Adagrad if given, else SGD
    eps: int = 0  # bits of fp32, like lr

    @property
    def row_bytes(self):
        return self.rows.shape[1] * self.rows.itemsize

    def expected(self):
        """Rows, and states or None."""
        sums = bag_sums(widen(self.gradients, self.gradient_kind), self.counts)
        if self.states is None:
            return sgd(self.rows, sums, self.lr, self.kind), None
        return rowwise_adagrad(self.rows, sums, self.states, self.lr, self.eps, self.kind)


def run_update(config, update, gaps=None, pauses=None, limit=1_000_000, verilated=True):
    """Sum gradients and update rows.

    Parameters
    ----------
    config : ArithmeticUnits
    update : Update
    gaps : four sequences of int, optional
        Idle cycles before each gradient, its words, the words of rows, and states.
    pauses : two sequences of int, optional
        Cycles without `ready` before each word and each state.
    limit, verilated
        As for `run_pool`.

    Returns
    -------
    rows : array[n, elements]
        None if the run is incomplete.
    states : uint32[n] or None
    cycles : int
        From the first gradient to the last word.
    """
    adagrad = update.states is not None
    gradient_bytes = update.gradients.shape[1] * update.gradients.itemsize
    settings = _setting_bits(
        summand_format=row_bits(update.gradient_kind, gradient_bytes),
        row_format=row_bits(update.kind, update.row_bytes), updates=1, optimizer=adagrad,
        lr=update.lr, eps=update.eps)
    states = update.states.tolist() if adagrad else ()
    done = _unit(config, verilated).run(
        settings, (row_items(config, update.counts), to_words(update.gradients, config.bus_bytes),
                   to_words(update.rows, config.bus_bytes), states),
        (len(update.rows) * -(-update.row_bytes // config.bus_bytes), len(states)),
        gaps, pauses, limit)
    if not done.complete:
        return None, None, limit
    rows = to_rows(done.payloads[0], update.rows.shape[1], config, TYPES[update.kind])
    return (rows, np.array(done.payloads[1], np.uint32) if adagrad else None,
            int(done.out_cycles[0][-1] - done.in_cycles[0][0]) + 1)
