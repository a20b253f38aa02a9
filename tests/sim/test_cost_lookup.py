import dataclasses

import pytest
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.directory_bank import DirectoryBank
from hotrow_rtl.directory_list import DirectoryList
from hotrow_rtl.miss_list import MissList
from hotrow_rtl.splitter import Splitter
from hotrow_sim.cost.design import memory_bits
from hotrow_sim.cost.directory import directory_bank_bits, directory_bits, directory_list_bits
from hotrow_sim.cost.splitter import miss_list_bits, splitter_bits

CONFIGS = [*PRESETS.values(), dataclasses.replace(
    preset("tiny"), name="one-choice", directory_choices=1, directory_partitions=1, tables=4)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("unit, bits", [
    (DirectoryBank, directory_bank_bits),
    (DirectoryList, directory_list_bits),
    (MissList, miss_list_bits),
    (Splitter, splitter_bits),
], ids=lambda x: x.__name__)
def test_memory_equals_the_design(config, unit, bits):
    assert bits(config) == memory_bits(unit(config))


def test_lookup_side_fits_the_ecp5():
    # Beside the counters, 1024 sets of 16 ways: 208 block memories of 18 Kbit in all.
    config = preset("ecp5-85f")
    bits = directory_bits(config) + directory_list_bits(config) + splitter_bits(config)
    assert bits < 70 * 18 * 1024
