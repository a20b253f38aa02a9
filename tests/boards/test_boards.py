"""The boards, `hotrow boards`, `hotrow build` and `hotrow flash`, with stand-ins for the tools."""

import json
import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hotrow import cli
from hotrow_boards import design
from hotrow_boards.boards import BOARDS
from hotrow_boards.build import TOOLS, _slowest, build, write_files
from hotrow_boards.clocking import pll_dividers
from hotrow_boards.synthesis import RESOURCES
from hotrow_boards.tools import run, tool

from tests.boards.generators import needs_litedram

ROOT = Path(__file__).parents[2]
EVERY_BOARD = pytest.mark.parametrize("name", BOARDS)


@pytest.fixture
def hotrow(capsys, monkeypatch):
    """Run a command: (exit code, its JSON object or the text, standard error)."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    monkeypatch.setattr(cli, "commands", lambda: {
        name: EntryPoint(name, value, cli.GROUP) for name, value in declared[cli.GROUP].items()})

    def run(*arguments):
        code = cli.main(list(arguments))
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


@pytest.fixture
def quick(monkeypatch):
    """Designs are not written."""
    monkeypatch.setattr(design, "sources", lambda board, memory: {
        "top.il": "il", "top.lpf": "pins", "core.v": f"{board.name} {memory}"})


@EVERY_BOARD
def test_a_board_is_what_its_platform_says(name):
    board = BOARDS[name]
    platform = pytest.importorskip("amaranth_boards") and board.make_platform()
    device, _, speed = board.device.rpartition("-")
    assert (platform.device, platform.speed) == (device, speed)
    assert board.options[0] == "--" + {"LFE5UM5G": "um5g-", "LFE5UM": "um-", "LFE5U": ""}[
        device.split("-")[0]] + device.split("-")[1].lower().replace("f", "k")
    assert board.options[-1] == speed and platform.package[-3:] == board.options[2][-3:]
    assert pll_dividers(round(platform.default_clk_frequency / 1e6), board.clock_mhz)
    assert board.config.clock_mhz == board.clock_mhz and set(board.capacity) == set(RESOURCES)
    # Two queues of a few commands, staging for both ways, and tables beside them.
    assert board.memory_bytes >= 1 << 16


@EVERY_BOARD
def test_the_memory_is_as_large_as_its_pins_say(name):
    """Rows by the address pins, columns by the kind: 1024 of DDR3, 512 of SDRAM."""
    platform = pytest.importorskip("amaranth_boards") and BOARDS[name].make_platform()
    kind, columns = ("ddr3", 1024) if ("ddr3", 0) in platform.resources else ("sdram", 512)
    pins = {each.name: len(each.ios[0].names) for each in platform.resources[kind, 0].ios
            if each.name in ("a", "ba", "dq")}
    octets = columns * pins["dq"] // 8 << pins["a"] + pins["ba"]
    if kind == "ddr3":
        assert BOARDS[name].dram.chip_bytes == octets and BOARDS[name].dram.pins == kind
        assert BOARDS[name].dram.lanes == pins["dq"] // 8
    else:
        said = re.search(r"(\d+) MB of SDRAM \(MT4", BOARDS[name].unused)[1]
        assert int(said) << 20 == octets


@pytest.mark.parametrize("name", [
    "ulx3s", *(pytest.param(name, marks=pytest.mark.long) for name in BOARDS if name != "ulx3s")])
def test_a_board_elaborates(name):
    """Pins, clock, link, memory: all but the core's own Verilog."""
    pytest.importorskip("amaranth_boards")
    platform = BOARDS[name].make_platform()
    platform.ram_instances = True
    plan = platform.prepare(design.BoardDesign(BOARDS[name]), name=design.TOP, emit_src=False)
    text = plan.files["top.il"].decode() if isinstance(plan.files["top.il"], bytes) \
        else plan.files["top.il"]
    assert text.count("cell \\EHXPLLL") == 1 and text.count("cell \\hotrow ") == 1
    pins = plan.files["top.lpf"]
    assert "uart_0__rx" in (pins.decode() if isinstance(pins, bytes) else pins)


