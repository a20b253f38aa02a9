"""Memory of the planner: its slots, and which batches bypassed rows."""

from hotrow_rtl.config import Config

BATCH_BITS = 32


def slot_bank_bits(config: Config):
    """The slots of one bank."""
    return config.slots // config.banks * config.slot_bits


def bypass_stamp_bits(config: Config):
    """The stamps of one bank: the number of a batch, and whether there is one."""
    return config.bypass_stamps // config.banks * (BATCH_BITS + 1)
