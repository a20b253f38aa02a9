"""Ranks with tables on disk: the bits of one process, commits that count at all, named errors."""

import hotrow.tables
import pytest
import torch
import torch.distributed as dist
from hotrow import Error
from hotrow.torch import HotEmbeddingBagCollection, ShardedEmbeddingBagCollection, TableConfig
from hotrow.torch.sharded.commits import folder_of_rank
from safetensors.torch import save_file

from tests.torch import rank_disk
from tests.torch.launching import torchrun


@pytest.mark.slow
def test_two_ranks(tmp_path):
    for number in range(2):
        save_file({"emb": torch.randn(45, 4)}, tmp_path / f"{number}.safetensors")
    torchrun(2, tmp_path, rank_disk.__file__, tmp_path, "all")
    part = tmp_path / "commits" / "rank-001-of-002"
    with hotrow.tables.open(part) as reader:
        assert reader.rows("user", [0, 149]).shape == (2, 8)
    for call in (hotrow.tables.open, lambda path: HotEmbeddingBagCollection(
            [TableConfig("user", 301, 8, path=path)])):
        with pytest.raises(Error, match="has tables that 2 ranks share out: train them with as"):
            call(tmp_path / "commits")
    with pytest.raises(Error, match="trained by 2 processes, and there are 4 ranks"):
        folder_of_rank(str(tmp_path / "commits"), 0, 4)


@pytest.mark.long
def test_a_rank_that_is_killed_between_two_commits(tmp_path):
    with pytest.raises(AssertionError, match="2 ranks"):
        torchrun(2, tmp_path, rank_disk.__file__, tmp_path, "killed")
    torchrun(2, tmp_path, rank_disk.__file__, tmp_path, "resumed")


@pytest.mark.long
def test_four_ranks(tmp_path):
    for number in range(2):
        save_file({"emb": torch.randn(45, 4)}, tmp_path / f"{number}.safetensors")
    torchrun(4, tmp_path, rank_disk.__file__, tmp_path, "all")


def test_one_rank_has_the_files_of_a_process(tmp_path):
    config = TableConfig("user", 30, 8, path=tmp_path / "t")
    with HotEmbeddingBagCollection([config], None, "resident", seed=1) as one:
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
