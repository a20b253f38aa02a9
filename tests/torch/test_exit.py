"""A program that ends without `close`: its worker threads must not abort it."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch, hotrow.torch as ht
tables = ht.HotEmbeddingBagCollection(
    [ht.TableConfig("a", 50, 8)], "model", preset="tiny", workers=2)
tables(torch.randint(0, 50, (8, 1))).sum().backward()
tables.optimizer.step()
tables.prefetch(torch.randint(0, 50, (8, 1)))
"""


@pytest.mark.slow
def test_exit_without_close():
    runs = [subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
            for _ in range(2)]
    assert [run.returncode for run in runs] == [0] * 2, runs[0].stderr
