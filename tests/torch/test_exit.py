"""A program that ends without `close`: its worker threads must not abort it."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch, hotrow.torch as ht
tables = ht.HotEmbeddingBagCollection(
    [ht.TableConfig("a", 50, 8)], {device!r}, options=ht.Options(preset="tiny", workers=2))
tables(torch.randint(0, 50, (8, 1))).sum().backward()
tables.optimizer.step()
tables.prefetch(torch.randint(0, 50, (8, 1)))
"""


WITHIN_AN_EPOCH = PROGRAM + """
pipeline = ht.TrainPipeline([torch.randint(0, 50, (8, 1)) for _ in range(9)], tables, lambda _: _)
tables.skip()
batch = next(iter(pipeline))
"""
IN_A_CHILD = PROGRAM + """
import os, sys
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", [
    pytest.param("model", marks=pytest.mark.long), "cpu"])
@pytest.mark.parametrize("program", [
    *(pytest.param(each, marks=pytest.mark.long) for each in (PROGRAM, WITHIN_AN_EPOCH)),
    IN_A_CHILD])  # whose parent is such a program, too
def test_exit_without_close(device, program):
    run = subprocess.run([sys.executable, "-c", program.format(device=device)],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
