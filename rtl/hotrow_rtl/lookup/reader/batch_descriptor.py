"""In which order the ids of a batch lie in memory, as the units of the lookup reader see it."""

from amaranth import Module
from amaranth.lib import data, stream

from ...config import Config, log2
from ...interfaces.records import ReadClient, lookup

LENGTH_WIDTH = 16


def fetched_words(config: Config) -> stream.Signature:
    """The words of `ReadClient`, as a stream."""
    return ReadClient(config).members["words"].signature.flip()


def chunk_bags(config: Config) -> int:
    """Bags of a chunk, as many as ids fill a bus word: their lengths fill half of one."""
    return config.lanes


def bags_width(config: Config) -> int:
    """Bits of a number of bags, the largest included."""
    return log2(config.batch_samples) + config.table_width + 1


def number_width(config: Config) -> int:
    """Bits of a number of samples or columns, the largest included."""
    return max(config.table_width, log2(config.batch_samples)) + 1


def batch_order(config: Config) -> data.StructLayout:
    """What a walk over a batch needs to know.

    Ids of 32 bits, or 64 when `wide`, fill `words` bus words, the final one with `final_ids` of
    them. They lie in bags of one id, or when `jagged` of lengths that are `kept` or else fetched.
    The bags make `chunks` of `chunk_bags(config)`, in the final one up to number `last_bag`.

    There is a bag for each of `period` inner numbers, repeated for each outer number. Inner is
    the sample and outer the column of the batch when `feature_major`, else the reverse; column c
    belongs to table `first_table` + c.
    """
    return data.StructLayout({
        "wide": 1,
        "words": 32,
        "final_ids": log2(config.lanes) + 1,
        "jagged": 1,
        "kept": 1,
        "chunks": bags_width(config),
        "last_bag": log2(chunk_bags(config)),
        "feature_major": 1,
        "first_table": config.table_width,
        "period": number_width(config),
    })


def place(config: Config) -> data.StructLayout:
    """Inner and outer number of a bag."""
    return data.StructLayout({"inner": number_width(config), "outer": number_width(config)})


def bag_name(config: Config) -> data.StructLayout:
    """What the ids of a bag have in common."""
    return data.StructLayout({
        "table": config.table_width, "sample": log2(config.batch_samples)})


def names_width(config: Config) -> int:
    """Bits of the names of a chunk's bags, the first one lowest."""
    return chunk_bags(config) * bag_name(config).size


def unchecked_lookup(config: Config) -> data.StructLayout:
    """An id as it stands in memory, with the table and sample that its place gives it. Lanes of
    the upper half carry no id of more than 32 bits."""
    return data.StructLayout({
        "present": 1,
        "id": 64,
        "table": config.table_width,
        "sample": log2(config.batch_samples),
        "fault": lookup(config)["fault"].width,
    })


def unchecked_beat(config: Config) -> data.StructLayout:
    """The ids of one bus word in its lanes; `last` on the one with the final id."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(unchecked_lookup(config), config.lanes),
        "last": 1,
    })


def step_by_one(m: Module, here, last):
    """Take a register of `place` to the next bag; inner numbers go up to `last`."""
    m.d.sync += here.inner.eq(here.inner + 1)
    with m.If(here.inner == last):
        m.d.sync += [here.inner.eq(0), here.outer.eq(here.outer + 1)]
