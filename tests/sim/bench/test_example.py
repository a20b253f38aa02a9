"""`hotrow example`: in an empty folder, `make` ends with a waveform, and a wrong bench fails."""

import argparse
import shutil
import subprocess

import pytest
from hotrow_sim.bench import cli

SMALL = "SET=lanes=1 counter_sets=16 counter_ways=2"


def example(*arguments):
    parser = argparse.ArgumentParser()
    cli.example(parser.add_subparsers(required=True))
    options = parser.parse_args(["example", *map(str, arguments)])
    return options.run(options)


def make(folder):
    return subprocess.run(["make", "-C", folder, SMALL], capture_output=True, text=True)


@pytest.mark.slow
def test_counters(tmp_path):
    pytest.importorskip("cocotb", reason="cocotb is not installed")
    if not shutil.which("iverilog") or not shutil.which("make"):
        pytest.skip("iverilog or make is not installed")
    folder = tmp_path / "mine"
    assert example("counters", "-o", folder) == 0
    done = make(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 tests passed on icarus" in done.stdout
    waveform = folder / "out" / "build" / "hotrow_counters.fst"
    assert waveform.stat().st_size > 1000
    assert "hotrow_counters.lookups_payload[38:0]" in waveform.with_suffix(".gtkw").read_text()

    bench = folder / "bench.py"
    text = bench.read_text()
    bench.write_text(text.replace("(len(row), hits)\n", "(len(row), hits + 1)\n"))
    assert bench.read_text() != text
    done = make(folder)
    assert done.returncode and "AssertionError" in done.stderr, done.stdout + done.stderr


def test_what_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file: -o needs the name of a folder"):
        example("counters", "-o", tmp_path / "file")
    (tmp_path / "bench.py").write_text("")
    with pytest.raises(ValueError, match=r"bench\.py exists: -o needs an empty folder"):
        example("counters", "-o", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.py", "file"]
