"""Components that a design repeats: elaborated and emitted once, instantiated each time.

Amaranth elaborates every instance. For banks and ports, of which a large card has dozens, that is
most of the time of emission.
"""

import inspect
import re

from amaranth.back import rtlil
from amaranth.hdl import ClockSignal, Fragment, Instance, ResetSignal, Signal, Value
from amaranth.lib.wiring import In


def shared_instance(platform, component):
    """Return the component, or an instance of a shared module if the platform has `shared_modules`.

    The caller must not put it under a `ResetInserter`, which cannot reset an instance.

    Parameters
    ----------
    platform : object or None
    component : Component
        Components of its class with equal attributes, ports left out, share a module.
    """
    modules = getattr(platform, "shared_modules", None)
    return component if modules is None else modules.instance(component, platform)


def converted(component, name: str, platform, ports) -> str:
    """RTLIL of a component.

    The class of each module and the first paragraph of its docstring, in one line, go to
    `platform.sources`, by the name of the module.
    """
    fragment = Fragment.get(component, platform)
    _describe(fragment, name, platform.sources)
    return rtlil.convert(fragment, name=name, platform=platform, ports=ports, emit_src=False)


def _describe(fragment, name, sources):
    for origin in fragment.origins or ():
        kind = type(origin)
        if not kind.__module__.startswith("amaranth."):
            summary = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
            sources[name] = f"{kind.__module__}.{kind.__qualname__}: {summary}"
            break
    for part, part_name, _ in fragment.subfragments:
        _describe(part, f"{name}.{part_name}", sources)


class ModuleCache:
    """The shared modules of a design.

    Parameters
    ----------
    design : str
        Name of the top module, which the names of shared modules begin with.

    Attributes
    ----------
    rtlil : list of str
        RTLIL of each module and those below it.
    """

    def __init__(self, design: str):
        self.design, self.rtlil = design, []
        self._modules = {}  # by class: [attributes, module name, clock and reset connections]

    def instance(self, component, platform):
        """Return an `Instance` of the component's module, which is emitted on first use."""
        component._MustUse__used = True  # Amaranth warns of components that are not elaborated
        attributes = {name: value for name, value in vars(component).items()
                      if name not in component.signature.members and "__" not in name}
        ports = {"__".join(map(str, path)): (member.flow, Value.cast(value))
                 for path, member, value in component.signature.flatten(component)}
        ports = {name: port for name, port in ports.items() if isinstance(port[1], Signal)}
        known = self._modules.setdefault(type(component), [])
        module, clocks = next((shared for others, *shared in known if others == attributes),
                              (None, None))
        if module is None:
            module = f"{self.design}.{type(component).__name__}{len(known) or ''}"
            clocks = self._emit(component, module, ports, platform)
            known.append((attributes, module, clocks))
        return Instance(module, **clocks, **{
            f"{'i' if flow == In else 'o'}_{name}": value for name, (flow, value) in ports.items()})

    def _emit(self, component, module, ports, platform):
        text = converted(component, module, platform,
                         {name: (value, None) for name, (_, value) in ports.items()})
        self.rtlil.append(text)
        body = re.search(rf"^module \\{re.escape(module)}$.*?^end$", text,
                         re.MULTILINE | re.DOTALL)[0]
        inputs = set(re.findall(r"^  wire .* input \d+ +\\(clk|rst)$", body, re.MULTILINE))
        clocks = {"clk": ("i_clk", ClockSignal()), "rst": ("i_rst", ResetSignal())}
        return dict(clocks[name] for name in inputs)
