"""The sizes of a card: read from its registers, or of a preset."""

from . import generated


class Geometry(generated.GeometryFields):
    """What the geometry registers of a card hold."""

    @property
    def lanes(self) -> int:
        """Lookups per cycle."""
        return self.lookup_lanes or self.bus_bytes // 4

    @property
    def host_address_width(self) -> int:
        """Bits of an address in the host's memory: the upper half is the card's, if it has any."""
        return self.address_width - bool(self.card_memory_log2)

    @property
    def pools_batches(self) -> bool:
        """A POOL takes the ids of a batch."""
        return self.arithmetic == 2

    @property
    def slots(self) -> int:
        """Rows that the directory can hold."""
        return self.directory_choices * self.directory_sets * self.directory_ways

    @property
    def counter_entries(self) -> int:
        """Rows that the access counters can hold."""
        return self.counter_sets * self.counter_ways


class Preset(generated.PresetFields, Geometry):
    """The parameters of a simulated card, as `hotrow_rtl.config.Config` documents them.

    `dataclasses.replace` gives a variant; the simulation checks it when it opens the card.
    """

    @property
    def banks(self) -> int:
        """Banks of counters, directory and miss table."""
        return self.lane_banks * self.lanes

    @property
    def plan_window(self) -> int:
        """Batches that may be planned or marked and not retired."""
        return 1 << self.stamp_bits - 2

    @property
    def slot_bits(self) -> int:
        """Bits that the planner keeps with every slot."""
        row = min(32, self.address_width - (generated.ROW_ALIGNMENT.bit_length() - 1))
        sets = self.directory_sets // self.directory_partitions
        tag = self.tables.bit_length() - 1 + row - (sets.bit_length() - 1)
        return tag + 2 * self.stamp_bits + generated.SLOT_NUMBER_WIDTH + 3


PRESETS = {name: Preset(**vars(card)) for name, card in generated.PRESETS.items()}


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises
    ------
    ValueError
        Naming the presets that exist.
    """
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: expected one of {', '.join(PRESETS)}")
    return PRESETS[name]
