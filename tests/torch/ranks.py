"""What several ranks do for test_ranks.py, test_rank_ids.py and test_ranks_on_disk.py.

As a script, started by torchrun with the name of a folder, it is one of the ranks. With the name
of a function of `rank_disk` too, it does that alone.
"""

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tests.support import undefined_memory
from tests.torch import rank_disk, rank_ids, rank_training

PATIENCE = 600  # seconds that a rank waits for another, which may have little of the machine


def main(folder, only=None):
    undefined_memory.install()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    folder = Path(folder)
    if only is not None:
        getattr(rank_disk, only)(folder / "tables")
        dist.barrier()
        return
    found = {"trainings": rank_training.work(), "ids": rank_ids.work(folder)}
    rank_disk.work(folder)
    if dist.get_rank() == 0:
        torch.save(found, folder / "found.pt")
    dist.barrier()
    rank_training.lost()


if __name__ == "__main__":
    main(*sys.argv[1:])
