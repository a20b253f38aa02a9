"""The generated controller as an instance of its Verilog inside a larger design."""

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from .controller import MODULE, PORT, Controller
from .memory import dram_bus


class DramCore(wiring.Component):
    """Serve a card's `DramBus`; the design must include the text of `Controller.verilog`.

    Parameters
    ----------
    controller : Controller
    pins : dict
        Arguments of the instance for the chips, the clocks and their reset. None in a simulation,
        where the module includes the chips and runs at the card's clock.

    Attributes
    ----------
    bus : In(DramBus)
    """

    def __init__(self, controller: Controller, pins: dict | None = None):
        self.controller = controller
        self.pins = {"i_clk": ClockSignal(), "i_sim_trace": 0} if pins is None else pins
        super().__init__({"bus": In(dram_bus(controller))})

    def elaborate(self, platform):
        m = Module()
        bus, ports = self.bus, {}
        for channel in (bus.read, bus.write):
            for (name,), member, value in channel.signature.flatten(channel):
                if name.endswith(("cache", "prot")):  # the controller has no attributes
                    continue
                is_output = member.flow is not In
                ports[f"{'o' if is_output else 'i'}_user_port_{PORT}_{name}"] = value
        control = bus.control
        m.submodules.core = Instance(
            MODULE, **self.pins, **ports,
            i_wb_ctrl_adr=control.adr, i_wb_ctrl_dat_w=control.dat_w, i_wb_ctrl_we=control.we,
            i_wb_ctrl_cyc=control.cyc, i_wb_ctrl_stb=control.stb, i_wb_ctrl_sel=0b1111,
            i_wb_ctrl_cti=0, i_wb_ctrl_bte=0,
            o_wb_ctrl_dat_r=control.dat_r, o_wb_ctrl_ack=control.ack)
        return m
