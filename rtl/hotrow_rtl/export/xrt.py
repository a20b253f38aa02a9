"""The accelerator as an RTL kernel of Vitis: wrapper, kernel description, packaging, linking.

The kernel is "user managed": the host accesses the registers itself. Source: AMD UG1393, RTL
kernels.
"""

from xml.etree import ElementTree

from ..config import Config
from ..contract.encoding import VERSION
from ..contract.registers import REGISTER_SPACE, REGISTERS
from ..emit.verilog import TOP_MODULE, emit
from .interfaces import CONTROL, buses
from .vivado import U55C

_KERNEL, _CONTROL = "hotrow_kernel", "s_axi_control"
_HBM_CHANNELS = 32


def xrt_files(config: Config) -> dict[str, str]:
    """`hotrow_kernel.v`, `kernel.xml`, `package.tcl`, `link.cfg` and the core's Verilog."""
    verilog, found = f"{config.name}.v", buses(config)
    return {f"{_KERNEL}.v": _wrapper(found), "kernel.xml": _description(found),
            "package.tcl": _packaging(config, verilog, found), "link.cfg": _linking(config, found),
            verilog: emit(config)}


def _kernel_name(bus, port):
    """The name of a port in Vitis."""
    return port.name if bus.master else f"{_CONTROL}{port.name.removeprefix(CONTROL)}"


def _wrapper(found):
    """The core with clock, reset and control port under the names that Vitis requires."""
    ports = ["  input wire ap_clk", "  input wire ap_rst_n", "  output wire interrupt"]
    connections = [".clk(ap_clk)", ".rst(reset)", ".interrupt(interrupt)"]
    for bus in found:
        for port in bus.ports:
            width = f"[{port.bits - 1}:0] " if port.bits > 1 else ""
            name = _kernel_name(bus, port)
            ports.append(f"  {'output' if port.output else 'input'} wire {width}{name}")
            connections.append(f".{port.name}({name})")
    joined_ports, joined = ",\n".join(ports), ",\n    ".join(connections)
    return f"""\
// hotrow as a kernel: written by `hotrow generate --format xrt`.
module {_KERNEL} (
{joined_ports}
);
  reg reset = 1'b1;
  always @(posedge ap_clk) reset <= ~ap_rst_n;
  {TOP_MODULE} core (
    {joined});
endmodule
"""


def _description(found):
    root = ElementTree.Element("root", versionMajor="1", versionMinor="6")
    kernel = ElementTree.SubElement(
        root, "kernel", name=_KERNEL, language="ip",
        vlnv=f"hotrow:accelerator:{_KERNEL}:{VERSION}.0", attributes="",
        preferredWorkGroupSizeMultiple="0", workGroupSize="1", interrupt="true",
        hwControlProtocol="user_managed")
    ports = ElementTree.SubElement(kernel, "ports")
    for bus in found:
        ElementTree.SubElement(
            ports, "port", name=bus.name if bus.master else _CONTROL,
            mode="master" if bus.master else "slave",
            range=f"0x{(1 << bus.address_bits) - 1 if bus.master else REGISTER_SPACE:X}",
            dataWidth=str(bus.data_bits), portType="addressable", base="0x0")
    # The linker assigns memory by argument, so each port has one. The driver does not use them; all
    # have the offset of the register of a region's base.
    arguments = ElementTree.SubElement(kernel, "args")
    for number, bus in enumerate(bus for bus in found if bus.master):
        ElementTree.SubElement(
            arguments, "arg", name=f"memory_{bus.name.removeprefix('m_axi_')}",
            addressQualifier="1", id=str(number), port=bus.name, size="0x8",
            offset=f"0x{REGISTERS['REGION_BASE_LOW'].offset:X}", type="void*", hostOffset="0x0",
            hostSize="0x8")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _packaging(config, verilog, found):
    names = " ".join(bus.name if bus.master else _CONTROL for bus in found)
    return f"""\
# Package hotrow, configuration {config.name}, as a kernel: hotrow_kernel.xo.
#   vivado -mode batch -source package.tcl -tclargs ?part?
# Written by `hotrow generate --format xrt`.
set part [expr {{[llength $argv] > 0 ? [lindex $argv 0] : "{U55C}"}}]
set here [file dirname [file normalize [info script]]]
create_project -force -part $part package_{_KERNEL} package_{_KERNEL}
add_files [list [file join $here {_KERNEL}.v] [file join $here {verilog}]]
set_property file_type SystemVerilog [get_files {verilog}]
set_property top {_KERNEL} [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir packaged -vendor hotrow -library accelerator -taxonomy /KernelIP \\
  -import_files -set_current true
set core [ipx::current_core]
foreach bus {{{names}}} {{
  ipx::associate_bus_interfaces -busif $bus -clock ap_clk $core
}}
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::save_core $core
package_xo -force -xo_path {_KERNEL}.xo -kernel_name {_KERNEL} -ip_directory packaged \\
  -kernel_xml [file join $here kernel.xml] -ctrl_protocol user_managed
"""


def _linking(config, found):
    """Assign an equal share of the HBM channels to each row port, host memory to the others."""
    share = _HBM_CHANNELS // config.row_ports
    lines = ["# v++ --link --config link.cfg", "[connectivity]", f"nk={_KERNEL}:1:{TOP_MODULE}"]
    row = 0
    for bus in found:
        if not bus.master:
            continue
        memory = "HOST[0]"
        if bus.reads and bus.writes:
            memory = f"HBM[{row * share}:{(row + 1) * share - 1}]"
            row += 1
        lines.append(f"sp={TOP_MODULE}.{bus.name}:{memory}")
    return "\n".join([*lines, "", "[clock]",
                      f"freqHz={config.clock_mhz * 1_000_000}:{TOP_MODULE}.ap_clk", ""])
