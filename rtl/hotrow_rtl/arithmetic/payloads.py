"""Payloads of the units that compute on rows.

A *beat* is `config.lanes` consecutive elements of a row, each in 32 bits: what these units take in
a cycle. Its last one may have lanes beyond the row's end; what they hold means nothing.
"""

from types import SimpleNamespace

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from ..config import LARGEST_ROW, ROW_ALIGNMENT, Config, log2
from ..float.formats import ElementType

BAG_WIDTH = 24  # bits of a number of rows in a bag, exact in fp32
MOST_PARTIALS = 16  # partial sums of a bag
PARTIALS_BYTES = 1024  # of fp32 that a bag's partial sums have at least, if that many are allowed

row_setting = data.StructLayout({"type": ElementType, "row16": 9})
"""Element type of rows, and their bytes in units of 16, 1 to LARGEST_ROW / 16."""


def beats_of_longest(config: Config) -> int:
    """Beats of the longest row: each element of 16 bits becomes one of 32."""
    return 2 * config.row_bytes // config.bus_bytes


def beat_index(config: Config):
    """Range that numbers the beats of any row."""
    return range(2 * LARGEST_ROW // config.bus_bytes)


def row_beat(config: Config) -> data.StructLayout:
    """A beat, and whether it is the `last` of its row."""
    return data.StructLayout({"values": config.bus_width, "last": 1})


def pooled_row(config: Config) -> data.StructLayout:
    """A row of a bag: its weight, an fp32; whether it is the `last` of its bag. One that is
    `empty` has no words and stands for a bag without rows."""
    return data.StructLayout({"weight": 32, "last": 1, "empty": 1})


def bag_beat(config: Config) -> data.StructLayout:
    """A beat of a bag's sum, and how many `rows` the bag has."""
    return data.StructLayout({"values": config.bus_width, "last": 1, "rows": BAG_WIDTH})


def partial_beat(config: Config) -> data.StructLayout:
    """A beat of partial sum `index` of a bag of so many `rows`. `at`: the beat in its row, of
    which `last` is the last; `final`: no further partial sum follows in the bag."""
    return data.StructLayout({
        "values": config.bus_width,
        "index": range(MOST_PARTIALS),
        "final": 1,
        "at": beat_index(config),
        "last": 1,
        "rows": BAG_WIDTH,
    })


def row_word(config: Config) -> data.StructLayout:
    """A bus word of a row, and whether it is the `last`."""
    return data.StructLayout({"data": config.bus_width, "last": 1})


def row_geometry(m, config: Config, setting) -> SimpleNamespace:
    """What a `row_setting` says, in registers added to module `m`.

    Returns
    -------
    SimpleNamespace
        halves: elements have 16 bits. blocks: 16 bytes of a row as fp32. last_beat: beats of a
        row less one. last_partial: partial sums of a bag less one.
    """
    halves, last_beat = Signal(), Signal(beat_index(config))
    last_partial = Signal(range(MOST_PARTIALS))
    blocks = Signal(range(2 * LARGEST_ROW // ROW_ALIGNMENT + 1))  # of 16 bytes, as fp32
    is_half = setting.type != ElementType.FP32
    m.d.sync += [
        halves.eq(is_half),
        blocks.eq(Mux(is_half, Cat(0, setting.row16), setting.row16)),
        last_beat.eq((blocks - 1) >> log2(config.lanes * 4 // ROW_ALIGNMENT)),
    ]
    most = PARTIALS_BYTES // ROW_ALIGNMENT  # from so many blocks on there is one partial sum
    with m.If(blocks >= most):
        m.d.sync += last_partial.eq(0)
    for partials in (2, 4, 8, 16):
        with m.Elif(blocks >= (most // partials if partials < MOST_PARTIALS else 0)):
            m.d.sync += last_partial.eq(partials - 1)
    return SimpleNamespace(
        halves=halves, blocks=blocks, last_beat=last_beat, last_partial=last_partial)
