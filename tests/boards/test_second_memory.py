"""A card on PCI Express with a DRAM of its own: tables there and in the host's memory.

Accelerator, bridge, routers and LiteDRAM's controller with its model of the chips are simulated;
a root complex in C++ serves the host's memory.
"""

from dataclasses import replace

import hotrow
import numpy as np
import pytest
from hotrow_boards.dram.controller import Dram, base_configuration, run_generator
from hotrow_boards.dram.second_memory import second_memory
from hotrow_rtl.config import preset
from hotrow_rtl.export.pcie_card import CARD_MODULE, card_files
from hotrow_sim.pcie import card as pcie_card
from hotrow_sim.verilated.compilation import model_library

from tests.boards.generators import needs_litedram
from tests.support.pcie.whole_card import open_transport

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(3600)]
CONFIG = replace(preset("ecp5"), card_memory_log2=27)
DRAM = Dram(phy="A7DDRPHY", chip="MT41K64M16", lanes=2, chip_bytes=1 << 27,
            memory_bytes=1 << CONFIG.card_memory_log2)
ROWS, DIM, LR = 50, 8, 0.25


@pytest.fixture(scope="module")
def library():
    controller = run_generator(["-m", "litedram.gen", "--sim"], DRAM,
                               base_configuration(DRAM, CONFIG.clock_mhz))
    files = card_files(CONFIG, second_memory(CONFIG, controller, simulated=True))
    return model_library("ecp5-pcie-dram", CARD_MODULE, "".join(files.values()),
                         pcie_card.HARNESS, pcie_card.HEADERS)


@pytest.fixture
def device(library, monkeypatch):
    monkeypatch.setattr(pcie_card, "card_library", lambda config: library)
    with hotrow.Device(open_transport(config=CONFIG), 600.0, 8, 1 << 20) as device:
        yield device


def step(device, dram=()):
    """Fill tables, then pool, gather, update and copy their rows: everything that comes back."""
    rng = np.random.default_rng(2)
    start = [rng.normal(size=(ROWS, DIM)).astype(np.float32) for _ in range(2)]
    memory = [hotrow.empty((ROWS, DIM), np.float32) for _ in start]
    tables, every = [], np.arange(ROWS)
    for number, array in enumerate(memory):
        array[:] = np.nan
        tables.append(device.register_table(array, f"table {number}", on_card=number in dram))
    for table, values in zip(tables, start, strict=True):
        device.scatter((table, every), values)
    rows = hotrow.RowList(rng.integers(0, 2, 60).astype(np.uint32),
                          rng.integers(0, ROWS, 60).astype(np.uint32))
    found = [device.pool(rows, [20, 0, 25, 15]), device.gather(rows)]
    device.update(rows, rng.normal(size=(60, DIM)).astype(np.float32), LR)
    # Rows from one table to the other, and back to the first.
    device.scatter((tables[1], every[:20]), device.gather((tables[0], every[10:30])))
    found += [device.gather((table, every)) for table in tables]
    return [each.tobytes() for each in found], memory


@needs_litedram
@pytest.mark.parametrize("dram", [(0,), (0, 1)])
def test_a_training_step_with_tables_in_either_memory(device, dram):
    found, memory = step(device, dram)
    with hotrow.open("model", "ecp5") as model:
        expected, trained = step(model)
    assert found == expected
    for number in dram:
        assert np.isnan(memory[number]).all(), "the card wrote to the host's memory"
    device.flush()
    assert [each.tobytes() for each in memory] == [each.tobytes() for each in trained]
