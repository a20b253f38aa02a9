"""A board of one's own: the file of the documents, and errors in it before a tool runs."""

import re
from pathlib import Path

import pytest
from hotrow.command import cli
from hotrow_boards import boards
from hotrow_boards.board_file import check
from hotrow_boards.boards import find_board
from hotrow_boards.design import TOP, BoardDesign

PAGE = Path(__file__).parents[2] / "docs" / "boards.md"
(TEXT,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)

pytest.importorskip("amaranth_boards")


@pytest.fixture
def listed(tmp_path, capsys):
    """What `hotrow boards FILE` answers: exit code, output, error."""
    def run(text):
        (tmp_path / "own.toml").write_text(text)
        code = cli.main(["boards", str(tmp_path / "own.toml")])
        return code, *capsys.readouterr()
    return run


def test_the_file_of_the_page(listed):
    code, shown, _ = listed(TEXT)
    assert code == 0 and "ecp5 at 48 MHz, 64 KB of block RAM" in shown


@pytest.mark.slow
def test_a_build_finds_it(tmp_path):
    (tmp_path / "own.toml").write_text(TEXT)
    board = find_board(str(tmp_path / "own.toml"))
    check(board)
    assert board.options == ("--um5g-85k", "--package", "CABGA381", "--speed", "8")
    assert board.config.name == "ecp5-ecp5-evn" and board.links == {"uart": board.uart}
    platform = board.make_platform()
    platform.ram_instances = True
    pins = platform.prepare(BoardDesign(board), name=TOP, emit_src=False).files[f"{TOP}.lpf"]
    assert 'LOCATE COMP "uart_0__rx__io" SITE "P2"' in (
        pins if isinstance(pins, str) else pins.decode())


DRAM = 'dram = {chip = "MT41K64M16", lanes = 2, chip_bytes = 0x8000000}'


@pytest.mark.parametrize("changed, to, complaint", [
    ("clock_mhz = 48", "clock_mhz = 47", "a PLL makes no 47 MHz of 12 MHz"),
    ("clock_mhz = 48", "clock_mhz = 0", "a PLL makes no 0 MHz"),
    ("clock_mhz = 48", 'clock_mhz = "48"', "clock_mhz must be an integer, not '48'"),
    ("clock_mhz = 48", "clock_mhz = true", "clock_mhz must be an integer, not True"),
    ("clock_mhz", "clock_mhs", "unknown key 'clock_mhs': did you mean 'clock_mhz'"),
    ("clock_mhz = 48", "", "clock_mhz missing: see docs/boards.md"),
    ('name = "ecp5-evn"', 'name = "../x"', "name must be of small letters"),
    ("85F", "45F", "LFE5UM5G-45F-8, and the platform's LFE5UM5G-85F-8"),
    ("85F", "45F", "has 108 block RAMs, and the preset ecp5 needs 136"),
    ("85F", "25F", "smaller ones do not hold a card"),
    ("85F-8", "85F-6", "LFE5UM5G-85F-6, and the platform's LFE5UM5G-85F-8"),
    ("CABGA381", "CABGA554", "package is CABGA554, and the platform's BG381"),
    ("ECP55GEVNPlatform", "Evn", "does not exist: .* has no attribute 'Evn'"),
    ("ecp5_5g_evn:", "evn:", "does not exist: .*No module named 'amaranth_boards.evn'"),
    ("ecp5_5g_evn:ECP55GEVNPlatform", "arty_a7:ArtyA7_100Platform", "is not of an ECP5"),
    ("loader = ", "loader = 3 #", "loader must be a list, not 3"),
    ("unused", "rgmii = {tx_delay = 2}\nunused", "rgmii: unknown key 'tx_delay'"),
    ("unused", "rgmii = {}\nunused", "no pins eth_rgmii 0: it has button, .*, uart"),
    ("unused", f"{DRAM}\nunused", "no pins ddr3 0"),
    ("unused", "memory_bytes = 1000\nunused", "memory_bytes must be a power of two"),
    ("unused", 'preset = "ecp6"\nunused', "unknown preset 'ecp6'"),
    ("name", "name name", "is no board file: .*at line 1"),
])
def test_an_error_is_named_before_a_tool_runs(listed, changed, to, complaint):
    assert changed in TEXT
    code, shown, err = listed(TEXT.replace(changed, to, 1))
    assert code == 2 and not shown
    assert err.count("\n") == 1 and re.search(complaint, err), err


@pytest.mark.parametrize("board, changed, to, complaint", [
    ("ecpix5", "lanes = 2", "lanes = 4", "lanes is 4, and dq has 16 pins"),
    ("ecpix5", "chip_bytes = 0x20000000", "chip_bytes = 0x40000000", "the pins reach 536870912"),
    ("ecpix5", "chip_bytes = 0x20000000", "chip_bytes = 0x200", "memory_bytes must be at most"),
    ("ulx3s", "chip_bytes = 0x2000000", "chip_bytes = 0x4000000", "the pins reach 33554432"),
])
def test_memory_that_the_pins_do_not_reach(listed, board, changed, to, complaint):
    text = (Path(boards.__file__).parent / f"{board}.toml").read_text()
    assert changed in text
    code, _, err = listed(text.replace(changed, to))
    assert code == 2 and re.search(complaint, err), err


def test_a_file_that_is_not_there(capsys):
    assert cli.main(["boards", "none.toml"]) == 2
    assert "there is no board file none.toml" in capsys.readouterr().err