def test_the_list(hotrow):
    code, shown, _ = hotrow("boards")
    assert code == 0 and all(board.title in shown for board in BOARDS.values())
    _, listed, _ = hotrow("boards", "--json")
    assert [each["board"] for each in listed["boards"]] == list(BOARDS)
    assert "128 KB of block RAM or 64 MB of DRAM" in shown
    assert [each["memories"] for each in listed["boards"]] == [
        board.memories for board in BOARDS.values()]


def test_a_build(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"1": 71.24})
    folder = tmp_path / "made"
    code, result, err = hotrow("build", "--board", "ecpix5", "-o", str(folder), "--json")
    assert code == 0 and result.pop("seconds").keys() == {
        "design", "synthesis", "routing", "packing"}
    bitstream = folder / "hotrow-ecpix5.bit"
    assert bitstream.read_bytes() == b"bits of routed"
    assert result == {
        "board": "ecpix5", "memory": "block", "device": "LFE5UM5G-85F-8", "luts": 150, "ffs": 77,
        "bram": 3, "dsp": 2, "fmax_mhz": 71.2, "clock_mhz": 50,
        "bitstream": str(bitstream), "bitstream_bytes": 14, "seed": 1}
    assert "--um5g-85k --package CABGA554 --speed 8" in tools.asked[0]
    assert "--lpf top.lpf" in tools.asked[0] and "synthesis ..." in err
    assert "read_rtlil top.il\nread_verilog -sv core.v" in (folder / "synthesis.ys").read_text()
    code, shown, _ = hotrow("build", "--board", "ecpix5", "-o", str(folder))
    assert code == 0 and "150 of 83,640 luts" in shown and "71.2 MHz after routing" in shown


def test_a_build_with_dram(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"1": 60})
    code, result, _ = hotrow("build", "--board", "ecpix5", "--memory", "dram", "-o", str(tmp_path),
                             "--json")
    assert code == 0 and result["memory"] == "dram"
    assert (tmp_path / "core.v").read_text() == "ecpix5 dram"


def test_a_board_without_a_dram_for_the_card(hotrow, tools, tmp_path):
    pytest.importorskip("amaranth_boards")
    code, _, err = hotrow("build", "--board", "ulx3s", "--memory", "dram", "-o", str(tmp_path))
    assert code == 2 and "ULX3S 85F has no memory 'dram' for the card: expected block" in err


@pytest.mark.parametrize("clocks, slowest", [
    ({"card": (60, 50)}, 60), ({"card": (60, 50), "start": (30, 25)}, 60),
    ({"card": (60, 50), "start": (20, 25)}, 40)])
def test_the_slowest_of_several_clocks(clocks, slowest):
    report = {"fmax": {name: {"achieved": achieved, "constraint": constraint}
                       for name, (achieved, constraint) in clocks.items()}}
    assert _slowest(report, 50) == slowest


@needs_litedram
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ecpix5", pytest.param("versa-5g", marks=pytest.mark.long)])
def test_a_design_with_dram(name, tmp_path):
    """The controller's pins are placed; Yosys reads the design, and finds all that it names."""
    pytest.importorskip("amaranth_boards")
    made = design.sources(BOARDS[name], "dram")
    pins = made["top.lpf"]
    for bits in (*(f"dq__io[{bit}]" for bit in range(16)), "dqs__p[0]", "dqs__p[1]", "clk__p"):
        assert f'LOCATE COMP "ddr3_0__{bits}"' in pins
    terminated = re.findall(r'PORT "ddr3_0__(\w+?)__\w+(?:\[\d+\])?" .*TERMINATION=75', pins)
    assert set(terminated) == {"dq"} and len(terminated) == 16
    write_files(made, tmp_path)
    try:
        yosys = tool("yosys")
    except ValueError as missing:
        pytest.skip(str(missing))
    run([yosys, "-q", "-p", "read_verilog -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v; "
         "read_rtlil top.il; read_verilog -sv core.v; hierarchy -check -top top; proc; "
         "check -assert litedram"], tmp_path, "check.log")


