"""Components that a design repeats: elaborated and emitted once, instantiated each time.

Amaranth elaborates every instance anew. For banks and ports, of which a large card has dozens, that
takes most of the time that its Verilog takes.
"""

from amaranth.back import verilog
from amaranth.hdl import ClockSignal, Instance, ResetSignal, Signal, Value
from amaranth.lib.wiring import In


def shared_instance(platform, component):
    """The component itself, or for a platform with `units` an instance of one like it.

    It must not be put under a `ResetInserter`, which cannot reset an instance.

    Parameters
    ----------
    platform : object or None
    component : Component
        Its attributes, besides its ports, say all in which others of its class may differ.
    """
    units = getattr(platform, "units", None)
    return component if units is None else units.instance(component, platform)


class ModuleCache:
    """The modules of the components that were instantiated.

    Members
    -------
    text : str
        Verilog of all of them.
    """

    def __init__(self):
        self.text = ""
        self._modules = {}  # (its attributes, module name, clock and reset if it has them) by class

    def instance(self, component, platform):
        component._MustUse__used = True  # for all that Amaranth knows, it was not elaborated
        attributes = {name: value for name, value in vars(component).items()
                      if name not in component.signature.members and "__" not in name}
        ports = {"__".join(map(str, path)): (member.flow, Value.cast(value))
                 for path, member, value in component.signature.flatten(component)}
        ports = {name: port for name, port in ports.items() if isinstance(port[1], Signal)}
        known = self._modules.setdefault(type(component), [])
        module, clocked = next((made for others, *made in known if others == attributes),
                               (None, None))
        if module is None:
            module, clocked = self._emit(component, len(known), ports, platform)
            known.append((attributes, module, clocked))
        return Instance(module, **clocked, **{
            f"{'i' if flow == In else 'o'}_{name}": value for name, (flow, value) in ports.items()})

    def _emit(self, component, number, ports, platform):
        module = f"{type(component).__name__}{number or ''}"
        text = verilog.convert(
            component, name=module, platform=platform, emit_src=False, strip_internal_attrs=True,
            ports={name: (value, None) for name, (_, value) in ports.items()})
        self.text += text.partition("\n")[2]  # without the remark which Yosys wrote it
        names = text.partition(f"module {module}(")[2].partition(");")[0].split(",")
        clocked = {"clk": ("i_clk", ClockSignal()), "rst": ("i_rst", ResetSignal())}
        return module, dict(clocked[name] for name in map(str.strip, names) if name in clocked)
