"""Resets, clocks and synchronizers of boards and of the exported card."""

import re
from functools import cache

import pytest
from amaranth import ClockDomain, Elaboratable, Module
from amaranth.back import rtlil
from hotrow_boards import design
from hotrow_boards.boards import BOARDS
from hotrow_boards.uart.port import UartPort
from hotrow_rtl.config import preset
from hotrow_rtl.export import nitefury, pcie_card

from tests.rtl.export.test_export import core_ports, needs_litepcie


class Clocked(Elaboratable):
    """A board's PLL alone."""

    def __init__(self, mhz):
        self.mhz = mhz

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = domain = ClockDomain(reset_less=True)
        m.submodules.clock = design.PllClock(domain, self.mhz)
        return m


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_in_reset_until_its_clock_is_locked_and_its_button_released(name):
    pytest.importorskip("amaranth_boards")
    board = BOARDS[name]
    platform = board.make_platform()
    plan = platform.prepare(Clocked(board.clock_mhz), name="top", emit_src=False)
    text = plan.files["top.il"]
    text = text.decode() if isinstance(text, bytes) else text
    cell = re.search(r"cell \\SGSR \\reset\n(.*?)\n\s*end\n", text, re.S)[1]
    needs = drivers(text, re.search(r"connect \\GSR (.+)", cell)[1].strip())
    locked = re.search(r"connect \\LOCK (\S+)", text)[1]
    assert locked in needs
    button = platform.default_rst is not None
    assert any("rst" in each or "button" in each for each in needs) == button
    [clock] = re.findall(r"connect \\CLKOP (\S+)", text)
    assert re.search(r"connect \\CLK (\S+)", cell)[1] == clock


def drivers(text, name):
    """Names of all signals on which one depends, in RTLIL without registers."""
    found, todo = set(), [name]
    while todo:
        for each in re.findall(r"[\\$][^\s\[\]{}]+", todo.pop()):
            if each in found:
                continue
            found.add(each)
            todo += re.findall(rf"connect {re.escape(each)} (.+)", text)
            for cell in re.findall(r"cell \$\S+ \S+\n(.*?)\n\s*end\n", text, re.S):
                if re.search(rf"connect \\Y {re.escape(each)}\s*$", cell, re.M):
                    todo += re.findall(r"connect \\[AB] (.+)", cell)
    return found


def test_a_serial_line_is_synchronized():
    """The pin reaches the port's logic through two registers in a row only."""
    port = UartPort()
    text = rtlil.convert(port, ports=[port.rx, port.tx])
    top = re.search(r"module \\top\n(.*?)\nend\n", text, re.S)[1]
    cells = re.findall(r"^  cell \S+ (\S+)\n(.*?)^  end$", top, re.M | re.S)
    assert [name for name, body in cells if re.search(r"connect \S+ \\rx ", body, re.M)] == [
        r"\synchronise"]
    synchronizer = re.search(r"module \\top\.synchronise\n(.*?)\nend\n", text, re.S)[1]
    assert synchronizer.count("cell $dff ") == 2


@cache
def _phy(with_dram):
    dram = nitefury.Dram(pcie_card.CardMemory("hotrow_memory", ""), "", "") if with_dram else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pcie_card, "emit", lambda config: core_ports())
        files = nitefury.nitefury_files(preset("tiny"), dram)
    return re.sub(" +", " ", files["pcie_phy.v"])


def assigned(text, name):
    """Names on which a wire depends by continuous assignments."""
    found, todo = set(), [name]
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += [other for right in re.findall(
                rf"^assign {re.escape(each)} = (.*?);$", text, re.M)
                for other in re.findall(r"[A-Za-z_]\w*", right)]
    return found


@pytest.mark.slow
@needs_litepcie
@pytest.mark.parametrize("with_dram", [False, True])
def test_the_exported_card_leaves_its_reset_last(with_dram):
    """Two registers, set at once while the link is in reset or the clock is not there."""
    text = _phy(with_dram)
    preset_cells = re.findall(r"FDPE #\(.*?\) \w+ ?\((.*?)\);", text, re.S)
    pins = [dict(re.findall(r"\.(\w+)\s*\(([^)]*)\)", cell)) for cell in preset_cells]
    [output] = [cell for cell in pins if "rst" in assigned(text, "rst") and cell["Q"] in assigned(
        text, "rst")]
    [input_] = [cell for cell in pins if cell["Q"] == output["D"]]
    assert input_["D"] == "1'd0" and input_["C"] == output["C"]
    assert "sys_clk" in assigned(text, output["C"])
    for cell in (input_, output):
        causes = assigned(text, cell["PRE"])
        assert {"pcie_rst", "user_rst"} <= causes if with_dram else {"pcie_rst"} <= causes
        if not with_dram:
            [locked] = re.findall(r"\.LOCKED\s*\((\w+)\)", text)
            assert any(locked in assigned(text, each) for each in causes)


@needs_litepcie
def test_what_the_card_takes_from_the_link_is_synchronized():
    """Sizes, number and bus master enable pass two registers of the card's clock."""
    text = _phy(False)
    for name in (*pcie_card.STATIC, pcie_card.MASTER):
        [second] = [each for each in assigned(text, name) if "multireg" in each]
        block = re.search(r"always @\(posedge sys_clk\) begin(.*?)^end", text, re.M | re.S)[1]
        first = re.search(rf"^\s*{second} <= (\w+);", block, re.M)[1]
        source = re.search(rf"^\s*{first} <= (\w+)", block, re.M)[1]
        assert "multireg" in first and "multireg" not in source


@pytest.mark.parametrize("name", [name for name, board in BOARDS.items() if board.rgmii])
def test_the_reset_of_an_ethernet_phy_lasts_20_ms(name):
    """From the end of the card's reset, counted in its clock: gigabit PHYs need at most 10 ms."""
    pytest.importorskip("amaranth_boards")
    board = BOARDS[name]
    platform = board.make_platform()
    phy = design.RgmiiPhy(board.rgmii, 1000 * board.clock_mhz)
    plan = platform.prepare(phy, name="top", emit_src=False)
    text = plan.files["top.il"]
    text = text.decode() if isinstance(text, bytes) else text
    width, start = re.search(r"attribute \\init (\d+)'([01]+)\n(?:  attribute.*\n)*"
                             r"  wire width \d+ \\cycles_left\n", text).groups()
    assert int(start, 2) == 20 * 1000 * board.clock_mhz - 1 and int(width) == len(start)


@pytest.mark.parametrize("name", ["tiny", "ecp5"])
def test_a_read_over_pci_express_ends_after_50_ms(monkeypatch, name):
    """At least, in cycles of the card's clock; the bridge's tests let the time-out pass."""
    for part in ("emit", "_bridge"):
        monkeypatch.setattr(pcie_card, part, lambda given: "")
    text = pcie_card.card_files(preset(name))["card.v"]
    [cycles] = re.findall(r"\.timeout\(32'd(\d+)\)", text)
    assert int(cycles) == 0.05 * preset(name).clock_mhz * 1e6 < 1 << 32
