import dataclasses

import pytest
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.reader.reader import LookupReader
from hotrow_sim.cost.counters import counters_bits
from hotrow_sim.cost.design import memory_bits
from hotrow_sim.cost.lookup_reader import lookup_reader_bits

CONFIGS = [*PRESETS.values(), dataclasses.replace(
    preset("tiny"), name="odd", bus_bytes=32, tables=4, counter_ways=3, counter_bits=5,
    directory_sets=128)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_memory_equals_the_design(config):
    assert lookup_reader_bits(config) == memory_bits(LookupReader(config))
    assert counters_bits(config) == config.banks * memory_bits(CounterBank(config))


def test_counters_leave_room_on_the_ecp5():
    assert counters_bits(preset("ecp5-85f")) <= 80 * 18 * 1024
