"""`hotrow generate --format`: the vendors' files agree with the Verilog."""

import importlib.util
import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
from hotrow_rtl import cli
from hotrow_rtl.config import preset
from hotrow_rtl.contract.registers import REGISTERS
from hotrow_rtl.emit import litex_generator as litex_core
from hotrow_rtl.export import FILES, ipxact, nitefury, pcie_card, vivado, xrt
from hotrow_rtl.export.fusesoc import fusesoc_files
from hotrow_rtl.export.interfaces import buses, ports_of
from hotrow_rtl.mover.addressing.port_interleave import row_port

from tests.rtl.emit.test_verilog import verilog as emitted

TINY = preset("tiny")
CHANNELS, CHANNEL_BYTES = 32, 512 << 20  # of the U55C's HBM
MISSING = [name for name in (*nitefury.MODULES, *litex_core.MODULES)
           if importlib.util.find_spec(name) is None]
needs_litepcie = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} missing: pip install 'hotrow[litepcie]'")
SPIRIT = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"
PORT = re.compile(r"^\s*(input|output) (?:wire |reg )?(?:\[(\d+):0\] )?(\w+)", re.M)


@pytest.fixture
def core(monkeypatch):
    """The core's ports in place of its Verilog."""
    text = core_ports()
    for module in (ipxact, pcie_card, vivado, xrt):
        monkeypatch.setattr(module, "emit", lambda config: text)
    return text


def stub(module, ports):
    """A module with its ports only."""
    return f"module {module}(\n  " + ",\n  ".join(
        f"{direction} [{bits - 1}:0] {name}" for name, direction, bits in sorted(ports)
    ) + "\n);\nendmodule\n"


def core_ports(config=TINY):
    """The core with its ports only; test_interfaces compares them with the Verilog."""
    ports = ["input clk", "input rst", "output interrupt"]
    ports += [f"{'output' if port.output else 'input'} [{port.bits - 1}:0] {port.name}"
              for bus in buses(config) for port in bus.ports]
    return "module hotrow(\n  " + ",\n  ".join(ports) + "\n);\nendmodule\n"


def verilog_ports(text, module):
    """(name, direction, bits) of a module's ports in Verilog."""
    body = re.search(rf"^module {module}\s*\(.*?^endmodule", text, re.M | re.S)[0]
    return {(name, direction, int(high or 0) + 1) for direction, high, name in PORT.findall(body)}


@pytest.mark.slow
def test_interfaces_are_the_ports_of_the_verilog():
    verilog = emitted("tiny")
    listed = {(port.name, "output" if port.output else "input", port.bits)
              for bus in buses(TINY) for port in bus.ports}
    assert listed == {port for port in verilog_ports(verilog, "hotrow")
                      if port[0] not in ("clk", "rst", "interrupt")}
    assert verilog_ports(verilog, "hotrow") == verilog_ports(core_ports(), "hotrow")


def test_directions_of_the_interfaces():
    assert [(bus.name, bus.reads, bus.writes) for bus in buses(TINY)] == [
        ("s_axil", True, True), ("m_axi_list", True, False), ("m_axi_result0", False, True),
        ("m_axi_row0", True, True), ("m_axi_row1", True, True)]
    assert [bus.name for bus in buses(preset("alveo-u55c"))].count("m_axi_row3") == 1


def test_ipxact(core):
    files = FILES["ipxact"](TINY)
    root = ElementTree.fromstring(files["component.xml"])
    named = {
        (port.find(f"{SPIRIT}name").text, f"{port.find(f'.//{SPIRIT}direction').text}put",
         int(port.findtext(f".//{SPIRIT}left", "0")) + 1)
        for port in root.iter(f"{SPIRIT}port")}
    assert named == verilog_ports(core, "hotrow")
    mapped = {name.text for name in root.findall(f".//{SPIRIT}physicalPort/{SPIRIT}name")}
    assert mapped == {name for name, _, _ in named}
    offsets = {register.find(f"{SPIRIT}name").text:
               int(register.find(f"{SPIRIT}addressOffset").text, 0)
               for register in root.iter(f"{SPIRIT}register")}
    assert offsets == {name: each.offset for name, each in REGISTERS.items()
                       if each.needs is None or getattr(TINY, each.needs)}
    files_named = [name.text for name in root.findall(f".//{SPIRIT}file/{SPIRIT}name")]
    assert files_named == [name for name in files if name.endswith(".v")]
    spaces = {name.text for name in root.findall(f".//{SPIRIT}addressSpace/{SPIRIT}name")}
    assert spaces == {each.get(f"{SPIRIT}addressSpaceRef")
                      for each in root.iter(f"{SPIRIT}addressSpaceRef")}


