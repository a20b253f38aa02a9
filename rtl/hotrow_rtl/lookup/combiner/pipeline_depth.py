"""Stages of the combiner's pipeline. Loads without Amaranth."""

from itertools import pairwise

PIECE = 8  # bits of a key that one stage compares; more would congest the routing


def key_pieces(config):
    """Slices of a key, one for each of the comparing stages at the start of the pipeline."""
    count = max(1, config.key_width // PIECE)
    ends = [config.key_width * end // count for end in range(count + 1)]
    return [slice(*piece) for piece in pairwise(ends)]


def latency(config):
    """Cycles of a beat in the pipeline without gaps.

    One per piece of the keys, one to find owners, one to join, and those of the window, in which
    the amounts are counted.
    """
    return len(key_pieces(config)) + 2 + config.window_beats + 1
