"""The formulas of memory bits against the elaborated designs, and the budget of the ECP5."""

import dataclasses

import pytest
from hotrow_rtl.config import NUMBER_BEATS, PRESETS, preset
from hotrow_rtl.interfaces.lookup_payloads import (
    bank_answer,
    beat_request,
    row_request,
    waiting_beat,
)
from hotrow_rtl.lookup.banks.bypass_table import BypassTable
from hotrow_rtl.lookup.combiner.combiner import Combiner
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.directory.install_remove import InstallRemove
from hotrow_rtl.lookup.directory.slot_table import SlotTable
from hotrow_rtl.lookup.reader.reader import LookupReader
from hotrow_rtl.lookup.splitter.miss_number_bank import number_lane, number_shared
from hotrow_rtl.lookup.splitter.miss_numbering import split_beat
from hotrow_rtl.lookup.splitter.slot_words import SlotWords
from hotrow_sim.cost import lookup as cost
from hotrow_sim.cost.design_memory import memory_bits

TINY = preset("tiny")
CONFIGS = [
    *(pytest.param(config, marks=pytest.mark.slow if name == "alveo-u55c" else ())
      for name, config in PRESETS.items()),
    dataclasses.replace(TINY, name="one-choice", directory_choices=1, directory_partitions=1,
                        tables=4),
    dataclasses.replace(TINY, name="odd", bus_bytes=32, tables=4, counter_ways=3, counter_bits=5,
                        directory_sets=128),
]
UNITS = [(LookupReader, cost.lookup_reader_bits), (Combiner, cost.combiner_bits),
         (InstallRemove, cost.directory_list_bits), (SlotTable, cost.slot_table_bits),
         (SlotWords, cost.slot_words_bits), (BypassTable, cost.bypass_table_bits)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_memory_equals_the_design(config):
    for unit, bits in UNITS:
        assert bits(config) == memory_bits(unit(config)), unit.__name__
    assert cost.counters_bits(config) == config.banks * memory_bits(CounterBank(config))
    plain = dataclasses.replace(config, planner=False)
    assert cost.directory_bits(plain) == config.banks * memory_bits(SlotTable(plain))


def test_lookup_side_fits_the_ecp5():
    # Of 208 block memories of 18 Kbit, with room for those that are not full.
    config, block = preset("ecp5"), 18 * 1024
    crossbars = cost.bank_crossbar_bits(
        config, waiting_beat(config), row_request(config), beat_request(config),
        bank_answer(config)) + cost.bank_crossbar_bits(
        config, split_beat(config), number_lane(config), number_shared(config),
        config.slot_word_width, NUMBER_BEATS)
    bits = sum(formula(config) for formula in (
        cost.counters_bits, cost.directory_bits, cost.directory_list_bits, cost.miss_table_bits,
        cost.miss_numbers_bits, cost.cold_sample_bitmap_bits, cost.slot_words_bits,
        cost.combiner_bits))
    assert bits + crossbars < 180 * block
    assert cost.counters_bits(config) <= 80 * block
