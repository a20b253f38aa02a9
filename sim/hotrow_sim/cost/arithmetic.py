"""Memory bits of the units of `hotrow_rtl.arithmetic`."""

from hotrow_rtl.arithmetic.payloads import BAG_WIDTH, MAX_PARTIALS, max_row_beats
from hotrow_rtl.arithmetic.reorder import SLOTS
from hotrow_rtl.arithmetic.square_sum import QUEUE, ROWS
from hotrow_rtl.arithmetic.tree_sum import INPUT_BEATS
from hotrow_rtl.config import LARGEST_ROW, ArithmeticUnits, log2

INDEX_WIDTH = log2(MAX_PARTIALS)
WORD_QUEUE = 32  # words of finished rows


def bag_sum_bits(config: ArithmeticUnits):
    """Two copies of the partial sums of two bags; the sums of two rows in order; the queues of
    bags."""
    width, longest = config.bus_width, max_row_beats(config)
    partials = 2 * 2 * max(2048 // config.bus_bytes, longest) * width
    reordered = 2 * longest * width
    beat_index = log2(2 * LARGEST_ROW // config.bus_bytes)
    bags = SLOTS * (BAG_WIDTH + 1 + INDEX_WIDTH) + SLOTS // 2 * (BAG_WIDTH + beat_index)
    return partials + reordered + bags


def tree_bits(config: ArithmeticUnits):
    """The sums that wait for their neighbours, of the first level and of the others."""
    width, pair_beats = config.bus_width, 1024 // config.bus_bytes
    levels = log2(2 * LARGEST_ROW // 4 // config.squares)
    tag = log2(2 * max_row_beats(config)) + log2(SLOTS) + 1
    entering = INPUT_BEATS * (width + levels + 1 + log2(pair_beats) + tag)
    return 2 * pair_beats * width + 4 * pair_beats * width + entering


def square_sum_bits(config: ArithmeticUnits):
    """The queues of steps and sums."""
    return (QUEUE + ROWS) * 32


def row_update_bits(config: ArithmeticUnits):
    """Gradients and words of two rows, the sum of squares, and queues of two entries around the
    scalars of Adagrad."""
    width, longest = config.bus_width, max_row_beats(config)
    return (2 * longest * (width + 1) + longest * width + 2 * (width + 1)
            + square_sum_bits(config) + 2 * 2 * 32)


def bag_arithmetic_bits(config: ArithmeticUnits):
    """Sums, updates, their tree, and a queue of result words with their `last` flags."""
    return (bag_sum_bits(config) + row_update_bits(config) + tree_bits(config)
            + WORD_QUEUE * (config.bus_width + 1))
