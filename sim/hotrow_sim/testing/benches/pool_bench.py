"""Bags of rows through the row pool, and rows through the update, Verilated or simulated."""

import functools
from dataclasses import dataclass

import numpy as np
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.arithmetic.bag_sum import BagSum
from hotrow_rtl.arithmetic.optimizer import Optimizer, RowUpdate
from hotrow_rtl.arithmetic.payloads import bag_row, row_format, row_word
from hotrow_rtl.arithmetic.pooling import RowPool
from hotrow_rtl.config import Config
from hotrow_rtl.float.formats import ElementType

from ...golden.arithmetic.optimizer import gradient_sums, rowwise_adagrad, sgd
from ...golden.arithmetic.pooling import ONE, pool
from ...golden.float import widen
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


def _unit(component, streams, verilated):
    return (StreamUnit if verilated else SimulatedUnit)(component, *streams)


@functools.cache
def pool_unit(config: Config, verilated):
    """The row pool of a configuration."""
    return _unit(RowPool(config), (("row_format", "mean"), ("rows", "words"), ("pooled",)),
                 verilated)


@functools.cache
def update_unit(config: Config, verilated):
    """Gradient sums and row update of a configuration."""
    return _unit(GradientUpdate(config), (
        ("row_format", "gradient_format", "optimizer", "lr", "eps"),
        ("counts", "gradients", "words", "states"), ("updated", "updated_states")), verilated)


def run_pool(config, bags, gaps=None, pauses=None, limit=1_000_000, verilated=True):
    """Pool bags.

    Parameters
    ----------
    config : Config
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
    settings = row_bits(bags.kind, bags.row_bytes) | int(bags.mean) << row_format.size
    done = pool_unit(config, verilated).run(
        settings, (bags.items(config), to_words(bags.rows, config.bus_bytes)),
        (len(bags.lengths) * -(-bags.row_bytes // config.bus_bytes),), gaps, pauses and (pauses,),
        limit)
    if not done.complete:
        return None, limit
    rows = to_rows(done.payloads[0], bags.rows.shape[1], config, TYPES[bags.kind])
    return rows, int(done.out_cycles[0][-1] - done.in_cycles[0][0]) + 1


class GradientUpdate(wiring.Component):
    """A `BagSum` of gradients and a `RowUpdate`; gradients and rows have equal numbers of
    elements."""

    def __init__(self, config: Config):
        self.config = config
        words, number = stream.Signature(config.bus_width), stream.Signature(32)
        super().__init__({
            "row_format": In(row_format),
            "gradient_format": In(row_format),
            "optimizer": In(Optimizer),
            "lr": In(32),
            "eps": In(32),
            "counts": In(stream.Signature(bag_row)),
            "gradients": In(words),
            "words": In(words),
            "states": In(number),
            "updated": Out(stream.Signature(row_word(config))),
            "updated_states": Out(number),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.sums = sums = BagSum(self.config)
        m.submodules.update = update = RowUpdate(self.config)
        connect(m, counts=flipped(self.counts), sums=sums.rows)
        connect(m, gradients=flipped(self.gradients), sums=sums.words)
        m.d.comb += [
            sums.row_format.eq(self.gradient_format),
            sums.sequential.eq(1),
            update.gradients.valid.eq(sums.bags.valid),
            update.gradients.p.values.eq(sums.bags.p.values),
            update.gradients.p.last.eq(sums.bags.p.last),
            sums.bags.ready.eq(update.gradients.ready),
        ]
        for name in ("row_format", "optimizer", "lr", "eps"):
            m.d.comb += getattr(update, name).eq(getattr(self, name))
        for name in ("words", "states"):
            connect(m, flipped(getattr(self, name)), getattr(update, name))
        for name in ("updated", "updated_states"):
            connect(m, getattr(update, name), flipped(getattr(self, name)))
        return m


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
        sums = gradient_sums(widen(self.gradients, self.gradient_kind), self.counts)
        if self.states is None:
            return sgd(self.rows, sums, self.lr, self.kind), None
        return rowwise_adagrad(self.rows, sums, self.states, self.lr, self.eps, self.kind)


def run_update(config, update, gaps=None, pauses=None, limit=1_000_000, verilated=True):
    """Sum gradients and update rows.

    Parameters
    ----------
    config : Config
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
    adagrad, states = update.states is not None, []
    gradient_bytes = update.gradients.shape[1] * update.gradients.itemsize
    settings, at = 0, 0
    for value, width in (
            (row_bits(update.kind, update.row_bytes), row_format.size),
            (row_bits(update.gradient_kind, gradient_bytes), row_format.size),
            (int(adagrad), 1), (int(update.lr), 32), (int(update.eps), 32)):
        settings |= value << at
        at += width
    if adagrad:
        states = update.states.tolist()
    done = update_unit(config, verilated).run(
        settings, (row_items(config, update.counts), to_words(update.gradients, config.bus_bytes),
                   to_words(update.rows, config.bus_bytes), states),
        (len(update.rows) * -(-update.row_bytes // config.bus_bytes), len(states)),
        gaps, pauses, limit)
    if not done.complete:
        return None, None, limit
    rows = to_rows(done.payloads[0], update.rows.shape[1], config, TYPES[update.kind])
    return (rows, np.array(done.payloads[1], np.uint32) if adagrad else None,
            int(done.out_cycles[0][-1] - done.in_cycles[0][0]) + 1)
