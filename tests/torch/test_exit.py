"""A program that ends without `close`: its worker threads must not abort it."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch, hotrow.torch as ht
tables = ht.HotEmbeddingBagCollection(
    [ht.TableConfig("a", 50, 8)], {device!r}, preset="tiny", workers=2)
tables(torch.randint(0, 50, (8, 1))).sum().backward()
tables.optimizer.step()
tables.prefetch(torch.randint(0, 50, (8, 1)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", ["model", "cpu"])
def test_exit_without_close(device):
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(device=device)],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