def test_xrt(core):
    files = FILES["xrt"](TINY)
    root = ElementTree.fromstring(files["kernel.xml"])
    kernel = root.find("kernel")
    assert kernel.get("hwControlProtocol") == "user_managed"
    ports = {port.get("name"): port for port in root.iter("port")}
    assert list(ports) == ["s_axi_control", "m_axi_list", "m_axi_result0", "m_axi_row0",
                           "m_axi_row1"]
    assert ports["m_axi_row0"].get("dataWidth") == "128"
    assert [each.get("port") for each in root.iter("arg")] == list(ports)[1:]
    wrapper = {(name.replace("s_axi_control", "s_axil"), direction, bits) for name, direction, bits
               in verilog_ports(files["hotrow_kernel.v"], "hotrow_kernel")}
    assert {port for port in wrapper if "axi" in port[0]} == {
        port for port in verilog_ports(core, "hotrow") if "axi" in port[0]}
    assert {("ap_clk", "input", 1), ("ap_rst_n", "input", 1)} < wrapper


@pytest.mark.parametrize("name", ["tiny", "alveo-u55c"])
def test_every_row_reaches_its_memory(name):
    """The port of a row has a path to every HBM channel and to the host, by kernel.xml and
    link.cfg."""
    config = preset(name)
    found = buses(config)
    root = ElementTree.fromstring(xrt._description(found))
    reached, path = {}, r"^sp=hotrow\.(\w+):(HBM|HOST)\[(\d+)(?::(\d+))?\]$"
    for port, kind, low, high in re.findall(path, xrt._linking(config, found), re.M):
        reached.setdefault(port, set()).update(
            (kind, channel) for channel in range(int(low), int(high or low) + 1))
    assert set(reached) == {each.get("port") for each in root.iter("arg")}
    assert all(("HOST", 0) in memories for memories in reached.values())
    random = np.random.default_rng(5)
    rows = random.integers(0, CHANNELS * CHANNEL_BYTES, 100_000) // 16 * 16
    for port in range(config.row_ports):
        carried = rows[row_port(config, rows) == port]
        asked = {("HBM", channel) for channel in np.unique(carried // CHANNEL_BYTES).tolist()}
        assert len(asked) == CHANNELS and asked <= reached[f"m_axi_row{port}"]
    ranges = {port.get("name"): int(port.get("range"), 16) for port in root.iter("port")}
    assert all(ranges[f"m_axi_row{port}"] >= rows.max() for port in range(config.row_ports))


@pytest.mark.parametrize("name, row, lists, results", [
    ("tiny", (64, 4, 8), (4, 1024, 0), (4, 0, 256)),
    ("alveo-u55c", (64, 1024, 1024), (16, 256, 0), (16, 0, 256))])
def test_the_package_states_clock_and_traffic(name, row, lists, results):
    config = preset(name)
    text = xrt._packaging(config, "core.v", buses(config))
    stated = {(port, parameter): int(value) for port, parameter, value
              in re.findall(r"^parameter (\w+) (\w+) (\d+)$", text, re.M)}
    assert stated.pop(("ap_clk", "FREQ_HZ")) == config.clock_mhz * 1_000_000
    expected = {"m_axi_list": lists,
                **{f"m_axi_result{port}": results for port in range(config.result_ports)},
                **{f"m_axi_row{port}": row for port in range(config.row_ports)}}
    assert stated == {(port, parameter): value for port, values in expected.items()
                      for parameter, value in zip(
                          ("MAX_BURST_LENGTH", "NUM_READ_OUTSTANDING", "NUM_WRITE_OUTSTANDING"),
                          values, strict=True)}


def test_the_kernel_elaborates(monkeypatch, tmp_path):
    """Icarus connects every port of the core, at its width."""
    iverilog = shutil.which("iverilog")
    if not iverilog:
        pytest.skip("iverilog is not installed")
    monkeypatch.setattr(xrt, "emit", lambda config: "")
    text = FILES["xrt"](TINY)["hotrow_kernel.v"] + core_ports()

    def said(text):
        (tmp_path / "kernel.v").write_text(text)
        done = subprocess.run([iverilog, "-g2012", "-Wall", "-Wno-timescale", "-t", "null", "-s",
                               "hotrow_kernel", tmp_path / "kernel.v"],
                              capture_output=True, text=True)
        return done.stdout + done.stderr

    assert not said(text)
    for right, wrong in ((".m_axi_list_arready(m_axi_list_arready),", ""),
                         ("output wire [63:0] m_axi_list_araddr", "output wire m_axi_list_araddr")):
        assert right in text and said(text.replace(right, wrong)), right


def test_the_bench_of_fusesoc_has_every_port(tmp_path):
    """Icarus runs it beside a card whose outputs are undefined, which it reports."""
    iverilog = shutil.which("iverilog")
    if not iverilog:
        pytest.skip("iverilog is not installed")
    files = fusesoc_files("cards", "tiny", "hotrow", "tiny.v", ports_of(TINY))
    assert sorted(files) == ["hotrow_smoke.v", "tiny.core"]
    (tmp_path / "all.v").write_text(files["hotrow_smoke.v"] + core_ports())
    done = subprocess.run([iverilog, "-g2012", "-Wall", "-Wno-timescale", "-s", "hotrow_smoke",
                           "-o", tmp_path / "bench", tmp_path / "all.v"],
                          capture_output=True, text=True)
    assert not done.returncode and not done.stdout + done.stderr, done.stderr
    done = subprocess.run(["vvp", "-n", tmp_path / "bench"], capture_output=True, text=True)
    assert done.returncode and "an undefined valid or ready" in done.stdout + done.stderr


@pytest.mark.slow
@needs_litepcie
def test_nitefury(core, tmp_path):
    """All ports of LitePCIe's PHY, the bridge and the accelerator are connected, with the right
    width; every port of the design has a pin."""
    files = FILES["nitefury"](TINY)
    pins = verilog_ports(files["hotrow_nitefury.v"], "hotrow_nitefury")
    phy = verilog_ports(re.sub(" +", " ", files["pcie_phy.v"]), "pcie_phy")
    assert {port for port in pins if port[0] != "pcie_clkreq_n"} == {
        port for port in phy if port[0].startswith("pcie_")}
    placed = re.findall(r"PACKAGE_PIN (\w+) \[get_ports \{(\w+)", files["card.xdc"])
    assert len({place for place, _ in placed}) == len(placed) == sum(bits for *_, bits in pins)
    assert {name for _, name in placed} == {name for name, *_ in pins}
    bridge = verilog_ports(files["bridge.v"], "hotrow_bridge")
    for file, module, ports in (
            ("hotrow_nitefury.v", "pcie_phy", phy),
            ("hotrow_nitefury.v", "hotrow_card", verilog_ports(files["card.v"], "hotrow_card")),
            ("card.v", "hotrow_bridge", bridge),
            ("card.v", "hotrow", verilog_ports(core, "hotrow"))):
        instance = re.search(rf"^  {module} \w+ \((.*?)\);", files[file], re.M | re.S)[1]
        assert sorted(re.findall(r"\.(\w+)\(", instance)) == sorted(name for name, *_ in ports)
    core_side = {(port.name, "input" if port.output else "output", port.bits)
                 for bus in buses(TINY) for port in bus.ports}
    assert core_side == {port for port in bridge if port[0].startswith(("m_axi", "s_axil"))}
    assert not re.search(r"20\d\d-\d\d-\d\d", "".join(files.values())), "another text every day"
    assert "CONFIG.Bar0_Size" in files["build.tcl"] and "pcie_7x" in files["build.tcl"]
    # The card's clock has the configuration's frequency, and the constraints name its output.
    mmcm = re.search(r"MMCME2_ADV #\((.*?)\) MMCME2_ADV \(", files["pcie_phy.v"], re.S)[1]
    multiply, divide = (int(re.search(rf"\.{name}\s*\(\d'd(\d+)\)", mmcm)[1])
                        for name in ("CLKFBOUT_MULT_F", "CLKOUT4_DIVIDE"))
    assert 100 * multiply / divide == TINY.clock_mhz
    assert "MMCME2_ADV/CLKOUT4" in files["card.xdc"]
    iverilog = shutil.which("iverilog")
    if not iverilog:
        pytest.skip("iverilog is not installed")
    design = (files["hotrow_nitefury.v"] + files["card.v"]
              + stub("hotrow_bridge", bridge) + stub("pcie_phy", phy))

    def said(text):
        (tmp_path / "card.v").write_text(text)
        done = subprocess.run([iverilog, "-g2012", "-Wall", "-Wno-timescale", "-t", "null", "-s",
                               "hotrow_nitefury", tmp_path / "card.v"],
                              capture_output=True, text=True)
        return done.stdout + done.stderr

    assert not said(design + core)
    for right, wrong in ((".m_axi_list_arready(m_axi_list_arready),", ""),
                         ("wire [132:0] sent;", "wire [131:0] sent;"),
                         (".sink_valid(sink_valid),", "")):
        assert right in design and said(design.replace(right, wrong) + core), right


def test_a_bus_too_wide_for_the_link():
    with pytest.raises(ValueError, match=r"bus of 8 or 16 bytes, and alveo-u55c has 64"):
        FILES["nitefury"](preset("alveo-u55c"))


def test_a_missing_generator_is_named(monkeypatch):
    monkeypatch.setattr(nitefury, "MODULES", ("no_such_module",))
    with pytest.raises(ValueError, match=r"no_such_module.*pip install 'hotrow\[litepcie\]'"):
        FILES["nitefury"](TINY)


@pytest.mark.parametrize("kind, scripts", [
    ("vivado", ["synthesise.tcl"]), ("xrt", ["package.tcl"]),
    pytest.param("nitefury", ["build.tcl"], marks=needs_litepcie)])
def test_scripts_are_tcl_and_name_existing_files(core, kind, scripts, tmp_path):
    """A Tcl procedure replaces each command of the vendor's tool and prints its arguments."""
    tclsh = shutil.which("tclsh")
    if not tclsh:
        pytest.skip("tclsh is not installed")
    files = FILES[kind](TINY)
    for name in scripts:
        (tmp_path / name).write_text(files[name])
        words = "package require Tcl\nset argv {}\nproc unknown args { puts $args; return $args }\n"
        (tmp_path / "play.tcl").write_text(f"{words}source {{{tmp_path / name}}}\n")
        done = subprocess.run([tclsh, tmp_path / "play.tcl"], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        for path in re.findall(rf"{re.escape(str(tmp_path))}/(\S+?)[\s}}]", done.stdout + " "):
            assert path in files, f"{name} names {path}"
        assert (nitefury.BOARD["part"] if kind == "nitefury" else vivado.U55C) in done.stdout


TOOL = """\
#!/bin/sh
echo "$(basename $0)" "$@"
for each; do
  case "$before" in
    --fasm|--output_file) echo made > $each ;;
    -s) for name in $(sed -n 's/^write_json //p' $each); do echo {} > $name; done ;;
  esac
  before=$each
done
"""


@pytest.mark.slow
@needs_litepcie
def test_the_makefile_runs_the_open_tools(core, tmp_path):
    """Scripts replace the tools: each gets the file that the one before it wrote."""
    make = shutil.which("make")
    if not make:
        pytest.skip("make is not installed")
    files = FILES["nitefury"](TINY)
    (tmp_path / "pcie_s7").mkdir()
    (tmp_path / "pcie_s7" / "pipe.v").write_text("")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name in ("yosys", "nextpnr-xilinx", "fasm2frames", "xc7frames2bit"):
        (tmp_path / name).write_text(TOOL)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([make, "-s", "PRJXRAY_DB=db"], cwd=tmp_path, capture_output=True,
                          text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    part, top = nitefury.BOARD["part"], "hotrow_nitefury"
    assert done.stdout.splitlines() == [
        "yosys -q -s synthesis.ys pcie_s7/pipe.v",
        f"nextpnr-xilinx --chipdb xc7a200tfbg484.bin --xdc card.xdc --json {top}.json "
        f"--fasm {top}.fasm",
        f"xc7frames2bit --part_file db/{part}/part.yaml --part_name {part} "
        f"--frm_file {top}.frames --output_file {top}.bit"]
    assert (tmp_path / f"{top}.frames").read_text() == (
        f"fasm2frames --part {part} --db-root db {top}.fasm\n")
    read = re.search("^read_verilog -sv (.*)$", files["synthesis.ys"], re.M)[1].split()
    assert read == [name for name in files if name.endswith(".v")]


def test_the_command_writes_the_files_of_a_format(core, tmp_path, capsys):
    import argparse

    parser = argparse.ArgumentParser()
    cli.generate(parser.add_subparsers(required=True))
    options = parser.parse_args(["generate", "--preset", "tiny", "--format", "vivado",
                                 "-o", str(tmp_path)])
    assert options.run(options) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "tiny.v", "tiny.json", "synthesise.tcl", "clock.xdc"}
    assert "create_clock -name clk -period 20.000" in (tmp_path / "clock.xdc").read_text()
    capsys.readouterr()
