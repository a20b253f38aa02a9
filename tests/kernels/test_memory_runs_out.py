import os
import subprocess
import sys
from pathlib import Path

import pytest
from hotrow.kernels import compiler

HERE = Path(__file__).parent


@pytest.mark.slow
def test_memory_that_runs_out_is_an_error(tmp_path):
    """In every call that takes memory, at every allocation, in helper threads as well."""
    failing = tmp_path / "failing.so"
    subprocess.run([*compiler.required(), "-O1", "-shared", "-fPIC", "-o", failing,
                    HERE / "failing_new.cpp"], check=True)
    done = subprocess.run([sys.executable, HERE / "without_memory.py"], text=True,
                          capture_output=True, env={**os.environ, "LD_PRELOAD": str(failing)})
    assert done.returncode == 0, done
    raised = {(name, threads): int(errors)
              for name, threads, errors in map(str.split, done.stdout.splitlines())}
    # These take memory for their threads alone, and do without.
    assert len(raised) == 25 and [call for call, errors in raised.items() if not errors] == [
        ("pool_forward", "1"), ("pool_rows", "1"), ("id_map_find", "1")], raised
