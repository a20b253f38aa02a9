"""The accelerator as an RTL kernel of Vitis: wrapper, kernel description, packaging, linking.

The kernel is "user managed": the host accesses the registers itself. Source: AMD UG1393, RTL
kernels.
"""

from xml.etree import ElementTree

from ..config import BURST_BEATS, PAGE_BYTES, Config
from ..contract.encoding import VERSION
from ..contract.registers import REGISTER_SPACE, REGISTERS
from ..emit.verilog import TOP_MODULE, emit
from ..memory.read_port import buffer_words
from ..memory.write_client import OUTSTANDING_BURSTS
from ..mover.port.payloads import pending_writes
from ..top import list_clients
from .interfaces import CONTROL, buses
from .vivado import U55C

_KERNEL, _CONTROL = "hotrow_kernel", "s_axi_control"
_HBM = "HBM[0:31]"  # every channel of a U55C
_HOST = "HOST[0]"


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


def _traffic(config, bus):
    """What the interconnect must carry of a master, by the parameters of Vivado's interfaces."""
    row = bus.reads and bus.writes
    page = min(BURST_BEATS, PAGE_BYTES // config.bus_bytes)
    longest = min(page, 2 * config.row_bytes // config.bus_bytes) if row else config.burst_beats
    reads = (config.outstanding if row else
             len(list_clients(config)) * buffer_words(config) // config.burst_beats)
    writes = pending_writes(config) if row else OUTSTANDING_BURSTS
    return {"MAX_BURST_LENGTH": longest, "NUM_READ_OUTSTANDING": reads if bus.reads else 0,
            "NUM_WRITE_OUTSTANDING": writes if bus.writes else 0}


def _packaging(config, verilog, found):
    names = " ".join(bus.name if bus.master else _CONTROL for bus in found)
    parameters = [f"parameter ap_clk FREQ_HZ {config.clock_mhz * 1_000_000}"]
    parameters += [f"parameter {bus.name} {name} {value}" for bus in found if bus.master
                   for name, value in _traffic(config, bus).items()]
    stated = "\n".join(parameters)
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
# The bursts that each port issues, and the clock that the linker is asked for: an assumption.
proc parameter {{bus name value}} {{
  set interface [ipx::get_bus_interfaces $bus -of_objects [ipx::current_core]]
  set_property value $value [ipx::add_bus_parameter -quiet $name $interface]
}}
{stated}
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::save_core $core
package_xo -force -xo_path {_KERNEL}.xo -kernel_name {_KERNEL} -ip_directory packaged \\
  -kernel_xml [file join $here kernel.xml] -ctrl_protocol user_managed
"""


def _linking(config, found):
    """Connect the row ports to the host's memory and every HBM channel, the others to the host's.

    The port of a row comes from the low bits of its address, so each reaches every channel.
    """
    lines = ["# v++ --link --config link.cfg", "[connectivity]", f"nk={_KERNEL}:1:{TOP_MODULE}"]
    for bus in found:
        if bus.master:
            memories = (_HOST, _HBM) if bus.reads and bus.writes else (_HOST,)
            lines += [f"sp={TOP_MODULE}.{bus.name}:{memory}" for memory in memories]
    return "\n".join([*lines, "", "[clock]",
                      f"freqHz={config.clock_mhz * 1_000_000}:{TOP_MODULE}.ap_clk", ""])
