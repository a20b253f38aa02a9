"""Payloads of the arithmetic units.

A *beat* is `config.lanes` consecutive elements of a row, 32 bits each: the width of the arithmetic
units. Lanes past the end of a row carry undefined data.
"""

from types import SimpleNamespace

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from ..config import LARGEST_ROW, ROW_ALIGNMENT, ArithmeticUnits, log2
from ..float.formats import ElementType

BAG_WIDTH = 24  # bits of the number of rows in a bag: exact in fp32
MAX_PARTIALS = 16  # partial sums per bag
PARTIALS_BYTES = 1024  # fp32 bytes of a bag's partial sums, unless MAX_PARTIALS limits them

row_format = data.StructLayout({"type": ElementType, "row16": 9})
"""Element type of the rows, and the row size in units of 16 bytes, 1 to LARGEST_ROW / 16."""

bag_row = data.StructLayout({"weight": 32, "last": 1, "empty": 1})
"""A row of a bag: its fp32 weight; `last` marks the bag's final row. `empty` marks a bag without
rows, which has no words."""


def max_row_beats(config: ArithmeticUnits) -> int:
    """Beats of the longest row; a 16-bit element becomes 32 bits."""
    return 2 * config.row_bytes // config.bus_bytes


def beat_index(config: ArithmeticUnits):
    """Range of the beat numbers of a row."""
    return range(2 * LARGEST_ROW // config.bus_bytes)


def row_beat(config: ArithmeticUnits) -> data.StructLayout:
    """A beat of a row; `last` marks its final beat."""
    return data.StructLayout({"values": config.bus_width, "last": 1})


def bag_beat(config: ArithmeticUnits) -> data.StructLayout:
    """A beat of a bag's sum, and the number of `rows` in the bag, whether they are `several`."""
    return data.StructLayout({
        "values": config.bus_width, "last": 1, "rows": BAG_WIDTH, "several": 1})


def partial_beat(config: ArithmeticUnits) -> data.StructLayout:
    """A beat of partial sum `index` of a bag of `rows` rows.

    `beat_idx` numbers the beats of a partial sum, `last` marks the final one. `final` marks the
    beats of the bag's final partial sum.
    """
    return data.StructLayout({
        "values": config.bus_width,
        "index": range(MAX_PARTIALS),
        "final": 1,
        "beat_idx": beat_index(config),
        "last": 1,
        "rows": BAG_WIDTH,
    })


def row_word(config: ArithmeticUnits) -> data.StructLayout:
    """A bus word of a row; `last` marks its final word."""
    return data.StructLayout({"data": config.bus_width, "last": 1})


def row_geometry(m, config: ArithmeticUnits, format_) -> SimpleNamespace:
    """Derive sizes from a `row_format`, in registers added to module `m`.

    Returns
    -------
    SimpleNamespace
        half_width: the elements have 16 bits. blocks: size of a row as fp32, in units of 16 bytes.
        last_beat: beats of a row minus 1. last_partial: partial sums of a bag minus 1.
    """
    half_width, last_beat = Signal(), Signal(beat_index(config))
    last_partial = Signal(range(MAX_PARTIALS))
    blocks = Signal(range(2 * LARGEST_ROW // ROW_ALIGNMENT + 1))
    is_half = format_.type != ElementType.FP32
    m.d.sync += [
        half_width.eq(is_half),
        blocks.eq(Mux(is_half, Cat(0, format_.row16), format_.row16)),
        last_beat.eq(((blocks << log2(ROW_ALIGNMENT)) - 1) >> log2(config.bus_bytes)),
    ]
    one_partial = PARTIALS_BYTES // ROW_ALIGNMENT  # blocks of the shortest row with one partial sum
    with m.If(blocks >= one_partial):
        m.d.sync += last_partial.eq(0)
    for partials in (2, 4, 8, 16):
        with m.Elif(blocks >= (one_partial // partials if partials < MAX_PARTIALS else 0)):
            m.d.sync += last_partial.eq(partials - 1)
    return SimpleNamespace(half_width=half_width, blocks=blocks, last_beat=last_beat,
                           last_partial=last_partial)
