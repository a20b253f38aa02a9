"""Memory of the planner: its slots, and which batches bypassed rows."""

from hotrow_rtl.config import Config

NUMBER_BITS = 8  # of a replacement policy
FLAGS = 2  # valid and dirty
BATCH_BITS = 32


def slot_bits(config: Config):
    """Bits per slot: the tag, two stamps, the policy's number, valid and dirty."""
    return config.directory_tag_width + 2 * config.stamp_bits + NUMBER_BITS + FLAGS


def slot_bank_bits(config: Config):
    """The slots of one bank."""
    return config.slots // config.banks * slot_bits(config)


def bypass_stamp_bits(config: Config):
    """The stamps of one bank: the number of a batch, and whether there is one."""
    return config.bypass_stamps // config.banks * (BATCH_BITS + 1)