def test_a_design_that_is_too_slow(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"7": 49.9})
    code, _, err = hotrow("build", "--board", "ecpix5", "-o", str(tmp_path), "--seed", "7")
    assert code == 2 and "needs 50 MHz, and the routed design reaches 49.9: try another" in err
    assert not list(tmp_path.glob("*.bit"))


def test_a_design_that_is_too_large(hotrow, tools, quick, tmp_path):
    tools.answer(cells={"LUT4": 43_849})
    code, _, err = hotrow("build", "--board", "versa-5g", "-o", str(tmp_path))
    assert code == 2 and "does not fit into LFE5UM5G-45F-8: it takes 43,849 luts of 43,848" in err


def test_missing_tools(hotrow, no_tools, quick, tmp_path):
    code, _, err = hotrow("build", "--board", "ulx3s", "-o", str(tmp_path))
    assert code == 2 and "yosys is not installed: pip install 'hotrow[boards]'" in err


@pytest.mark.parametrize("command", ["build", "flash"])
def test_an_unknown_board(hotrow, command):
    code, _, err = hotrow(command, "--board", "nexys")
    assert code == 2 and "unknown board 'nexys': expected one of ecpix5, versa-5g" in err


def test_flashing(hotrow, tools, tmp_path):
    bitstream = tmp_path / "some.bit"
    bitstream.write_bytes(b"bits")
    code, shown, _ = hotrow("flash", "--board", "ulx3s", str(bitstream))
    assert code == 0 and "is on the Radiona ULX3S 85F" in shown
    assert hotrow("flash", "--board", "ulx3s", "--keep", str(bitstream))[0] == 0
    assert tools.asked == [f"--board ulx3s {bitstream}", f"--board ulx3s --write-flash {bitstream}"]


def test_flashing_what_is_not_there(hotrow, tools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = hotrow("flash", "--board", "ecpix5")
    assert code == 2 and "no bitstream build/ecpix5/hotrow-ecpix5.bit: build it with " in err
    bitstream = tmp_path / "some.bit"
    bitstream.write_bytes(b"bits")
    (tools.folder / "absent").touch()
    code, _, err = hotrow("flash", "--board", "ecpix5", str(bitstream))
    assert code == 2 and "(unable to open ftdi device: -3 (device not found)): is the board" in err
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = hotrow("flash", "--board", "ecpix5", str(bitstream))
    assert code == 2 and "openFPGALoader is not installed: apt install openfpgaloader" in err


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name, memory", [
    *((name, "block") for name in BOARDS),
    pytest.param("ecpix5", "dram", marks=needs_litedram)])
def test_a_bitstream_for_real(name, memory, tmp_path):
    """Synthesised, placed, routed and packed: it fits, and is fast enough for its clock."""
    pytest.importorskip("amaranth_boards")
    for program in TOOLS:
        try:
            tool(program)
        except ValueError as missing:
            pytest.skip(str(missing))
    board = BOARDS[name]
    result = build(board, tmp_path, memory=memory)
    assert result["fmax_mhz"] >= board.clock_mhz == result["clock_mhz"]
    for resource, room in board.capacity.items():
        assert 0 < result[resource] <= room
    bitstream = Path(result["bitstream"])
    assert bitstream.stat().st_size == result["bitstream_bytes"] > 100_000
    assert board.device.split("-")[0].encode() in bitstream.read_bytes()[:200]


@pytest.mark.parametrize("given, wanted", [
    (100, 50), (100, 40), (25, 25), (25, 50), (100, 100), (48, 60)])
def test_dividers_of_the_pll(given, wanted):
    input_divider, feedback, output_divider = pll_dividers(given, wanted)
    assert given * feedback == wanted * input_divider
    assert 400 <= wanted * output_divider <= 800 and given / input_divider >= 10


def test_a_clock_that_no_pll_makes():
    with pytest.raises(ValueError, match="no 5000 MHz of 25 MHz"):
        pll_dividers(25, 5000)
    with pytest.raises(ValueError, match="no 40 MHz of 25 MHz"):
        pll_dividers(25, 40)  # 8 / 5, and a fifth of the input is too slow
