"""The NiteFury II with its DRAM: every port connected, every pin placed."""

import re
import shutil
import subprocess

import pytest
from hotrow.command import cli
from hotrow_boards import nitefury
from hotrow_rtl.config import preset
from hotrow_rtl.export import pcie_card
from hotrow_rtl.export.interfaces import buses

from tests.boards.generators import needs_litedram
from tests.rtl.export.test_export import needs_litepcie, stub, verilog_ports

pytestmark = [needs_litedram, needs_litepcie, pytest.mark.slow]
CONFIG = preset("ecp5")
TOP = "hotrow_nitefury"


@pytest.fixture(scope="module")
def files():
    """The design, without the accelerator's Verilog."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pcie_card, "emit", lambda config: "")
        return {name: re.sub(" +", " ", text)
                for name, text in nitefury.files_with_dram(CONFIG).items()}


def test_every_port_is_connected(files, tmp_path):
    """Of the controller, the PHY, the memory, the bridge and the accelerator, by Icarus."""
    iverilog = shutil.which("iverilog")
    if not iverilog:
        pytest.skip("iverilog is not installed")
    core = {(port.name, "output" if port.output else "input", port.bits)
            for bus in buses(CONFIG) for port in bus.ports}
    modules = {
        **{name: verilog_ports(files[f"{name}.v"], name) for name in ("litedram", "pcie_phy")},
        "hotrow_bridge": verilog_ports(files["bridge.v"], "hotrow_bridge"),
        "hotrow_memory": verilog_ports(files["memory.v"], "hotrow_memory"),
        "hotrow": core | {("clk", "input", 1), ("rst", "input", 1), ("interrupt", "output", 1)},
        "IBUFDS": {("I", "input", 1), ("IB", "input", 1), ("O", "output", 1)}}
    design = files[f"{TOP}.v"] + files["card.v"]
    modules["litedram"] |= {
        (name, "inout", int(high or 0) + 1) for high, name in re.findall(
            r"^ inout wire (?:\[(\d+):0\] )?(\w+)", files["litedram.v"], re.M)}
    for module, ports in modules.items():
        instance = re.search(rf"^ {module} \w+ \((.*?)\);$", design, re.M | re.S)[1]
        assert sorted(re.findall(r"\.(\w+)\(", instance)) == sorted(name for name, *_ in ports)
    stubs = "".join(stub(name, ports) for name, ports in modules.items())

    def said(text):
        (tmp_path / "card.v").write_text(text + stubs)
        done = subprocess.run([iverilog, "-g2012", "-Wall", "-Wno-timescale", "-t", "null", "-s",
                               TOP, tmp_path / "card.v"], capture_output=True, text=True)
        return done.stdout + done.stderr

    assert not said(design)
    for right, wrong in ((".wb_ctrl_cyc(dram_control_cyc),", ""),
                         (".rst(link_rst), .user_clk", ".rst(), .user_clk"),
                         (".host_m_axi_list_rdata(host_m_axi_list_rdata),", ""),
                         (".m_axi_row0_araddr(host_m_axi_row0_araddr)", ".m_axi_row0_araddr()"),
                         ("wire [29:0] dram_read_araddr", "wire [28:0] dram_read_araddr")):
        assert right in design and said(design.replace(right, wrong)), right


def test_every_pin_has_a_place_and_a_standard(files):
    pins = re.findall(r"^ (?:input|output|inout) wire (?:\[(\d+):0\] )?(\w+)",
                      files[f"{TOP}.v"], re.M)
    bits = {f"{name}[{bit}]" if high else name for high, name in pins
            for bit in range(int(high or 0) + 1)}
    kinds = {kind: {name: value for value, name in re.findall(
        rf"^set_property {kind} (\w+) \[get_ports {{(\S+)}}\]", files["card.xdc"], re.M)}
        for kind in ("PACKAGE_PIN", "IOSTANDARD")}
    assert set(kinds["PACKAGE_PIN"]) == bits
    assert len(set(kinds["PACKAGE_PIN"].values())) == len(bits)
    assert bits - set(kinds["IOSTANDARD"]) == {
        bit for bit in bits if bit.startswith(("pcie_clk_", "pcie_rx", "pcie_tx"))}
    assert "create_clock -name clk200 -period 5.000" in files["card.xdc"]


def test_the_command(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nitefury, "files_with_dram", lambda config: files)
    assert cli.main(["build", "--board", "nitefury", "-o", str(tmp_path)]) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files
    assert "neither has been run" in capsys.readouterr().out
    assert cli.main(["build", "--board", "nitefury", "--link", "udp"]) != 0
    assert "takes no --link and no --memory" in capsys.readouterr().err


def test_the_clocks_of_the_card_are_the_controllers(files):
    """The PHY makes no clock of its own, and a reset of the link resets all."""
    assert "CLKOUT4 (" not in re.search(r"MMCME2_ADV #\(.*?\);", files["pcie_phy.v"], re.S)[0]
    assert ".rst(link_rst), .user_clk(clk), .user_rst(user_rst)" in files[f"{TOP}.v"]
    for name in ("memory.v", "litedram.v"):
        assert name in files["build.tcl"] and name in files["synthesis.ys"]
