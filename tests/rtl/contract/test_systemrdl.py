"""The register map in SystemRDL, as its compiler and a generator of C headers read it."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from hotrow_rtl.config import PRESETS, preset
from hotrow_rtl.contract.registers import Access, registers_of, reset_value, shift
from hotrow_rtl.contract.render import render
from hotrow_rtl.contract.systemrdl import systemrdl

systemrdl_compiler = pytest.importorskip("systemrdl", reason="pip install 'hotrow[packages]'")
CONFIGS = [*PRESETS.values(), replace(preset("tiny"), name="no-planner", planner=False)]
ACCESS = {(True, False): Access.READ_ONLY, (True, True): Access.READ_WRITE,
          (False, True): Access.WRITE_ONLY}


def compiled(config, folder):
    """The registers as the compiler understands them."""
    path = folder / "map.rdl"
    path.write_text(systemrdl(config))
    compiler = systemrdl_compiler.RDLCompiler()
    compiler.compile_file(str(path))
    return compiler.elaborate().top


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_every_register_and_field(config, tmp_path):
    """Addresses, bits, access, values after reset, what a write of 1 does, and the text."""
    top, expected = compiled(config, tmp_path), {}
    found = {(register.inst_name, field.inst_name): (
        register.absolute_address, register.size, field.low, field.width,
        ACCESS[field.is_sw_readable, field.is_sw_writable], field.get_property("reset"),
        field.get_property("singlepulse"), field.get_property("onwrite") is not None,
        field.get_property("desc") or register.get_property("desc"))
        for register in top.registers() for field in register.fields()}
    for name, register in registers_of(config).items():
        word = reset_value(register, config)
        for field in register.fields or (None,):
            mask = 0xFFFF_FFFF if field is None else field
            expected[name, field.name if field else "VALUE"] = (
                register.offset, 4, shift(mask), mask.bit_count(), register.access,
                None if word is None else (word & mask) >> shift(mask),
                bool(register.pulses & mask), register.clears, (field or register).doc)
    assert found == expected


def test_header_of_peakrdl_equals_ours(tmp_path):
    """A C++ compiler finds every address and mask the same in both headers."""
    exporter = pytest.importorskip("peakrdl_cheader.exporter")
    compiler = shutil.which("g++") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    config = preset("tiny")
    exporter.CHeaderExporter().export(compiled(config, tmp_path), path=str(tmp_path / "theirs.h"))
    (tmp_path / "ours.h").write_text(render()["hotrow_contract.h"])
    checks = ["#include <cstddef>", '#include "ours.h"', '#include "theirs.h"']
    for name, register in registers_of(config).items():
        checks.append(f"static_assert(offsetof(hotrow_t, {name}) == HOTROW_REG_{name});")
        checks += [f"static_assert(HOTROW__{name}__{field.name}_bm == "
                   f"HOTROW_REG_{name}_{field.name}_MASK);" for field in register.fields or ()]

    def accepted(lines):
        (tmp_path / "check.cpp").write_text("\n".join(lines))
        return subprocess.run([compiler, "-std=c++17", "-fsyntax-only", tmp_path / "check.cpp"],
                              capture_output=True, text=True)

    done = accepted(checks)
    assert not done.returncode, done.stderr
    assert accepted([line.replace("hotrow_t, MOVE_TAIL", "hotrow_t, MOVE_HEAD")
                     for line in checks]).returncode, "the compiler compares"
