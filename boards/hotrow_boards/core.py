"""The accelerator as an instance of its own Verilog inside a larger design."""

from amaranth import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib.wiring import Flow
from hotrow_rtl.emit.verilog import TOP_MODULE, flat_ports
from hotrow_rtl.top import Top


class Core(Top):
    """`Top` as an instance; the design must include the Verilog that `emit` writes.

    Parameters, Attributes and Timing: see `Top`.
    """

    def elaborate(self, platform):
        m = Module()
        directions = ("i" if member.flow is Flow.In else "o"
                      for _, member, _ in self.signature.flatten(self))
        ports = zip(directions, flat_ports(self).items(), strict=True)
        m.submodules.core = Instance(
            TOP_MODULE, i_clk=ClockSignal(), i_rst=ResetSignal(allow_reset_less=True),
            **{f"{direction}_{name}": value for direction, (name, (value, _)) in ports})
        return m
