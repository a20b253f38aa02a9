"""Verilog of a component: Amaranth's RTLIL, cleaned up and written by Yosys."""

import gc
import re

from amaranth.back import verilog
from amaranth.hdl import Const, Value

from ..primitives.ram import RAM_MODULE, RAM_VERILOG
from ..primitives.shared_module import ModuleCache, converted
from .names import named_in_tuples
from .readable import readable

# Multiplexers become expressions: in Icarus an `always @*` block whose inputs do not change at
# time 0 leaves its outputs undefined. Without attributes and with names numbered by module, equal
# modules have equal text.
_PASSES = """\
proc -norom
opt_clean -purge
opt_dff
opt_expr
opt_merge
opt_clean -purge
memory_collect
write_verilog -noattr
"""
_WAIVED = {
    "DECLFILENAME": "one file has every module",
    "UNUSEDSIGNAL": "carries, and fields of payloads that nobody reads",
    "UNUSEDPARAM": "STYLE of a memory is for synthesis",
    "VARHIDDEN": "a memory and its instance have the same name",
    "CASEOVERLAP": "of the bits that select, at most one is 1",
    "WIDTHEXPAND": "operands are extended with zeros",
    "WIDTHTRUNC": "the upper bits of a shift are dropped",
    "CMPCONST": "a comparison that these parameters decide",
    "UNSIGNED": "a comparison that these parameters decide",
    "SYMRSVDWORD": "a card's port has the name `interrupt`",
    "UNOPTFLAT": "a payload of which one field depends on another",
}
_YOSYS = (0, 40)  # oldest version, as for `amaranth.back.verilog`
_MODULE = re.compile(r"^module (\S+)(.*?^endmodule\n)", re.MULTILINE | re.DOTALL)
_FIRST_WORD = re.compile(r"^  (\S+)(?= )", re.MULTILINE)
_ZERO_WIDTH = re.compile(r"^  wire width 0 (?:in|out)put \d+ .*\\(\S+)$", re.MULTILINE)


class VerilogPlatform:
    """Platform on which `Ram` is an instance of the module in `RAM_VERILOG`, and
    `shared_instance` an instance of a module in `shared_modules`."""

    ram_instances = True

    def __init__(self, design: str):
        self.shared_modules = ModuleCache(design)
        self.sources = {}


def flat_ports(component, separator="__") -> dict:
    """The ports of a component by flat name, for `to_verilog`.

    Members that are constant, such as the `ready` of a stream that is always ready, are no ports.

    Parameters
    ----------
    component : Component
    separator : str
        Between the names of a path.

    Returns
    -------
    dict of str to (Value, None)
        Without a direction, which Amaranth derives from the drivers.
    """
    return {separator.join(map(str, path)): (Value.cast(value), None)
            for path, _, value in component.signature.flatten(component)
            if not isinstance(Value.cast(value), Const)}


def to_verilog(component, name: str, ports=None) -> str:
    """Verilog of a component and all modules below it, that of `Ram` included, for readers: whole
    expressions, names of the source, and a comment about it before each module.

    Parameters
    ----------
    component : Component
    name : str
        Of the top module.
    ports : dict or sequence, optional
        See `amaranth.back.verilog.convert`; default `flat_ports(component)`.

    Raises
    ------
    ValueError
        If a port has no bits.
    """
    platform = VerilogPlatform(name)
    ports = flat_ports(component) if ports is None else ports
    collecting = gc.isenabled()
    gc.disable()  # nearly all objects live as long as the design: searching them doubles the time
    try:
        with named_in_tuples():
            top = converted(component, name, platform, ports)
    finally:
        if collecting:
            gc.enable()
    text = "\n".join([top, *platform.shared_modules.rtlil])
    refuse_zero_width(text)
    yosys = verilog.find_yosys(lambda version: version >= _YOSYS)
    modules = yosys.run(["-q", "-"], f"read_rtlil <<rtlil\n{text}\nrtlil\n{_PASSES}",
                        ignore_warnings=True)
    modules = share_modules(modules.partition("\n")[2])  # without the version of Yosys
    modules = readable(modules, platform.sources)
    return f"{modules}\n{RAM_VERILOG}" if f" {RAM_MODULE} #(" in modules else modules


def lint_waiver(file: str) -> str:
    """Verilator's configuration for `--lint-only -Wall` of a file that `to_verilog` wrote."""
    return "`verilator_config\n" + "".join(
        f'lint_off -rule {kind} -file "*{file}"  // {why}\n' for kind, why in _WAIVED.items())


def refuse_zero_width(text: str) -> None:
    """Refuse ports without bits, which simulators read as `[-1:0]`.

    Parameters
    ----------
    text : str
        RTLIL.

    Raises
    ------
    ValueError
    """
    if found := _ZERO_WIDTH.search(text):
        raise ValueError(f"port {found[1]} has no bits: every port needs a width of at least 1; "
                         "leave the member out of the signature for this configuration")


def share_modules(text: str) -> str:
    """Emit modules with equal bodies once; this may make their parents equal, and so on."""
    while True:
        first, shared = {}, {}
        for name, body in _MODULE.findall(text):
            if first.setdefault(body, name) != name:
                shared[name] = first[body]
        if not shared:
            return text
        text = _MODULE.sub(lambda found: "" if found[1] in shared else found[0], text)
        text = _FIRST_WORD.sub(lambda found: f"  {shared.get(found[1], found[1])}", text)
