"""Memory bits of the units of `hotrow_rtl.lookup`."""

from amaranth.hdl import Shape
from hotrow_rtl.config import CREDIT_WIDTH, EPOCH_WIDTH, RING_BEATS, Config, log2
from hotrow_rtl.contract.encoding import OPERANDS
from hotrow_rtl.interfaces.lookup_payloads import combined_beat, combined_lookup
from hotrow_rtl.interfaces.records import BATCHES_IN_FLIGHT
from hotrow_rtl.interfaces.table_bounds import partition
from hotrow_rtl.lookup.banks.bank_queue import BACKLOG, IN_FLIGHT
from hotrow_rtl.lookup.combiner.combiner import DECISIONS
from hotrow_rtl.lookup.combiner.pipeline_depth import latency
from hotrow_rtl.lookup.reader.batch_descriptor import LENGTH_WIDTH


def _partition_width(config: Config):
    return sum(Shape.cast(shape).width for shape in partition(config).values())


def lookup_reader_bits(config: Config):
    """Per lane the last row and the partition of every table; the stored bag lengths."""
    tables = config.lanes * config.tables * (config.row_width + _partition_width(config))
    return tables + config.stored_lengths * LENGTH_WIDTH


def combiner_bits(config: Config):
    """For every beat in the pipeline, the fields that the combiner does not compute."""
    computed = sum(combined_lookup(config)[name].width for name in DECISIONS)
    beats = 1 << (latency(config) - 1).bit_length()
    return beats * (combined_beat(config).size - config.lanes * computed)


def bank_crossbar_bits(config: Config, carried, request, shared, answer, beats=RING_BEATS):
    """Per beat the carried fields and the banks of its lanes; per bank its queue of beats, the
    lanes of the requests in flight, and its answers for every lane of every beat. With one bank,
    per beat the carried fields, whether it has a request, and the answer.

    Parameters
    ----------
    carried, request, shared, answer : ShapeCastable
        As for `BankCrossbar`.
    beats : int
        As for `BankCrossbar`.
    """
    carried, request, shared, answer = (
        Shape.cast(shape).width for shape in (carried, request, shared, answer))
    if config.banks == 1:
        return beats * (carried + 1 + answer)
    lanes, slot = config.lanes, log2(beats)
    bank = (BACKLOG * (lanes + slot + shared + lanes * request)
            + IN_FLIGHT * (slot + log2(lanes) + 1) + beats * lanes * answer)
    return beats * (carried + lanes * log2(config.banks) + config.banks) + config.banks * bank


def counters_bits(config: Config):
    """Per entry a count, a tag, a valid bit and an eviction credit."""
    entry = config.counter_bits + config.counter_tag_width + 1 + CREDIT_WIDTH
    return config.counter_entries * entry


def directory_bits(config: Config):
    """The slot tables of all banks."""
    return config.banks * slot_table_bits(config)


def directory_list_bits(config: Config):
    """Per table a valid bit, the last row and the partition."""
    return config.tables * (1 + config.row_width + _partition_width(config))


def slot_table_bits(config: Config):
    """Per slot of one bank a valid bit and a tag, with a planner also its state."""
    slot = config.slot_bits if config.planner else 1 + config.directory_tag_width
    return config.slots // config.banks * slot


def bypass_table_bits(config: Config):
    """Per entry of one bank a batch number and a valid bit."""
    return config.bypass_stamps // config.banks * (8 * OPERANDS["value"].bytes + 1)


def miss_table_bits(config: Config):
    """Per entry an epoch and a tag."""
    return config.miss_entries * (EPOCH_WIDTH + config.bank_key_width - log2(config.miss_sets))


def miss_numbers_bits(config: Config):
    """Per entry a miss number."""
    return config.miss_entries * config.slot_word_width


def slot_words_bits(config: Config):
    """Per lane a miss flag and a slot or miss number of every lane, for the beats of the window,
    the beat itself and the beat that enters."""
    beats = 1 << (config.window_beats + 1).bit_length()
    return config.lanes * beats * config.lanes * (1 + config.slot_word_width)


def cold_sample_bitmap_bits(config: Config):
    """A bit per sample of each of two batches; the sample counts of the batches in progress."""
    return 2 * config.batch_samples + BATCHES_IN_FLIGHT * (log2(config.batch_samples) + 1)
