"""Simulation of the netlist that synthesis makes for an Artix-7: training on the whole card."""

import re

import hotrow
import numpy as np
import pytest
from hotrow_boards.tools import run
from hotrow_rtl.config import preset
from hotrow_rtl.export.openxc7 import synthesis
from hotrow_rtl.export.pcie_card import CARD_MODULE, card_files
from hotrow_sim.pcie import card
from hotrow_sim.verilated.compilation import model_library

from tests.boards.real_tools import real_tool
from tests.boards.xilinx_cells import cell_models
from tests.driver.links import WHOLE_CARD, declared_transports

torch = pytest.importorskip("torch")
from hotrow.torch import HotEmbeddingBagCollection, TableConfig  # noqa: E402

PRESET = "ecp5"
TABLES = (TableConfig("user", 300, 4), TableConfig("item", 200, 8, "mean"))
INITIAL = re.compile(r"\.(?:SRVAL|INITP?)_\w+\(\d+'[bh][0x]*[1-9a-f]")
SAMPLES, LONGEST, STEPS = 8, 3, 2
SYSTEMS = {"scratchpipe": {}, "hotline": {"cold": "pooled"}}


def netlist(folder):
    """Verilog of the board's card as cells, by the script of the makefile."""
    yosys = real_tool("yosys")
    files = card_files(preset(PRESET))
    for name, text in files.items():
        (folder / name).write_text(text)
    script = synthesis(CARD_MODULE, list(files), "-noiopad -noclkbuf")
    (folder / "synthesis.ys").write_text(f"{script}write_verilog -noattr netlist.v\n")
    run([yosys, "-q", "-s", "synthesis.ys"], folder, "synthesis.log")
    text = (folder / "netlist.v").read_text()
    assert not INITIAL.search(text), "the models of block RAMs begin with zeros"
    return text


def train(device, mode, **options):
    """Tables after training from one fixed start."""
    rng = np.random.default_rng(7)
    with HotEmbeddingBagCollection(TABLES, device, mode, "sgd", 0.2,
                                   seed=3, **options) as rows:
        batches = []
        for _ in range(STEPS):
            lengths = [rng.integers(0, LONGEST + 1, SAMPLES) for _ in TABLES]
            batches.append([
                (torch.from_numpy(rng.integers(0, table.num_embeddings, length.sum())),
                 torch.from_numpy(np.r_[0, length.cumsum()[:-1]].astype(np.int64)))
                for table, length in zip(TABLES, lengths, strict=True)])
        if mode == "scratchpipe":
            for batch in batches:
                rows.prefetch(batch)
        else:
            rows.observe(batches[0])
            rows.learn(limit=10)
        for batch in batches:
            rows(batch).square().sum().backward()
            rows.optimizer.step()
            rows.optimizer.zero_grad()
        rows.flush()
        return [rows.table(table.name)[0].clone() for table in TABLES]


@pytest.mark.route
@pytest.mark.timeout(7200)
def test_training_steps_on_the_netlist(tmp_path, monkeypatch):
    """LUTs, flip-flops, multipliers and block RAMs train to the bits of the golden model."""
    verilog = cell_models() + netlist(tmp_path)
    library = model_library(f"{PRESET}-artix-netlist", CARD_MODULE, verilog, card.HARNESS,
                            card.HEADERS)
    monkeypatch.setattr(card, "card_library", lambda config: library)
    declared_transports(monkeypatch)
    for mode, options in SYSTEMS.items():
        with hotrow.open(WHOLE_CARD, PRESET, timeout=600) as device:
            found = train(device, mode, **options)
        with hotrow.open("model", PRESET) as model:
            expected = train(model, mode, **options)
        start = train(None, "resident") if not options else expected
        for one, other, resident in zip(found, expected, start, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes() == resident.numpy().tobytes()
