"""Table extent: what the lookup side keeps of a table descriptor."""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from ..config import Config, log2


def partition(config: Config) -> dict:
    """Fields of a part of the directory, as wide as there are partitions."""
    most = log2(config.directory_partitions)
    return {"parts_log2": max(1, most.bit_length()), "part": max(1, most)}


def partitioned_set(m, config: Config, name, hashed, parts_log2, part):
    """A set of a bank: the part above, the hash below, as the table divides the directory."""
    width = log2(config.directory_sets // config.banks)
    chosen = Signal(width, name=name)
    with m.Switch(parts_log2):
        for parts in range(1, log2(config.directory_partitions) + 1):
            with m.Case(parts):
                m.d.comb += chosen.eq(Cat(hashed[:width - parts], part[:parts]))
        with m.Default():
            m.d.comb += chosen.eq(hashed[:width])
    return chosen


def table_extent(config: Config) -> data.StructLayout:
    """The last row, and the directory partition."""
    return data.StructLayout({"last_row": config.row_width, **partition(config)})


def extent_of(config: Config, entry) -> dict:
    """Its fields, of a descriptor. More parts than the directory has are none."""
    most = log2(config.directory_partitions)
    return {
        "last_row": entry.last_row,
        "parts_log2": Mux(entry.parts_log2 > most, 0, entry.parts_log2),
        "part": entry.part,
    }
