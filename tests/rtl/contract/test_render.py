"""The committed renderings say what the source says, and the contract itself is consistent."""

import json
import shutil
import subprocess
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path

import pytest
from hotrow_rtl.contract import commands, encoding, registers, render

ROOT = Path(__file__).parents[3]
RECORDS = {
    "OPERANDS": encoding.COMMAND_BYTES,
    "COMPLETION": encoding.COMPLETION_BYTES,
    "ROW_ENTRY": encoding.ROW_ENTRY_BYTES,
    "HARVEST_ENTRY": encoding.HARVEST_ENTRY_BYTES,
}


def test_committed_renderings_are_current():
    names = [path.name for path in render.stale(ROOT)]
    assert not names, (
        f"{names} differ from the source: python -m hotrow_rtl.contract.render --write")


@pytest.mark.parametrize("damage", [
    lambda path: path.unlink(),
    lambda path: path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8"),
], ids=["missing", "edited"])
def test_check_fails_on_a_stale_rendering(tmp_path, damage, capsys):
    for folder in ("docs", "sw_driver/hotrow/contract", "sw_driver/hotrow/kernels/engine"):
        (tmp_path / folder).mkdir(parents=True)
    assert render.main(["--root", str(tmp_path), "--write"]) == 0
    assert render.main(["--root", str(tmp_path), "--check"]) == 0
    damage(tmp_path / "docs" / "contract.md")
    assert render.main(["--root", str(tmp_path), "--check"]) == 1
    assert "contract.md: stale" in capsys.readouterr().out


@pytest.mark.parametrize("name", RECORDS)
def test_fields_do_not_overlap(name):
    fields = sorted(getattr(encoding, name).values(), key=lambda field: field.offset)
    for before, after in pairwise(fields):
        shared = (before.offset, before.bytes) == (after.offset, after.bytes)
        end = before.offset + before.bytes
        assert shared or end <= after.offset, f"{before.name}, {after.name}"
    assert fields[-1].offset + fields[-1].bytes <= RECORDS[name]
    assert all(field.offset % field.bytes == 0 for field in fields), "C structs would pad"


def test_registers_do_not_overlap():
    offsets = [register.offset for register in registers.REGISTERS.values()]
    assert len(set(offsets)) == len(offsets)
    assert all(offset % 4 == 0 and offset < registers.REGISTER_SPACE for offset in offsets)


def test_fields_of_one_command_do_not_share_bytes():
    for command in commands.COMMANDS.values():
        offsets = [encoding.OPERANDS[name].offset
                   for name in ("opcode", "flags", "tag", *command.operands)]
        assert len(set(offsets)) == len(offsets), command.opcode.name


def test_every_command_is_described():
    assert set(commands.COMMANDS) == set(encoding.Opcode)
    for command in commands.COMMANDS.values():
        assert set(command.operands) <= set(encoding.OPERANDS), command.opcode.name


def test_fields_of_a_register_do_not_overlap():
    for register in registers.REGISTERS.values():
        fields = list(register.fields or ())
        assert sum(fields) == reduce(or_, fields, 0) < 1 << 32, register.name
        for field in fields:
            most = registers.extract(field, 0xFFFF_FFFF)
            assert registers.place(field, most) == field, "the bits of a field are consecutive"
            assert registers.extract(field, registers.place(field, most - 1)) == most - 1
            assert registers.extract(field, ~field) == 0


def test_json_round_trips():
    what = json.loads(render.render()["contract.json"])
    assert what == render.describe()
    assert what["status"]["TIMEOUT"] == 16
    assert what["presets"]["tiny"]["slots"] == 256


def test_header_matches_the_contract(tmp_path):
    """A C++ compiler accepts the header and agrees on every offset."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    (tmp_path / "hotrow_contract.h").write_text(render.render()["hotrow_contract.h"])
    names = "command", "completion", "row_entry", "harvest_entry"
    structs = zip(names, RECORDS.items(), strict=True)
    tail = registers.REGISTERS["MOVE_TAIL"]
    checks = ["#include <cstddef>", '#include "hotrow_contract.h"',
              f"static_assert(HOTROW_IDENTITY == {encoding.IDENTITY});",
              f"static_assert(HOTROW_REG_MOVE_TAIL == {tail.offset});"]
    for register in registers.REGISTERS.values():
        for field in register.fields or ():
            name = f"HOTROW_REG_{register.name}_{field.name}"
            checks.append(f"static_assert({name}_MASK == {field.value}u);")
            if registers.shift(field) or field > 1:
                low = f"{name}_SHIFT" if field.bit_count() > 1 else f"{registers.shift(field)}"
                checks.append(f"static_assert(({name}_MASK >> {low}) % 2 == 1);")
    for struct, (name, size) in structs:
        checks.append(f"static_assert(sizeof(hotrow_{struct}) == {size});")
        checks.extend(f"static_assert(offsetof(hotrow_{struct}, {field.name}) == {field.offset});"
                      for field in getattr(encoding, name).values())
    (tmp_path / "check.cpp").write_text("\n".join(checks))
    run = subprocess.run([compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Werror",
                          tmp_path / "check.cpp"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
