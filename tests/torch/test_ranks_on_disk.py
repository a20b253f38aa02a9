"""Ranks with tables on disk: the bits of one process, commits that count at all, named errors."""

import hotrow.tables
import numpy as np
import pytest
import torch
import torch.distributed as dist
from hotrow import Error
from hotrow.torch import (
    HotEmbeddingBagCollection,
    Options,
    ShardedEmbeddingBagCollection,
    TableConfig,
)
from hotrow.torch.sharded.commits import folder_of_rank

from tests.torch import rank_disk, ranks
from tests.torch.launching import torchrun


def test_files_of_several_ranks(launched):
    world, folder = launched
    part = folder / "commits" / f"rank-001-of-00{world}"
    with hotrow.tables.open(folder / "commits") as whole:
        assert (whole.tables["user"].rows, whole.tables["user"].part) == (301, None)
        assert np.isfinite(whole.rows("user", np.arange(301))).all()
    with hotrow.tables.open(part) as reader:
        assert reader.rows("user", [0, 300 // world - 1]).shape == (2, 8)
    with pytest.raises(Error, match=r"has tables that \d ranks share out: train them with as"):
        HotEmbeddingBagCollection([TableConfig("user", 301, 8, path=folder / "commits")])
    with pytest.raises(Error, match=f"trained by {world} processes, and there are 3 ranks"):
        folder_of_rank(str(folder / "commits"), 0, 3)


@pytest.mark.long
def test_a_rank_that_is_killed_between_two_commits(tmp_path):
    with pytest.raises(AssertionError, match="2 ranks"):
        torchrun(2, tmp_path, ranks.__file__, tmp_path, "killed")
    torchrun(2, tmp_path, ranks.__file__, tmp_path, "resumed")


def test_one_rank_has_the_files_of_a_process(tmp_path):
    config = TableConfig("user", 30, 8, path=tmp_path / "t")
    with HotEmbeddingBagCollection([config], None, "resident", options=Options(seed=1)) as one:
        rank_disk.step(one, torch.tensor([[7], [29]]))
        expected, number = one.sha256(), one.commit({"step": 1})
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with ShardedEmbeddingBagCollection([config], None, "scratchpipe") as shared:
            assert shared.sha256() == expected and shared.open_commit() == {"step": 1}
            assert shared.commit() == number + 1
    finally:
        dist.destroy_process_group()
    with pytest.raises(Error, match="trained by 1 processes, and there are 2 ranks"):
        folder_of_rank(str(tmp_path / "t"), 0, 2)


def test_a_rank_holds_space_for_its_slots(tmp_path, monkeypatch):
    held, reserve = [], hotrow.tables.Store.reserve

    def counted(store, rows):
        held.append(rows)
        reserve(store, rows)

    monkeypatch.setattr(hotrow.tables.Store, "reserve", counted)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        config = TableConfig("user", 30, 8, path=tmp_path / "t")
        with ShardedEmbeddingBagCollection([config], None, "scratchpipe") as shared:
            assert max(held) == shared.store.card.slots > 0
    finally:
        dist.destroy_process_group()
