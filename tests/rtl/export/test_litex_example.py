"""The example with a LiteX SoC."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("litex", reason="pip install 'hotrow[litedram]'")
EXAMPLE = Path(__file__).parents[3] / "examples" / "litex_counts.py"


@pytest.mark.long
def test_the_soc_counts_its_accesses(tmp_path):
    """The bench reads word k 40 >> k times; the SoC lists the three most used words."""
    if not shutil.which("iverilog"):
        pytest.skip("iverilog is not installed")
    done = subprocess.run([sys.executable, EXAMPLE, tmp_path], capture_output=True, text=True)
    assert not done.returncode, done.stderr[-2000:]
    found = re.findall(r"^word (\d+): (\d+) accesses$", done.stdout, re.M)
    assert sorted(found) == [("0", "40"), ("1", "20"), ("2", "10")]
