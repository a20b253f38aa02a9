"""The accelerator as an IP-XACT component: ports, AXI interfaces, registers, files.

Source: IEEE 1685-2009; bus types as in Vivado's IP catalogue.
"""

from xml.etree import ElementTree

from ..config import Config
from ..contract.encoding import VERSION
from ..contract.registers import REGISTER_SPACE, Access, registers_of
from ..emit.verilog import TOP_MODULE, emit
from .interfaces import CONTROL, buses, ports_of

_NAMESPACE = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
_ACCESS = {Access.READ_ONLY: "read-only", Access.READ_WRITE: "read-write",
           Access.WRITE_ONLY: "write-only"}
_MEMORY_MAP, _SOURCES = "registers", "verilog"


def ipxact_files(config: Config) -> dict[str, str]:
    """`component.xml` and the Verilog."""
    verilog = f"{config.name}.v"
    return {"component.xml": _text(_component(config, verilog)), verilog: emit(config)}


def _component(config, verilog):
    ElementTree.register_namespace("spirit", _NAMESPACE)
    component = ElementTree.Element(_tag("component"))
    for name, value in (("vendor", "hotrow"), ("library", "accelerator"), ("name", TOP_MODULE),
                        ("version", f"{VERSION}.0")):
        _add(component, name, value)
    found = buses(config)
    interfaces = _add(component, "busInterfaces")
    for bus in found:
        _axi(interfaces, bus)
    _signal(interfaces, "clk", "clock", "CLK",
            {"ASSOCIATED_BUSIF": ":".join(bus.name for bus in found), "ASSOCIATED_RESET": "rst",
             "FREQ_HZ": config.clock_mhz * 1_000_000})
    _signal(interfaces, "rst", "reset", "RST", {"POLARITY": "ACTIVE_HIGH"})
    _signal(interfaces, "interrupt", "interrupt", "INTERRUPT", {"SENSITIVITY": "LEVEL_HIGH"},
            master=True)
    spaces = _add(component, "addressSpaces")
    for bus in found:
        if bus.master:
            space = _add(spaces, "addressSpace")
            _add(space, "name", bus.name)
            _add(space, "range", f"0x{1 << bus.address_bits:X}")
            _add(space, "width", bus.data_bits)
    _registers(component, config)
    _model(component, config)
    files = _add(_add(component, "fileSets"), "fileSet")
    _add(files, "name", _SOURCES)
    file = _add(files, "file")
    _add(file, "name", verilog)
    _add(file, "fileType", "systemVerilogSource")
    _add(component, "description", f"hotrow, configuration {config.name}")
    return component


def _axi(interfaces, bus):
    interface = _interface(interfaces, bus.name, "interface", "aximm")
    if bus.master:
        reference = _add(_add(interface, "master"), "addressSpaceRef")
        reference.set(_tag("addressSpaceRef"), bus.name)
    else:
        reference = _add(_add(interface, "slave"), "memoryMapRef")
        reference.set(_tag("memoryMapRef"), _MEMORY_MAP)
    _map(interface, {port.signal: port.name for port in bus.ports})
    _parameters(interface, {
        "PROTOCOL": "AXI4" if bus.master else "AXI4LITE", "DATA_WIDTH": bus.data_bits,
        "ADDR_WIDTH": bus.address_bits,
        "READ_WRITE_MODE": {(1, 1): "READ_WRITE", (1, 0): "READ_ONLY", (0, 1): "WRITE_ONLY"}[
            bus.reads, bus.writes]})


def _signal(interfaces, port, kind, logical, parameters, master=False):
    interface = _interface(interfaces, port, "signal", kind)
    _add(interface, "master" if master else "slave")
    _map(interface, {logical: port})
    _parameters(interface, parameters)


def _interface(interfaces, name, library, kind):
    interface = _add(interfaces, "busInterface")
    _add(interface, "name", name)
    for tag, suffix in (("busType", ""), ("abstractionType", "_rtl")):
        reference = _add(interface, tag)
        for key, value in (("vendor", "xilinx.com"), ("library", library),
                           ("name", kind + suffix), ("version", "1.0")):
            reference.set(_tag(key), value)
    return interface


def _map(interface, ports):
    maps = _add(interface, "portMaps")
    for logical, physical in ports.items():
        mapped = _add(maps, "portMap")
        _add(_add(mapped, "logicalPort"), "name", logical)
        _add(_add(mapped, "physicalPort"), "name", physical)


def _parameters(interface, values):
    parameters = _add(interface, "parameters")
    for name, value in values.items():
        parameter = _add(parameters, "parameter")
        _add(parameter, "name", name)
        _add(parameter, "value", value)


def _registers(component, config):
    memory_map = _add(_add(component, "memoryMaps"), "memoryMap")
    _add(memory_map, "name", _MEMORY_MAP)
    block = _add(memory_map, "addressBlock")
    for name, value in (("name", CONTROL), ("baseAddress", "0x0"),
                        ("range", f"0x{REGISTER_SPACE:X}"), ("width", 32), ("usage", "register")):
        _add(block, name, value)
    for register in registers_of(config).values():
        entry = _add(block, "register")
        for name, value in (("name", register.name), ("description", register.doc),
                            ("addressOffset", f"0x{register.offset:X}"), ("size", 32),
                            ("access", _ACCESS[register.access])):
            _add(entry, name, value)


def _model(component, config):
    model = _add(component, "model")
    view = _add(_add(model, "views"), "view")
    _add(view, "name", "synthesis")
    _add(view, "envIdentifier", ":vivado.xilinx.com:synthesis")
    _add(view, "language", "SystemVerilog")
    _add(view, "modelName", TOP_MODULE)
    _add(_add(view, "fileSetRef"), "localName", _SOURCES)
    ports = _add(model, "ports")
    for described in ports_of(config):
        port = _add(ports, "port")
        _add(port, "name", described["name"])
        wire = _add(port, "wire")
        _add(wire, "direction", described["direction"].removesuffix("put"))
        if described["bits"] > 1:
            vector = _add(wire, "vector")
            _add(vector, "left", described["bits"] - 1)
            _add(vector, "right", 0)


def _tag(name):
    return f"{{{_NAMESPACE}}}{name}"


def _add(parent, name, text=None):
    child = ElementTree.SubElement(parent, _tag(name))
    if text is not None:
        child.text = str(text)
    return child


def _text(root):
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
