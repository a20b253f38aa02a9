"""Memory of the slot lanes."""

from hotrow_rtl.config import Config


def slot_lanes_bits(config: Config):
    """For each lane, whether a lookup is a miss and its slot or number, of every lane of the beats
    that it may join, of its own, and of the one that enters."""
    beats = 1 << (config.window_beats + 1).bit_length()
    return config.lanes * beats * config.lanes * (1 + config.slot_word_width)
