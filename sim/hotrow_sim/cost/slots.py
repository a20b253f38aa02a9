"""Memory of the planner's slots."""

from hotrow_rtl.config import Config

NUMBER_BITS = 8  # of a replacement policy
FLAGS = 2  # valid and dirty


def slot_bits(config: Config):
    """Bits per slot: the tag, two stamps, the policy's number, valid and dirty."""
    return config.directory_tag_width + 2 * config.stamp_bits + NUMBER_BITS + FLAGS


def slot_bank_bits(config: Config):
    """The slots of one bank."""
    return config.slots // config.banks * slot_bits(config)
