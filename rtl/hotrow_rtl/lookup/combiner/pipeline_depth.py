"""Places of the combiner: at which of them what happens to a beat. Loads without Amaranth."""

from itertools import pairwise

# Bits of keys that are compared at one place: where there are more, their wires crowd.
PIECE = 8


def key_pieces(config):
    """Bits of a key that are compared at each place, the first ones."""
    count = max(1, config.key_width // PIECE)
    ends = [config.key_width * end // count for end in range(count + 1)]
    return [slice(*piece) for piece in pairwise(ends)]


def latency(config):
    """Cycles from a beat that enters to the same that leaves, in a stream without gaps: those of
    the pieces, one to decide, one to join, and the window in which it is counted."""
    return len(key_pieces(config)) + 2 + config.window_beats + 1
