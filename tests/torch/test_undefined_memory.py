"""No result depends on memory that NumPy or PyTorch returns undefined."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.support import undefined_memory


def test_undefined_memory_is_not_zero(monkeypatch):
    for owner, name in undefined_memory.MAKERS:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # which it restores at the end
    undefined_memory.install()
    assert np.isnan(np.empty((2, 3), np.float32)).all()
    assert (np.empty_like(np.zeros(3, int)) == -1).all()
    for tensor in (torch.empty(2, 3), torch.empty_like(torch.zeros(4)), torch.zeros(2).new_empty(5),
                   torch.empty(3, dtype=torch.bfloat16)):
        assert tensor.isnan().all()
    assert np.empty(3, bool).all() and torch.empty(3, dtype=torch.bool).all()
    assert torch.empty(0).numel() == 0 and torch.empty(2, device="meta").is_meta


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", [["tests/torch"], ["tests/driver", "tests/kernels", "tests/ids"]])
def test_suites(suite):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.support.undefined_memory",
         "-p", "no:cacheprovider", "-m", "not slow and not long", *suite],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
