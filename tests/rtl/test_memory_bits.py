"""Memory bits of every unit with memories, and the budget of the ECP5."""

import pytest
from amaranth.hdl import Fragment
from hotrow_rtl.arithmetic.bag_arithmetic import BagArithmetic
from hotrow_rtl.arithmetic.bag_sum import BagSum
from hotrow_rtl.arithmetic.optimizer import RowUpdate
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.lists.lane_packer import LanePacker
from hotrow_rtl.lists.striped_writer import StripedWriter
from hotrow_rtl.lookup.banks.bypass_table import BypassTable
from hotrow_rtl.lookup.banks.lookup_bank import LookupBank
from hotrow_rtl.lookup.combiner.combiner import Combiner
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.directory.install_remove import InstallRemove
from hotrow_rtl.lookup.directory.slot_table import SlotTable
from hotrow_rtl.lookup.dispatch.result_addresses import ResultAddresses
from hotrow_rtl.lookup.reader.reader import LookupReader
from hotrow_rtl.lookup.splitter.cold_sample_bitmap import ColdSampleBitmap
from hotrow_rtl.lookup.splitter.miss_number_bank import MissNumberBank
from hotrow_rtl.lookup.splitter.miss_numbering import MissNumbering
from hotrow_rtl.lookup.splitter.miss_table import MissTableBank
from hotrow_rtl.lookup.splitter.slot_words import SlotWords
from hotrow_rtl.mover.engine import RowMover
from hotrow_rtl.primitives.ram import RAM_MODULE

BITS = {  # tiny, ecp5, alveo-u55c
    LookupReader: (12_928, 17_344, 1_130_496),
    Combiner: (4_144, 1_120, 18_864),
    CounterBank: (1_760, 376_832, 3_145_728),
    SlotTable: (1_952, 409_600, 1_835_008),
    BypassTable: (16_896, 16_896, 16_896),
    MissTableBank: (1_216, 32_768, 71_680),
    LookupBank: (21_824, 836_096, 5_069_312),
    InstallRemove: (1_216, 992, 38_912),
    MissNumbering: (0, 0, 0),
    MissNumberBank: (992, 21_504, 63_488),
    SlotWords: (8_192, 176, 131_072),
    ColdSampleBitmap: (2_092, 4_144, 131_140),
    ResultAddresses: (1_856, 832, 1_856),
    StripedWriter: (2_320, 2_336, 36_928),
    BagSum: (133_744, 149_432, 448_072),
    RowUpdate: (28_010, 53_290, 200_922),
    BagArithmetic: (165_882, 203_778, 665_410),
    RowMover: (308_242, 280_530, 6_891_730),
}
ARITHMETIC = BagSum, RowUpdate, BagArithmetic  # which know their part of the configuration only
LARGE = BagArithmetic, RowMover  # take seconds to elaborate
# Of 208 block memories of 18 Kbit, with room for those that are not full and for the crossbars.
LOOKUP_SIDE = (LookupReader, Combiner, LookupBank, InstallRemove, MissNumberBank, SlotWords,
               ColdSampleBitmap)
LOOKUP_BUDGET = 120 * 18 * 1024


def memory_bits(component):
    """Bits of all memories of a component."""
    class Platform:
        ram_instances = True

    def bits(fragment):
        if getattr(fragment, "type", None) == RAM_MODULE:
            return fragment.parameters["WIDTH"] * fragment.parameters["DEPTH"]
        return sum(bits(child) for child, *_ in fragment.subfragments)
    return bits(Fragment.get(component, Platform()))


@pytest.mark.parametrize("unit, name, expected", [
    pytest.param(unit, name, count, id=f"{unit.__name__}-{name}",
                 marks=pytest.mark.long if name == "alveo-u55c" or (
                     unit in LARGE and name == "ecp5") else pytest.mark.slow)
    for unit, counts in BITS.items() for name, count in zip(PRESETS, counts, strict=True)])
def test_memory_bits(unit, name, expected):
    config = preset(name)
    assert memory_bits(unit(config.units if unit in ARITHMETIC else config)) == expected


@pytest.mark.parametrize("name", PRESETS)
def test_a_packer_has_no_memory(name):
    config = preset(name)
    assert memory_bits(LanePacker(config, 32, 4)) == 0


def test_lookup_side_fits_the_ecp5():
    assert sum(BITS[unit][list(PRESETS).index("ecp5")] for unit in LOOKUP_SIDE) < LOOKUP_BUDGET
