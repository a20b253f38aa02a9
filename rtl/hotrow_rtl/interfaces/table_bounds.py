"""The part of a table descriptor that the lookup engine stores."""

from amaranth import Cat, Mux, Signal
from amaranth.lib import data

from ..config import Config, log2


def partition(config: Config) -> dict:
    """Fields of a directory partition."""
    partitions_log2 = log2(config.directory_partitions)
    return {"parts_log2": max(1, partitions_log2.bit_length()), "part": max(1, partitions_log2)}


def partitioned_set(m, config: Config, name, hashed, parts_log2, part):
    """Return the set of a bank: the partition in the upper bits, the hash in the lower bits."""
    width = log2(config.directory_sets // config.banks)
    set_idx = Signal(width, name=name)
    with m.Switch(parts_log2):
        for parts in range(1, log2(config.directory_partitions) + 1):
            with m.Case(parts):
                m.d.comb += set_idx.eq(Cat(hashed[:width - parts], part[:parts]))
        with m.Default():
            m.d.comb += set_idx.eq(hashed[:width])
    return set_idx


def table_extent(config: Config) -> data.StructLayout:
    """The last row of a table, and its directory partition."""
    return data.StructLayout({"last_row": config.row_width, **partition(config)})


def extent_of(config: Config, entry) -> dict:
    """The fields of `table_extent`; more partitions than the directory has count as one."""
    partitions_log2 = log2(config.directory_partitions)
    return {
        "last_row": entry.last_row,
        "parts_log2": Mux(entry.parts_log2 > partitions_log2, 0, entry.parts_log2),
        "part": entry.part,
    }
