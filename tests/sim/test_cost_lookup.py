import dataclasses

import pytest
from hotrow_rtl.config import NUMBER_BEATS, PRESETS, preset
from hotrow_rtl.interfaces.lookup_payloads import asked_beat, bank_answer, beat_request, row_request
from hotrow_rtl.lookup.combiner.combiner import Combiner
from hotrow_rtl.lookup.directory.bank import DirectoryBank
from hotrow_rtl.lookup.directory.install_remove import InstallRemove
from hotrow_rtl.lookup.planner.bypass_table import BypassTable
from hotrow_rtl.lookup.planner.slot_table import SlotTable
from hotrow_rtl.lookup.splitter.miss_number_bank import number_lane, number_shared
from hotrow_rtl.lookup.splitter.miss_numbering import split_beat
from hotrow_rtl.lookup.splitter.slot_words import SlotWords
from hotrow_sim.cost.bank_ring import bank_ring_bits
from hotrow_sim.cost.combiner import combiner_bits
from hotrow_sim.cost.counters import counters_bits
from hotrow_sim.cost.design import memory_bits
from hotrow_sim.cost.directory import directory_bank_bits, directory_bits, directory_list_bits
from hotrow_sim.cost.misses import miss_numbers_bits, miss_table_bits
from hotrow_sim.cost.sample_marks import sample_marks_bits
from hotrow_sim.cost.slot_lanes import slot_lanes_bits
from hotrow_sim.cost.slots import bypass_stamp_bits, slot_bank_bits

CONFIGS = [*PRESETS.values(), dataclasses.replace(
    preset("tiny"), name="one-choice", directory_choices=1, directory_partitions=1, tables=4)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("unit, bits", [
    (Combiner, combiner_bits),
    (SlotTable, slot_bank_bits),
    (InstallRemove, directory_list_bits),
    (SlotWords, slot_lanes_bits),
    (BypassTable, bypass_stamp_bits),
], ids=lambda x: x.__name__)
def test_memory_equals_the_design(config, unit, bits):
    assert bits(config) == memory_bits(unit(config))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_memory_of_a_directory_without_a_planner(config):
    plain = dataclasses.replace(config, planner=False)
    assert directory_bank_bits(plain) == memory_bits(DirectoryBank(plain))


def test_lookup_side_fits_the_ecp5():
    # Of 208 block memories of 18 Kbit, with room for those that are not full.
    config = preset("ecp5-85f")
    rings = bank_ring_bits(config, asked_beat(config), row_request(config), beat_request(config),
                           bank_answer(config)) \
        + bank_ring_bits(config, split_beat(config), number_lane(config), number_shared(config),
                         config.slot_word_width, NUMBER_BEATS)
    bits = sum(model(config) for model in (
        counters_bits, directory_bits, directory_list_bits, miss_table_bits, miss_numbers_bits,
        sample_marks_bits, slot_lanes_bits, combiner_bits)) + rings
    assert bits < 180 * 18 * 1024
