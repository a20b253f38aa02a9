"""Access counts are part of a checkpoint: a resumed run evicts by the counts of the saved one."""

import pytest
import torch
from hotrow.torch import HotEmbeddingBagCollection, TableConfig

from tests.driver.conftest import counts_of, pairs


def opened(mode):
    return HotEmbeddingBagCollection(
        [TableConfig("a", 2000, 8), TableConfig("b", 90, 8)], "model", mode, lr=0.1, preset="tiny",
        seed=0)


@pytest.mark.parametrize("mode, counts", [("freqcache", True), ("scratchpipe", False)])
def test_a_checkpoint_restores_the_counts(tmp_path, mode, counts):
    generator = torch.Generator().manual_seed(0)
    rows = torch.tensor([2000, 90])
    with opened(mode) as tables:
        for _ in range(20):
            ids = (torch.rand(64, 2, generator=generator) ** 3 * rows).long()
            tables(ids).sum().backward()
            tables.optimizer.step()
        torch.save([tables.state_dict(), tables.optimizer.state_dict()], tmp_path / "saved.pt")
        kept = tables.store.device.counts()
    assert bool(len(kept)) == counts
    model, optimizer = torch.load(tmp_path / "saved.pt")
    with opened(mode) as tables:
        tables.load_state_dict(model)
        tables.optimizer.load_state_dict(optimizer)
        restored = tables.store.device.counts()
        assert counts_of(restored) == counts_of(kept) and pairs(restored) == pairs(kept)
