"""Batch descriptor: the order of the ids of a batch in memory, for the units of the reader."""

from amaranth import Module
from amaranth.lib import data, stream

from ...config import Config, log2
from ...interfaces.records import ReadClient, lookup

LENGTH_WIDTH = 16


def fetched_words(config: Config) -> stream.Signature:
    """The words of `ReadClient`, as a stream."""
    return ReadClient(config).members["words"].signature.flip()


def chunk_bags(config: Config) -> int:
    """Bags of a chunk: as many as a bus word has 32-bit ids. Their lengths fill half a word."""
    return config.word_lanes


def bags_width(config: Config) -> int:
    """Bits of a count of bags."""
    return log2(config.batch_samples) + config.table_width + 1


def number_width(config: Config) -> int:
    """Bits of a count of samples or columns."""
    return max(config.table_width, log2(config.batch_samples)) + 1


def batch_order(config: Config) -> data.StructLayout:
    """Geometry of a batch.

    Ids of 32 bits, or of 64 bits if `wide`, fill `words` bus words; the final word has `final_ids`.
    Bags have one id each, or lengths if `jagged`; the lengths are `kept` on the card or fetched
    again. The bags form `chunks` of `chunk_bags(config)`; the final chunk ends at bag `last_bag`.

    Bags are numbered by an inner index, below `period`, and an outer index. If `feature_major`, the
    inner index is the sample and the outer index the column of the batch; otherwise the reverse.
    Column c belongs to table `first_table` + c.
    """
    return data.StructLayout({
        "wide": 1,
        "words": config.count_width,
        "final_ids": log2(config.word_lanes) + 1,
        "jagged": 1,
        "kept": 1,
        "chunks": bags_width(config),
        "last_bag": log2(chunk_bags(config)),
        "feature_major": 1,
        "first_table": config.table_width,
        "period": number_width(config),
    })


def bag_position(config: Config) -> data.StructLayout:
    """Inner and outer index of a bag."""
    return data.StructLayout({"inner": number_width(config), "outer": number_width(config)})


def bag_owner(config: Config) -> data.StructLayout:
    """Table and sample of the ids of a bag."""
    return data.StructLayout({
        "table": config.table_width, "sample": log2(config.batch_samples)})


def owners_width(config: Config) -> int:
    """Bits of the owners of the bags of a chunk, the first bag lowest."""
    return chunk_bags(config) * bag_owner(config).size


def unchecked_lookup(config: Config) -> data.StructLayout:
    """An id from memory with its table and sample. Lanes of the upper half carry 32-bit ids."""
    return data.StructLayout({
        "present": 1,
        "id": 64,
        "table": config.table_width,
        "sample": log2(config.batch_samples),
        "fault": lookup(config)["fault"].width,
    })


def unchecked_word(config: Config) -> data.StructLayout:
    """The ids of one bus word, the present ones lowest; `last` on the word with the final id."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(unchecked_lookup(config), config.word_lanes), "last": 1})


def unchecked_beat(config: Config) -> data.StructLayout:
    """The ids of one cycle: those of a bus word, or with one lane one of them."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(unchecked_lookup(config), config.lanes), "last": 1})


def increment(m: Module, here, last):
    """Increment a `bag_position` register; inner indices end at `last`."""
    m.d.sync += here.inner.eq(here.inner + 1)
    with m.If(here.inner == last):
        m.d.sync += [here.inner.eq(0), here.outer.eq(here.outer + 1)]
