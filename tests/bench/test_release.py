"""The figures of a release."""

import json

import pytest

from benchmarks import release

REPORT = """<testsuites><testsuite>
<testcase classname="tests.rtl.host.test_a" name="x" time="30.0"/>
<testcase classname="tests.rtl.emit.test_b" name="y" time="60.0"/>
<testcase classname="tests.torch.test_c" name="z" time="6"/></testsuite></testsuites>
"""
UNIT = {"luts": 1, "ffs": 2, "bram": 0, "uram": 0, "dsp": 0, "levels": 3, "verilog_lines": 4,
        "generate_seconds": 1.5}
COCOTB = {"cocotb": {simulator: {"tests": 2, "seconds": 3} for simulator in release.SIMULATORS}}


def test_figures_of_a_release(tmp_path, monkeypatch):
    """One unit after the other goes to the same file; a report of pytest gives minutes; a plot."""
    monkeypatch.setattr(release, "unit_figures", lambda name: {**UNIT, "luts": len(name)})
    monkeypatch.setattr(release, "cocotb_figures", lambda name: COCOTB)
    monkeypatch.setattr(release, "bench_figures", lambda line: {"cycles": 5})
    (tmp_path / "report.xml").write_text(REPORT)
    folder = tmp_path / "releases"
    assert release.main(["-o", str(folder), "--units", "counters", "--no-benches"]) == 0
    assert release.main(["-o", str(folder), "--units", "bridge",
                         "--tests", str(tmp_path / "report.xml")]) == 0
    path, = folder.glob("*.json")
    figures = json.loads(path.read_text())
    assert {name: each["luts"] for name, each in figures["units"].items()} == {
        "counters": 8, "bridge": 6}
    assert figures["benches"] == {line: {"cycles": 5} for line in release.BENCHES}
    assert figures["tests"] == {"tests/rtl": {"tests": 2, "minutes": 1.5},
                                "tests/torch": {"tests": 1, "minutes": 0.1}}
    assert (folder / "units.svg").read_text().startswith("<?xml")


def test_a_bench_that_fails_is_named():
    with pytest.raises(ValueError, match="hotrow bench observe --preset none --json ended with 2"):
        release.bench_figures("observe --preset none --json")
